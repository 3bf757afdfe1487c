import { randomUUID } from 'node:crypto';
import { resealCheckpoint } from '../checkpoints/index.ts';
import { CountersignError, type ErrorDetails } from '../errors.ts';
import { callFunction, type Database, readAsTenant } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { isUuid } from '../uuid.ts';
import type { Registry } from '../workflows/index.ts';
import { requestApproval } from './outcome.ts';

export type Restarted = { runId: string; from: string; checkpoint: number; version: string; status: string };

type Inherited = { id: string; tool: string; sealed_arguments: Buffer; state: string; gated: boolean };

/** parameters: run id, checkpoint number. Zero rows: no such checkpoint of this tenant's run. */
const CHECKPOINT = `
  select r.workflow, r.version, c.sealed from countersign.runs r
  join countersign.checkpoints c on c.tenant = r.tenant and c.run_id = r.id where r.id = $1 and c.number = $2`;

/** parameters: run id, checkpoint number. The ledger rows that the checkpoint's calls belong to. */
const INHERITED = `
  select a.id, a.tool, a.sealed_arguments, a.state, a.gated from countersign.actions a
  where a.run_id = $1 and a.segment = $2 - 1 order by a.id`;

/**
 * Begins a new run from a checkpoint of an old one, under another version of the code if asked: the safe way on for
 * state that today's code cannot carry. No effect is repeated: the new run inherits the checkpoint's ledger rows with
 * their operation keys, undecided ones get new approvals, and the restart is refused when anything asked for later was
 * ever sent.
 *
 * Needs a process that holds the keys and the workflow's code.
 *
 * @throws RUN_NOT_FOUND, CHECKPOINT_NOT_FOUND, EFFECTS_AFTER_CHECKPOINT and ACTIONS_OPEN (listing the actions),
 *   RUN_ACTIVE, RUN_ENDED, SESSION_MOVED_ON, WORKFLOW_UNKNOWN
 */
export async function restartRun(
  db: Database,
  keys: KeyRing,
  registry: Registry,
  options: {
    tenant: string;
    runId: string;
    checkpoint: number;
    version?: string | undefined;
    subject: string;
    reason: string;
  },
): Promise<Restarted> {
  const { tenant, runId, checkpoint } = options;
  const [stored, inherited] = isUuid(runId)
    ? await readAsTenant(
        db,
        tenant,
        async (tx) =>
          [
            (await tx.query(CHECKPOINT, [runId, checkpoint])).rows[0] as
              | { workflow: string; version: string; sealed: Buffer }
              | undefined,
            (await tx.query(INHERITED, [runId, checkpoint])).rows as Inherited[],
          ] as const,
      )
    : [undefined, []];
  if (stored === undefined) {
    throw new CountersignError(
      'CHECKPOINT_NOT_FOUND',
      'No such run or checkpoint; "countersign runs explain" lists its checkpoints.',
      {
        details: { runId: runId.slice(0, 64), checkpoint },
      },
    );
  }
  const version = options.version ?? stored.version;
  const registered = registry.get(`${stored.workflow}@${version}`);
  if (registered === undefined) {
    throw new CountersignError(
      'WORKFLOW_UNKNOWN',
      `The workflows file does not hold ${stored.workflow}@${version}.`,
      {
        details: { field: 'version', workflow: stored.workflow, known: [...registry.keys()] },
      },
    );
  }
  const newId = randomUUID();
  const sealed = resealCheckpoint(keys, { tenant, runId, number: checkpoint }, newId, stored.sealed);
  const approvals = inherited
    .filter((action) => action.gated && action.state === 'prepared')
    .map((action) => {
      const definition = registered.actions.get(action.tool);
      if (definition === undefined) {
        throw new CountersignError(
          'TOOL_NOT_GUARDED',
          `${stored.workflow}@${version} has no action() named ${action.tool}.`,
          {
            details: { tool: action.tool, version },
          },
        );
      }
      return requestApproval({ keys, run: { tenant } }, definition, {
        id: action.id,
        sealedArguments: action.sealed_arguments,
      });
    });
  const [row] = await callFunction<{ outcome: string; blocking: string[] | null; run_status: string }>(
    db,
    'restart_run',
    [
      tenant,
      runId,
      checkpoint,
      newId,
      version,
      sealed,
      JSON.stringify(approvals),
      options.subject,
      options.reason,
    ],
  );
  if (row?.outcome !== 'restarted') {
    throw refusal(row?.outcome ?? 'not_found', {
      runId,
      checkpoint,
      status: row?.run_status ?? null,
      actions: row?.blocking ?? [],
    });
  }
  return { runId: newId, from: runId, checkpoint, version, status: row.run_status };
}

function refusal(outcome: string, details: ErrorDetails): CountersignError {
  switch (outcome) {
    case 'effects_after_checkpoint':
      return new CountersignError(
        'EFFECTS_AFTER_CHECKPOINT',
        'Actions asked for after this checkpoint were already sent; choose a later checkpoint.',
        { details },
      );
    case 'actions_open':
      return new CountersignError(
        'ACTIONS_OPEN',
        'The outcome of some actions is not known yet; wait for the reconciler or record it.',
        { details },
      );
    case 'active':
      return new CountersignError(
        'RUN_ACTIVE',
        'A worker holds this run; cancel it, or wait until it pauses.',
        { details },
      );
    case 'ended':
      return new CountersignError('RUN_ENDED', 'This run has ended; start a new one.', { details });
    case 'session_moved_on':
      return new CountersignError(
        'SESSION_MOVED_ON',
        'The session has later items than this checkpoint; only the latest checkpoint can be restarted.',
        { details },
      );
    default:
      return new CountersignError('RUN_NOT_FOUND', 'No such run; "countersign runs" lists yours.', {
        details,
      });
  }
}
