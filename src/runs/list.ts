import { addUsage, NO_USAGE, type UsageNumbers } from '../agents-sdk/index.ts';
import { CountersignError } from '../errors.ts';
import { type Database, readAsTenant } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { isUuid } from '../uuid.ts';

export type RunSummary = {
  id: string;
  workflow: string;
  version: string;
  status: string;
  reason: string | null;
  segment: number;
  attempts: number;
  createdAt: Date;
  endedAt: Date | null;
};

export type RunDetails = RunSummary & {
  requestedBy: string;
  output: unknown;
  /** Sum over the answers that count, each once, however often its segment was carried. */
  usage: UsageNumbers;
  /** Paid for and of no use: calls that failed, answers that could not be stored or were superseded. As far as known. */
  wasted: UsageNumbers;
};

/** parameters: limit, status or null. Newest first. Zero rows: none of this tenant's. */
const LIST = `
  select id, workflow, version, status, reason, segment, attempts_in_round as attempts, created_at as "createdAt", ended_at as "endedAt"
  from countersign.runs where $2::text is null or status = $2 order by created_at desc, id limit $1`;

/** parameter: run id. Zero rows: no such run of this tenant. */
const SHOW = `
  select id, workflow, version, status, reason, segment, attempts_in_round as attempts, created_at as "createdAt",
    ended_at as "endedAt", requested_by as "requestedBy", sealed_output, wasted as unstored, cost.usage, cost.superseded
  from countersign.runs r cross join lateral (
    select coalesce(jsonb_agg(m.usage) filter (where m.take = 0), '[]') as usage,
      coalesce(jsonb_agg(m.usage) filter (where m.take <> 0), '[]') as superseded
    from countersign.model_calls m where m.tenant = r.tenant and m.run_id = r.id) cost
  where id = $1`;

type ShowRow = Omit<RunDetails, 'output' | 'usage' | 'wasted'> & {
  sealed_output: Buffer | null;
  usage: Partial<UsageNumbers>[];
  superseded: Partial<UsageNumbers>[];
  unstored: Partial<UsageNumbers>;
};

const sum = (costs: readonly Partial<UsageNumbers>[]): UsageNumbers =>
  costs.reduce<UsageNumbers>((total, cost) => addUsage(cost, total), NO_USAGE);

/** @param options.limit at most 500; default 50. */
export async function listRuns(
  db: Database,
  options: { tenant: string; limit?: number; status?: string | undefined },
): Promise<RunSummary[]> {
  return readAsTenant(db, options.tenant, async (tx) => {
    const { rows } = await tx.query(LIST, [Math.min(options.limit ?? 50, 500), options.status ?? null]);
    return rows as RunSummary[];
  });
}

/** One run with its final output, opened by the `review` key. @throws RUN_NOT_FOUND, KEY_MISSING, SEAL_BROKEN */
export async function showRun(
  db: Database,
  keys: KeyRing,
  options: { tenant: string; runId: string },
): Promise<RunDetails> {
  const { tenant, runId } = options;
  const rows = isUuid(runId)
    ? await readAsTenant(db, tenant, async (tx) => (await tx.query(SHOW, [runId])).rows)
    : [];
  const row = rows[0] as ShowRow | undefined;
  if (row === undefined) {
    throw new CountersignError('RUN_NOT_FOUND', 'No such run; "countersign runs" lists yours.', {
      details: { runId: runId.slice(0, 64) },
    });
  }
  const { sealed_output: sealed, usage, superseded, unstored, ...run } = row;
  const output =
    sealed === null
      ? null
      : keys.openJson('review', sealed, { tenant, table: 'runs', column: 'sealed_output', row: run.id });
  return { ...run, output, usage: sum(usage), wasted: sum([...superseded, unstored]) };
}
