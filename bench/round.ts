/** One round: one side, one backend, one number of worker processes, on a database of its own. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cleanup } from '../lab/cleanup.ts';
import { openDatabase } from '../src/index.ts';
import { postgresCpu, processCpu, redisCpu } from './cpu.ts';
import { type Effect, monotonicMs } from './effects.ts';
import type { Fleet, OpenFleet } from './fleet.ts';
import { type Watch, watchProgress } from './progress.ts';
import { openSafeFleet } from './safe-fleet.ts';
import type { Servers } from './servers.ts';
import { openUnsafeFleet } from './unsafe-fleet.ts';

export type Side = 'safe' | 'unsafe';
export type Backend = 'redis' | 'embedded';

export type RoundOptions = {
  side: Side;
  backend: Backend;
  workers: number;
  concurrency: number;
  /** Runs resumed under the clock. */
  runs: number;
  /** Runs carried before, so that neither side is measured while its code is still interpreted. */
  warmUp: number;
  /** Decisions whose latency is measured afterwards; 0: none. */
  decisions: number;
};

export type CpuSeconds = { workers: number; publisher: number; postgres: number; redis: number };

export type RoundResult = {
  resumesPerSecond: number;
  /** Per 1,000 resumes. Null where there is no /proc. */
  cpu: CpuSeconds | null;
  /** Decision to effect, one per decision, in ms. */
  latenciesMs: number[];
  stateChars: number;
  effects: { runs: number; once: number; missing: number; repeated: number };
};

const DECISIONS_PER_SECOND = 20;
const OPEN: Record<Side, OpenFleet> = { safe: openSafeFleet, unsafe: openUnsafeFleet };

let serial = 0;

export async function runRound(
  cleanup: Cleanup,
  servers: Servers,
  options: RoundOptions,
  observer: Observer = NOBODY,
): Promise<RoundResult> {
  serial += 1;
  const name = `bench_${serial}`;
  const databaseUrl = await servers.createDatabase(name);
  const redisUrl = options.backend === 'redis' ? servers.redisUrl : null;
  try {
    return await cleanup.scope(async (inner) => {
      const { workers, concurrency } = options;
      const fleet = await OPEN[options.side](inner, { databaseUrl, redisUrl, workers, concurrency });
      return measure(servers, { fleet, databaseUrl, redisUrl, observer }, options);
    });
  } finally {
    await servers.dropDatabase(name);
  }
}

type Subject = { fleet: Fleet; databaseUrl: string; redisUrl: string | null; observer: Observer };

/** Looks closer at the measured part than a bench may: see profile.ts. */
export type Observer = {
  begin(subject: Omit<Subject, 'observer'>): Promise<void>;
  end(subject: Omit<Subject, 'observer'>): Promise<void>;
  /** All is done and the database still there. */
  after(
    subject: Omit<Subject, 'observer'>,
    decidedAtMs: readonly number[],
    effects: readonly Effect[],
  ): Promise<void>;
};

const nothing = async (): Promise<void> => undefined;
const NOBODY: Observer = { begin: nothing, end: nothing, after: nothing };

async function measure(servers: Servers, subject: Subject, options: RoundOptions): Promise<RoundResult> {
  const { fleet } = subject;
  const watch = watchProgress(fleet.workers, [fleet.publisher]);
  const warmUp = refs('warm', options.warmUp);
  const timed = refs('run', options.runs);
  const decided = refs('late', options.decisions);

  await fleet.start(warmUp);
  await watch.until('paused', warmUp.length);
  await fleet.prepare(warmUp);
  await fleet.publish();
  await watch.until('completed', warmUp.length);

  // Whatever is decided later is started now, so that nothing but resumes happens while something is measured.
  await fleet.start([...timed, ...decided]);
  await watch.until('paused', warmUp.length + timed.length + decided.length);
  const stateChars = await fleet.stateSize(timed[0] ?? '');
  await fleet.prepare(timed);
  await settleDatabase(subject.databaseUrl);
  const { resumesPerSecond, cpu } = await underTheClock(servers, subject, watch, warmUp.length, timed.length);
  const startedAt = await decideSteadily(fleet, decided);
  await watch.until('completed', warmUp.length + timed.length + decided.length);

  const effects = (
    await Promise.all(fleet.workers.map((worker) => worker.call<Effect[]>('takeEffects')))
  ).flat();
  await subject.observer.after(subject, startedAt, effects);
  const at = new Map(effects.map(({ ref, atMs }) => [ref, atMs]));
  return {
    resumesPerSecond,
    cpu,
    stateChars,
    latenciesMs: decided.map((ref, index) => (at.get(ref) ?? Number.NaN) - (startedAt[index] ?? 0)),
    effects: tally([...warmUp, ...timed, ...decided], effects),
  };
}

function refs(kind: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${kind}-${String(index).padStart(6, '0')}`);
}

/** Statistics as autovacuum would have them by then, and no checkpoint of the preparation's in the measured time. */
async function settleDatabase(databaseUrl: string): Promise<void> {
  const admin = openDatabase({ url: databaseUrl, role: null, max: 1 });
  try {
    await admin.pool.query('vacuum analyze');
    await admin.pool.query('checkpoint');
  } finally {
    await admin.close();
  }
}

async function underTheClock(
  servers: Servers,
  subject: Subject,
  watch: Watch,
  before: number,
  runs: number,
): Promise<Pick<RoundResult, 'resumesPerSecond' | 'cpu'>> {
  await subject.observer.begin(subject);
  const cpuBefore = await readCpu(servers, subject);
  const from = monotonicMs();
  const published = subject.fleet.publish();
  const to = await watch.until('completed', before + runs);
  const cpuAfter = await readCpu(servers, subject);
  await published;
  await subject.observer.end(subject);
  const per1000 = (key: keyof CpuSeconds) => ((cpuAfter[key] - cpuBefore[key]) / runs) * 1_000;
  return {
    resumesPerSecond: runs / ((to - from) / 1_000),
    cpu:
      process.platform === 'linux'
        ? {
            workers: per1000('workers'),
            publisher: per1000('publisher'),
            postgres: per1000('postgres'),
            redis: per1000('redis'),
          }
        : null,
  };
}

async function readCpu(servers: Servers, { fleet, redisUrl }: Subject): Promise<CpuSeconds> {
  const workers = await Promise.all(fleet.workers.map((worker) => processCpu(worker.pid)));
  return {
    workers: workers.reduce((sum, seconds) => sum + seconds, 0),
    publisher: await processCpu(fleet.publisher.pid),
    postgres: await postgresCpu(servers.postgresPid),
    redis: redisUrl === null ? 0 : await redisCpu(redisUrl),
  };
}

/** Decides on a fixed schedule, whatever the answers take (no coordinated omission). Returns when each was started. */
async function decideSteadily(fleet: Fleet, decided: readonly string[]): Promise<number[]> {
  const startedAt: number[] = [];
  const answers: Promise<void>[] = [];
  const [first] = decided;
  if (first === undefined) {
    return startedAt;
  }
  await sleep(200);
  const from = monotonicMs();
  for (const [index, ref] of decided.entries()) {
    await sleep(from + (index * 1_000) / DECISIONS_PER_SECOND - monotonicMs());
    startedAt.push(monotonicMs());
    answers.push(fleet.decide(ref));
  }
  await Promise.all(answers);
  return startedAt;
}

function tally(expected: readonly string[], effects: readonly Effect[]): RoundResult['effects'] {
  const counts = new Map(expected.map((ref) => [ref, 0]));
  for (const { ref } of effects) {
    counts.set(ref, (counts.get(ref) ?? 0) + 1);
  }
  const all = [...counts.values()];
  return {
    runs: expected.length,
    once: all.filter((count) => count === 1).length,
    missing: all.filter((count) => count === 0).length,
    repeated: all.filter((count) => count > 1).length,
  };
}
