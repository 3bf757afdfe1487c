/**
 * One process of a lane's fleet. It starts with no role: all its code is loaded, and the driver tells it what to be
 * when somebody is missing. Everything that can go wrong goes wrong at its gate (`src/failpoints.ts`).
 */
import { randomUUID } from 'node:crypto';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { releaseClient } from '../examples/release-service/index.ts';
import { answerCalls } from '../lab/answer.ts';
import { resolveAction } from '../src/actions/index.ts';
import { decide, revoke, showApproval } from '../src/approvals/index.ts';
import { listDeadLetters, replay } from '../src/dead-letters/index.ts';
import { arm, type PlannedFault, playRole } from '../src/failpoints.ts';
import { cancelRun, createLog, KeyRing, openDatabase, runReconciler, runRelay, start } from '../src/index.ts';
import { type Running, runResumeWorker } from '../src/processes/index.ts';
import { openResumeQueue } from '../src/queue/index.ts';
import type { Pace } from './pace.ts';
import { matrixWorkflows } from './workflows.ts';

export const ROLES = ['api', 'relay', 'worker', 'reconciler'] as const;
export type Role = (typeof ROLES)[number];

/** Where a lane's fleet works. */
export type Place = {
  databaseUrl: string;
  redisUrl: string | null;
  providerUrl: string;
  /** Key specs. */
  keys: { state: string; review: string };
  pace: Pace;
};

export type ArmOptions = {
  fault: PlannedFault | null;
  traceFile: string | null;
  /** For the fault `none`: publish another copy of the resume job of this tenant's run. */
  duplicateFor: string | null;
};

export type StartCall = {
  tenant: string;
  workflow: string;
  input: string;
  key: string;
  session: string | null;
};
export type DecideCall = { tenant: string; approvalId: string; verdict: 'approve' | 'reject' };
export type ResolveCall = {
  tenant: string;
  actionId: string;
  attempt: number;
  verdict: 'succeeded' | 'not_executed';
};

type Part = { role: Role; place: Place; running: Running };

/** The person of every scenario. */
const SUBJECT = 'alice';

const log = createLog('crash-matrix', process.env.LOG_LEVEL ?? 'silent');
let part: Part | null = null;

async function beginRole(role: Role, place: Place): Promise<Running> {
  const { databaseUrl, redisUrl, pace } = place;
  const keys = KeyRing.parse(place.keys);
  const common = { databaseUrl, keys, log, allowForgetful: true };
  const workflows = () => matrixWorkflows(releaseClient(place.providerUrl), pace);
  switch (role) {
    case 'api':
      return beginApi(place, KeyRing.parse({ review: place.keys.review }));
    case 'relay':
      return runRelay({ databaseUrl, redisUrl, log, idleMs: pace.relayIdleMs, claimMs: pace.claimMs });
    case 'worker': {
      const { ttlMs, lockMs, retryDelayMs } = pace;
      return runResumeWorker({
        ...common,
        redisUrl,
        workflows: workflows(),
        ttlMs,
        lockMs,
        retryDelayMs,
        concurrency: 4,
        drainMs: pace.ttlMs / 3,
      });
    }
    case 'reconciler': {
      const { reconcileMs, sweepMs, patienceMs, claimMs: leaseMs } = pace;
      return runReconciler({ ...common, workflows: workflows(), reconcileMs, sweepMs, patienceMs, leaseMs });
    }
  }
}

let api: { db: ReturnType<typeof openDatabase>; keys: KeyRing } | null = null;

function beginApi(place: Place, keys: KeyRing): Running {
  const db = openDatabase({ url: place.databaseUrl, role: 'countersign_api', max: 3 });
  api = { db, keys };
  return {
    async stop() {
      api = null;
      await db.close();
    },
  };
}

function asApi(): { db: ReturnType<typeof openDatabase>; keys: KeyRing } {
  if (api === null) {
    throw new Error('this process is not the api');
  }
  return api;
}

/** As an at-least-once queue would, at the worst moment. */
async function publishDuplicate(place: Place, tenant: string): Promise<void> {
  const db = openDatabase({ url: place.databaseUrl, role: null, max: 1 });
  const queue = openResumeQueue({
    redisUrl: place.redisUrl,
    postgresUrl: place.databaseUrl,
    onError: () => undefined,
  });
  try {
    const { rows } = await db.pool.query<{ id: string; wake: number }>(
      'select id, wake from countersign.runs where tenant = $1',
      [tenant],
    );
    await queue.publish(rows.map(({ id, wake }) => ({ id: randomUUID(), job: { tenant, runId: id, wake } })));
  } finally {
    await queue.close();
    await db.close();
  }
}

/** What is still reachable after a full collection: a heap that nobody has swept says nothing about leaks. */
function liveBytes(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

async function endRole(): Promise<void> {
  const ending = part;
  part = null;
  await ending?.running.stop();
  arm(null);
}

answerCalls(
  {
    async play({ role, place }: { role: Role; place: Place }): Promise<void> {
      playRole(role);
      part = { role, place, running: await beginRole(role, place) };
    },
    rest: endRole,
    /** Never answered: ends with an error when the process ends, however it ends. */
    live: () => new Promise(() => undefined),
    arm({ fault, traceFile, duplicateFor }: ArmOptions): void {
      const place = part?.place;
      arm(fault, {
        traceFile,
        onFired: async () => {
          if (duplicateFor !== null && place !== undefined) {
            await publishDuplicate(place, duplicateFor);
          }
        },
      });
    },
    memory: liveBytes,

    async start({ tenant, workflow, input, key, session }: StartCall): Promise<string> {
      const { db, keys } = asApi();
      const started = await start(db, keys, {
        tenant,
        workflow,
        input,
        key,
        requestedBy: SUBJECT,
        session: session ?? undefined,
      });
      return started.runId;
    },
    async decide({ tenant, approvalId, verdict }: DecideCall): Promise<string> {
      const { db, keys } = asApi();
      const { fingerprint } = await showApproval(db, keys, { tenant, approvalId });
      const words = verdict === 'reject' ? 'not on a Friday' : undefined;
      const decided = await decide(db, keys, {
        tenant,
        approvalId,
        verdict,
        subject: SUBJECT,
        fingerprint,
        words,
      });
      return decided.outcome;
    },
    async replay({ tenant }: { tenant: string }): Promise<void> {
      const { db } = asApi();
      for (const { id } of await listDeadLetters(db, tenant)) {
        await replay(db, { tenant, id, subject: SUBJECT, reason: 'the model is back' });
      }
    },
    revoke({ tenant, approvalId }: { tenant: string; approvalId: string }) {
      return revoke(asApi().db, { tenant, approvalId, subject: SUBJECT });
    },
    cancel({ tenant, runId }: { tenant: string; runId: string }) {
      return cancelRun(asApi().db, { tenant, runId, subject: SUBJECT });
    },
    resolve({ tenant, actionId, attempt, verdict }: ResolveCall) {
      const { db, keys } = asApi();
      return resolveAction(db, keys, {
        tenant,
        actionId,
        attempt,
        verdict,
        subject: SUBJECT,
        evidence: `the provider's own log says ${verdict}`,
      });
    },
  },
  endRole,
);
