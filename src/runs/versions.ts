import { isCountersignError } from '../errors.ts';
import { callFunction, type Database, readAsTenant } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import type { Registry } from '../workflows/index.ts';
import { type LoadedRow, readRun } from './claim.ts';
import { openForReview } from './segment.ts';

/** How many runs of one version are where, and who could carry them. */
export type VersionCount = {
  workflow: string;
  version: string;
  /** Runs by status; ended ones are left out. */
  waiting: Record<string, number>;
  total: number;
  liveWorkers: number;
  /** True when nothing waits on this version any more. */
  retirable: boolean;
};

/** Zero rows: nothing was ever announced and no run exists. */
const VERSIONS = `
  with counted as (
    select r.workflow, r.version, r.status, count(*)::integer as runs from countersign.runs r
    where r.status not in ('completed', 'failed', 'cancelled', 'superseded') group by 1, 2, 3),
  named as (select name as workflow, version from countersign.workflows union select workflow, version from counted)
  select n.workflow, n.version, coalesce(sum(c.runs), 0)::integer as total,
    coalesce(jsonb_object_agg(c.status, c.runs) filter (where c.status is not null), '{}') as waiting,
    (select count(*)::integer from countersign.workers w where w.kind = 'resume' and w.stopped_at is null
      and w.alive_until > clock_timestamp() and n.workflow || '@' || n.version = any (w.workflows)) as "liveWorkers"
  from named n left join counted c on c.workflow = n.workflow and c.version = n.version
  group by n.workflow, n.version order by n.workflow, n.version`;

/** Runs per version, of one tenant. A version is retirable when none of its runs waits. */
export async function listVersions(db: Database, tenant: string): Promise<VersionCount[]> {
  const rows = await readAsTenant(
    db,
    tenant,
    async (tx) => (await tx.query(VERSIONS)).rows as Omit<VersionCount, 'retirable'>[],
  );
  return rows.map((row) => ({ ...row, retirable: row.total === 0 }));
}

export type CheckedRun = {
  tenant: string;
  runId: string;
  workflow: string;
  version: string;
  resumes: boolean;
  code: string | null;
  message: string | null;
};

export type VersionCheck = { checked: number; wouldResume: number; wouldNot: CheckedRun[] };

/**
 * The check to run before a deploy: opens the current checkpoint of every run that has not ended with the given code,
 * effects disabled (nothing is claimed, asked, sent or written), and says which would not resume and why.
 *
 * @param options.sample at most this many runs; default all.
 */
export async function checkVersions(
  db: Database,
  keys: KeyRing,
  registry: Registry,
  options: { sample?: number | undefined } = {},
): Promise<VersionCheck> {
  const result: VersionCheck = { checked: 0, wouldResume: 0, wouldNot: [] };
  const sample = options.sample ?? Number.POSITIVE_INFINITY;
  let after: string | null = null;
  while (result.checked < sample) {
    const page: { tenant: string; run_id: string }[] = await callFunction(db, 'unended_runs', [
      Math.min(200, sample - result.checked),
      after,
    ]);
    for (const { tenant, run_id: runId } of page) {
      const checked = await checkRun(db, keys, registry, { tenant, runId });
      result.checked += 1;
      result.wouldResume += checked.resumes ? 1 : 0;
      if (!checked.resumes) {
        result.wouldNot.push(checked);
      }
      after = runId;
    }
    if (page.length === 0) {
      break;
    }
  }
  return result;
}

async function checkRun(
  db: Database,
  keys: KeyRing,
  registry: Registry,
  id: { tenant: string; runId: string },
): Promise<CheckedRun> {
  const [row] = await callFunction<LoadedRow>(db, 'load_run', [id.tenant, id.runId]);
  const { workflow = '', version = '' } = row?.run ?? {};
  const verdict = (code: string | null, message: string | null): CheckedRun => ({
    ...id,
    workflow,
    version,
    resumes: code === null,
    code,
    message,
  });
  const registered = registry.get(`${workflow}@${version}`);
  if (row === undefined || registered === undefined) {
    return verdict(
      'WORKFLOW_UNKNOWN',
      `The workflows file holds neither ${workflow}@${version} nor an adapter from it.`,
    );
  }
  try {
    await openForReview(keys, readRun(id, row), registered);
    return verdict(null, null);
  } catch (error) {
    return isCountersignError(error)
      ? verdict(error.code, error.message)
      : verdict(
          'UNEXPECTED',
          `Opening it threw ${error instanceof Error ? error.constructor.name : 'a value'}.`,
        );
  }
}
