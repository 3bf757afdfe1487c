import { randomUUID } from 'node:crypto';
import { Suspended } from '../actions/index.ts';
import { addUsage, runSegment } from '../agents-sdk/index.ts';
import { CountersignError, type ErrorCode, isCountersignError } from '../errors.ts';
import type { JournalEnvironment } from '../journal/index.ts';
import type { Hold, HoldKeeper } from '../leases/index.ts';
import type { Log } from '../log.ts';
import type { Database } from '../postgres/index.ts';
import type { Leases, ResumeJob, Verdict } from '../queue/index.ts';
import type { KeyRing } from '../seal/index.ts';
import type { Capabilities, Registry } from '../workflows/index.ts';
import { type Claim, type ClaimedRun, claimRun } from './claim.ts';
import { handBack, isUnavailable } from './hand-back.ts';
import { complete, countWasted, fail, park, pause, quarantine, release } from './outcome.ts';
import { makeSegment, openSegment } from './segment.ts';

/** What became of deliveries, counted: duplicates, late and stale ones are harmless and visible. */
export type DeliveryCounts = Record<
  | 'claimed'
  | 'stale'
  | 'held'
  | 'cannot_carry'
  | 'dead_lettered'
  | 'unknown'
  | 'malformed'
  | 'paused'
  | 'completed'
  | 'failed'
  | 'suspended'
  | 'released'
  | 'parked'
  | 'quarantined'
  | 'lost',
  number
>;

export function newCounts(): DeliveryCounts {
  return {
    claimed: 0,
    stale: 0,
    held: 0,
    cannot_carry: 0,
    dead_lettered: 0,
    unknown: 0,
    malformed: 0,
    paused: 0,
    completed: 0,
    failed: 0,
    suspended: 0,
    released: 0,
    parked: 0,
    quarantined: 0,
    lost: 0,
  };
}

export type WorkerEnvironment = {
  db: Database;
  keys: KeyRing;
  leases: Leases;
  holds: HoldKeeper;
  registry: Registry;
  capabilities: Capabilities;
  log: Log;
  workerId: string;
  counts: DeliveryCounts;
  settings: { ttlMs: number; maxAttempts: number; maxSegmentMs: number; retryDelayMs: number };
};

/**
 * One delivery, from the job to its acknowledgement: the verdict is given only after the next durable state is
 * committed (I8). An error that escapes means that Postgres gave no answer for a long time; the job then comes back.
 */
export async function carryDelivery(env: WorkerEnvironment, job: ResumeJob): Promise<Verdict> {
  const leaseHolder = randomUUID();
  const lease = env.leases.acquire(job.tenant, job.runId, leaseHolder, env.settings.ttlMs);
  const asked = performance.now();
  try {
    const claim = await claimAdvised(env, job, lease);
    env.counts[claim.outcome] += 1;
    if (claim.outcome === 'held') {
      return { kind: 'delay', ms: Math.min(Math.max(claim.waitMs, 100), env.settings.ttlMs) };
    }
    if (claim.outcome === 'cannot_carry') {
      return { kind: 'delay', ms: 1_000 };
    }
    if (claim.outcome !== 'claimed') {
      return { kind: 'done' };
    }
    if ((await lease) === 'busy') {
      await env.leases.seize(job.tenant, job.runId, leaseHolder, env.settings.ttlMs);
    }
    const hold = env.holds.add(
      { tenant: job.tenant, runId: job.runId, epoch: claim.run.epoch, leaseHolder },
      asked,
    );
    try {
      await carryRun(env, claim.run, hold);
    } catch (error) {
      if (!isUnavailable(error)) {
        throw error;
      }
      const released = await handBack(env.db, claim.run, env.settings.maxAttempts);
      count(env, released ? 'released' : 'lost', claim.run, { code: 'POSTGRES_UNAVAILABLE' });
    } finally {
      env.holds.remove(hold);
    }
    return { kind: 'done' };
  } finally {
    if ((await lease) !== 'unknown') {
      await env.leases.release(job.tenant, job.runId, leaseHolder);
    }
  }
}

/**
 * Claims without waiting for the lease: it is asked for at the same time, and its advice matters only where a hold has
 * run out. Then a lease that somebody else keeps speaks for a holder who lives and could not renew in Postgres.
 */
async function claimAdvised(
  env: WorkerEnvironment,
  job: ResumeJob,
  lease: ReturnType<Leases['acquire']>,
): Promise<Claim> {
  const claim = (takeOver: boolean) =>
    claimRun(env.db, {
      ...job,
      workerId: env.workerId,
      ttlMs: env.settings.ttlMs,
      maxAttempts: env.settings.maxAttempts,
      takeOver,
      capabilities: env.capabilities,
    });
  const first = await claim(false);
  return first.outcome === 'held' && first.waitMs === 0 && (await lease) !== 'busy' ? claim(true) : first;
}

/** Runs the claimed segment and commits what became of it. */
async function carryRun(env: WorkerEnvironment, run: ClaimedRun, hold: Hold): Promise<void> {
  const owner = { db: env.db, keys: env.keys, run };
  let journal: JournalEnvironment | null = null;
  try {
    const registered = env.registry.get(`${run.workflow}@${run.version}`);
    if (registered === undefined) {
      throw new Error('claimed a run of a workflow that is not loaded');
    }
    const opened = await openSegment(env, run, registered);
    if (opened === 'undecided') {
      await release(owner, {
        reason: null,
        delayMs: 0,
        failure: null,
        maxAttempts: env.settings.maxAttempts,
      });
      return;
    }
    const segment = makeSegment(env, run, registered, hold, opened);
    journal = segment.journal;
    const result = await withinLimit(env.settings.maxSegmentMs, hold, (signal) =>
      runSegment({
        agent: registered.agent,
        provider: registered.provider,
        start: opened.start,
        port: segment.port,
        session: opened.session?.session ?? null,
        maxTurns: registered.workflow.maxTurns,
        signal,
      }),
    );
    const change = opened.session?.change() ?? null;
    const stored =
      result.kind === 'final'
        ? await complete(owner, result, journal.unstored, change)
        : (await pause(owner, registered, opened.ids, journal.actions, result, change)) !== null;
    await noteWasted(env, owner, journal, stored);
    count(env, stored ? (result.kind === 'final' ? 'completed' : 'paused') : 'lost', run);
  } catch (error) {
    const ended = await settleFailure(env, owner, error, journal);
    if (journal !== null) {
      await noteWasted(env, owner, journal, ended);
    }
  }
}

/** The journal's own rows are paid and kept; a final answer that was not stored with its end is asked for again. */
async function noteWasted(
  env: WorkerEnvironment,
  owner: Parameters<typeof fail>[0],
  journal: JournalEnvironment,
  stored: boolean,
): Promise<void> {
  const lost = stored ? [] : journal.unstored;
  const wasted = lost.reduce((sum, { usage }) => addUsage(sum, usage), journal.wasted);
  await countWasted(owner, wasted).catch((error: unknown) => {
    env.log.warn({ run: owner.run.runId, err: error }, 'what model calls cost for nothing was not counted');
  });
}

/** How long the SDK may take to give up after its signal, before the segment is left behind. */
const GRACE_MS = 5_000;

/**
 * A segment has a maximum length: a plain tool that never returns must not hold its run for ever. At the limit model
 * calls are aborted and nothing new starts; a little later the segment is given up, whatever its promise does.
 */
async function withinLimit<T>(
  limitMs: number,
  hold: Hold,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const tooLong = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      hold.lost.abort(new Error('SEGMENT_TOO_LONG'));
      timer = setTimeout(
        () =>
          reject(
            new CountersignError(
              'SEGMENT_TOO_LONG',
              `The segment lasted more than ${limitMs} ms and was given up.`,
              { details: { limitMs } },
            ),
          ),
        GRACE_MS,
      );
    }, limitMs);
  });
  try {
    return await Promise.race([work(hold.lost.signal), tooLong]);
  } finally {
    clearTimeout(timer);
  }
}

/** What a thrown code means for the run. Everything not named here is transient: run the segment again, later. */
const MEANING: Partial<Record<ErrorCode, 'quarantine' | 'park' | 'fail' | 'diverged'>> = {
  SEAL_BROKEN: 'quarantine',
  DIGEST_MISMATCH: 'quarantine',
  CALL_NOT_IN_LEDGER: 'quarantine',
  KEY_MISSING: 'park',
  TOOL_NOT_GUARDED: 'park',
  STATE_SCHEMA_UNSUPPORTED: 'park',
  SEAL_VERSION_UNSUPPORTED: 'park',
  CONTEXT_INVALID: 'fail',
  RUN_FAILED: 'fail',
  ARGUMENTS_NOT_STABLE: 'fail',
  ACTION_INVALID: 'fail',
  NOT_PLAIN_JSON: 'fail',
  HOSTED_TOOL_REFUSED: 'fail',
  SERVER_HELD_CONVERSATION: 'fail',
  REPLAY_DIVERGED: 'diverged',
};

/** @returns whether the run has ended with this, and its journal's last answers with it. */
async function settleFailure(
  env: WorkerEnvironment,
  owner: Parameters<typeof fail>[0],
  error: unknown,
  journal: JournalEnvironment | null,
): Promise<boolean> {
  const { run } = owner;
  const { maxAttempts, retryDelayMs } = env.settings;
  if (error instanceof Suspended) {
    const lost = error.code === 'LEASE_LOST';
    if (!error.released) {
      await release(owner, { reason: null, delayMs: 0, failure: null, maxAttempts });
    }
    // Not trusted any more is not taken over yet: who could not renew a hold in time may give it back.
    const released = lost && (await handBack(env.db, run, maxAttempts));
    count(env, released ? 'released' : lost ? 'lost' : 'suspended', run, { code: error.code });
    return false;
  }
  const code: ErrorCode | 'UNEXPECTED' = isCountersignError(error) ? error.code : 'UNEXPECTED';
  if (isUnavailable(error)) {
    throw error;
  }
  env.log.warn({ run: run.runId, epoch: run.epoch, code, err: error }, 'a segment ended with an error');
  switch (code === 'UNEXPECTED' ? undefined : MEANING[code]) {
    case 'quarantine':
      await quarantine(owner, code);
      count(env, 'quarantined', run, { code });
      return false;
    case 'park':
      await park(owner, code);
      count(env, 'parked', run, { code });
      return false;
    case 'fail': {
      const failed = await fail(owner, code, journal);
      count(env, failed ? 'failed' : 'lost', run, { code });
      return failed;
    }
    case 'diverged':
      await release(owner, { reason: code, delayMs: 0, failure: 'diverged', maxAttempts });
      count(env, 'released', run, { code });
      return false;
    case undefined: {
      const delayMs = Math.min(60_000, retryDelayMs * 2 ** (run.attempt - 1));
      const status = await release(owner, {
        reason: code,
        delayMs,
        failure: 'transient_exhausted',
        maxAttempts,
      });
      count(env, status === null ? 'lost' : 'released', run, { code, status });
      return false;
    }
  }
}

function count(
  env: WorkerEnvironment,
  what: keyof DeliveryCounts,
  run: ClaimedRun,
  more: Record<string, unknown> = {},
): void {
  env.counts[what] += 1;
  env.log.info({ run: run.runId, epoch: run.epoch, segment: run.segment, ...more }, `run ${what}`);
}
