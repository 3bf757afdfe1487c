/**
 * A run driven by hand, one protocol function at a time, so that a test can put any two of them side by side in two
 * real sessions and stop either in the middle of its statement. What is sealed here is noise: no function looks at it.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import {
  type Intent,
  intendAction,
  type Settlement,
  type SettleOutcome,
  settleAction,
} from '../../src/actions/ledger.ts';
import { callFunction, callStep, type Database, type Queryable } from '../../src/postgres/index.ts';
import { type Claim, claimRun } from '../../src/runs/claim.ts';
import { start } from '../../src/runs/start.ts';
import { KeyRing } from '../../src/seal/index.ts';

type Db = Database | Queryable;

export const SQL_WORKFLOW = 'by-hand@1';
const TOOL = 'manifest-of-the-tool';
const NOISE = Buffer.from('sealed');
const keys = KeyRing.parse(KeyRing.generate());

export type SqlAction = {
  id: string;
  callId: string;
  tool: string;
  digest: string;
  approvalId: string;
  fingerprint: string;
};
export type SqlRun = {
  tenant: string;
  id: string;
  worker: string;
  epoch: number;
  wake: number;
  actions: SqlAction[];
};

export type ActionOptions = {
  recovery?: 'lookup' | 'idempotent' | 'manual' | 'transactional';
  gated?: boolean;
  /** Equal operations exclude each other. Default: one of its own. */
  operation?: string;
  reissue?: 'automatic' | 'by_person';
  sendWithinMs?: number;
  callTimeoutMs?: number;
  settlesWithinMs?: number;
  keyLifetimeMs?: number | null;
  budget?: number;
  expiresInMs?: number;
  executeWithinMs?: number;
  quorum?: number;
};

/** Announces a resume worker that carries every run made here. */
export async function announceWorker(db: Db, aliveMs = 3_600_000): Promise<string> {
  const id = randomUUID();
  await callFunction(db, 'announce_worker', [
    id,
    'resume',
    'by hand',
    [SQL_WORKFLOW],
    SCHEMAS,
    [TOOL],
    aliveMs,
  ]);
  return id;
}

/** Lives with the other sessions; here for those who drive a run by hand. */
export { openSession } from './sessions.ts';

const SCHEMAS = ['input/1', 'state/1'];

export async function startRun(db: Db, worker: string, tenant = 'acme', session?: string): Promise<SqlRun> {
  const [workflow = '', version] = SQL_WORKFLOW.split('@');
  const { runId } = await start(db, keys, {
    tenant,
    workflow,
    version,
    input: 'go',
    requestedBy: 'tester',
    ...(session === undefined ? {} : { session }),
  });
  return { tenant, id: runId, worker, epoch: 0, wake: 1, actions: [] };
}

/** Claims; on success the run's epoch is the new one. */
export async function claim(
  db: Db,
  run: SqlRun,
  options: { worker?: string; wake?: number; ttlMs?: number; maxAttempts?: number; takeOver?: boolean } = {},
): Promise<Claim> {
  const made = await claimRun(db as Database, {
    tenant: run.tenant,
    runId: run.id,
    wake: options.wake ?? run.wake,
    workerId: options.worker ?? run.worker,
    ttlMs: options.ttlMs ?? 3_600_000,
    maxAttempts: options.maxAttempts ?? 5,
    takeOver: options.takeOver ?? true,
    capabilities: { workflows: [SQL_WORKFLOW], stateSchemas: SCHEMAS, tools: [TOOL] },
  });
  if (made.outcome === 'claimed') {
    run.epoch = made.run.epoch;
  }
  return made;
}

/** Stores one model response that asks for these actions. Returns journal_responses' outcome. */
export async function journal(
  db: Db,
  run: SqlRun,
  wanted: ActionOptions[],
  epoch = run.epoch,
  n = 0,
): Promise<string> {
  const rows = wanted.map((options) => {
    const id = randomUUID();
    const digest = randomBytes(32).toString('hex');
    run.actions.push({
      id,
      callId: `call_${id}`,
      tool: 'pay',
      digest,
      approvalId: randomUUID(),
      fingerprint: '',
    });
    return {
      id,
      call_id: `call_${id}`,
      tool: 'pay',
      tool_version: '1',
      gated: options.gated ?? true,
      recovery: options.recovery ?? 'lookup',
      refused: null,
      attempt_budget: options.budget ?? 5,
      proposed_digest: digest,
      effective_digest: digest,
      operation_digest: options.operation ?? digest,
      sealed_arguments: NOISE.toString('base64'),
      send_within_ms: options.sendWithinMs ?? 60_000,
      call_timeout_ms: options.callTimeoutMs ?? 60_000,
      settles_within_ms: options.settlesWithinMs ?? 0,
      key_lifetime_ms: options.keyLifetimeMs ?? 86_400_000,
      reissue: options.reissue ?? 'automatic',
    };
  });
  const call = { path: '', n, request_digest: 'd', sealed: NOISE.toString('base64'), usage: {} };
  const { outcome } = (await callStep(db, 'journal_responses', {
    tenant: run.tenant,
    run: run.id,
    epoch,
    call,
    actions: rows,
  })) as { outcome: string };
  return outcome;
}

/** Pauses with one approval for each action. Returns the status after, null when fenced. */
export async function pause(
  db: Db,
  run: SqlRun,
  options: ActionOptions[] = [],
  epoch = run.epoch,
  number = 1,
): Promise<string | null> {
  const approvals = run.actions.map((action, index) => approvalOf(action, options[index]));
  const { status } = (await callStep(db, 'pause_runs', {
    tenant: run.tenant,
    run: run.id,
    epoch,
    number,
    sealed: NOISE,
    state_schema: 'state/1',
    manifest: [TOOL],
    approvals,
    usage: {},
    session: null,
  })) as { status: string | null };
  return status;
}

export function approvalOf(action: SqlAction, options: ActionOptions = {}) {
  return {
    id: action.approvalId,
    action_id: action.id,
    policy: 'policy',
    quorum: options.quorum ?? 1,
    sealed_review: NOISE.toString('base64'),
    expires_in_ms: options.expiresInMs ?? 3_600_000,
    execute_within_ms: options.executeWithinMs ?? 3_600_000,
  };
}

/** Puts an approved action back before a person. The action here then names its new approval. */
export async function askAgain(db: Db, run: SqlRun, action: SqlAction): Promise<string | null> {
  const asked = { ...action, approvalId: randomUUID() };
  const row = await one<{ request_again: string | null }>(db, 'request_again', [
    run.tenant,
    run.id,
    run.epoch,
    action.id,
    JSON.stringify([approvalOf(asked)]),
  ]);
  const shown = await ('pool' in db ? db.pool : db).query(
    'select fingerprint from countersign.approvals where id = $1',
    [asked.approvalId],
  );
  const [made] = shown.rows as { fingerprint: string }[];
  if (made !== undefined) {
    Object.assign(action, { approvalId: asked.approvalId, fingerprint: made.fingerprint });
  }
  return row.request_again;
}

/** A run that waits for a decision on each of the wanted actions. */
export async function pausedRun(
  admin: Database,
  worker: string,
  wanted: ActionOptions[],
  tenant = 'acme',
): Promise<SqlRun> {
  const run = await startRun(admin, worker, tenant);
  await claim(admin, run);
  await journal(admin, run, wanted);
  await pause(admin, run, wanted);
  run.wake = 2;
  await showApprovals(admin, run);
  return run;
}

/** Shows a person what is asked of them: who decides names the fingerprint. */
export async function showApprovals(admin: Database, run: SqlRun): Promise<void> {
  const shown = await admin.pool.query<{ id: string; fingerprint: string }>(
    'select id, fingerprint from countersign.approvals where run_id = $1',
    [run.id],
  );
  for (const action of run.actions) {
    action.fingerprint = shown.rows.find(({ id }) => id === action.approvalId)?.fingerprint ?? '';
  }
}

/** A run whose actions are approved, held by its worker: the next thing is intend. */
export async function approvedRun(
  admin: Database,
  worker: string,
  wanted: ActionOptions[],
  tenant = 'acme',
): Promise<SqlRun> {
  const run = await pausedRun(admin, worker, wanted, tenant);
  for (const action of run.actions) {
    await decideBy(admin, run, action);
  }
  await claim(admin, run);
  return run;
}

export type DecideRow = { outcome: string; state: string; run_status: string };

export async function decideBy(
  db: Db,
  run: SqlRun,
  action: SqlAction,
  verdict: 'approve' | 'reject' = 'approve',
  subject = 'alice',
): Promise<DecideRow> {
  return one<DecideRow>(db, 'decide_approval', [
    run.tenant,
    action.approvalId,
    verdict,
    subject,
    action.fingerprint,
    randomUUID(),
    null,
  ]);
}

export async function revoke(
  db: Db,
  run: SqlRun,
  action: SqlAction,
): Promise<{ outcome: string; state: string }> {
  return one(db, 'revoke_approval', [run.tenant, action.approvalId, 'bob']);
}

export async function intend(db: Db, run: SqlRun, action: SqlAction, epoch = run.epoch): Promise<Intent> {
  return intendAction(db, {
    tenant: run.tenant,
    runId: run.id,
    epoch,
    actionId: action.id,
    tool: action.tool,
    proposedDigest: action.digest,
    effectiveDigest: action.digest,
  });
}

export async function settle(
  db: Db,
  run: SqlRun,
  action: SqlAction,
  known: {
    attempt: number;
    outcome: SettleOutcome;
    source?: 'worker' | 'lookup' | 'person';
    /** The worker's own epoch. Default null: not the owner. */
    epoch?: number | null;
    backoffMs?: number;
    askedAt?: Date | null;
    receiptId?: string;
  },
): Promise<Settlement> {
  const proof = ['succeeded', 'failed', 'abandoned'].includes(known.outcome) ? NOISE : null;
  return settleAction(db, {
    tenant: run.tenant,
    runId: run.id,
    actionId: action.id,
    source: 'worker',
    receiptId: randomUUID(),
    sealedReceipt: proof,
    sealedResult: proof,
    ...known,
  });
}

export async function release(
  db: Db,
  run: SqlRun,
  options: { epoch?: number; failure?: string | null; maxAttempts?: number } = {},
): Promise<string | null> {
  const failure = options.failure ?? null;
  const row = await one<{ release_run: string | null }>(db, 'release_run', [
    run.tenant,
    run.id,
    options.epoch ?? run.epoch,
    failure === null ? null : 'TEST',
    0,
    failure,
    options.maxAttempts ?? 5,
    failure === null,
  ]);
  return row.release_run;
}

export async function finish(db: Db, run: SqlRun, epoch = run.epoch): Promise<boolean> {
  const { finished } = (await callStep(db, 'finish_runs', {
    tenant: run.tenant,
    run: run.id,
    epoch,
    status: 'completed',
    sealed_output: NOISE,
    reason: null,
    usage: {},
    calls: [],
    session: null,
  })) as { finished: boolean };
  return finished;
}

export async function cancel(db: Db, run: SqlRun): Promise<{ outcome: string; in_flight: string[] }> {
  return one(db, 'cancel_run', [run.tenant, run.id, 'bob']);
}

export async function sweep(db: Db, run: SqlRun, patienceMs = 0): Promise<string> {
  return (await one<{ sweep_run: string }>(db, 'sweep_run', [run.tenant, run.id, patienceMs])).sweep_run;
}

async function one<Row>(db: Db, name: string, values: unknown[]): Promise<Row> {
  const [row] = await callFunction<Row>(db, name, values);
  if (row === undefined) throw new Error(`${name} returned no row`);
  return row;
}
