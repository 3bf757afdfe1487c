/**
 * The soak: a fleet at work for a long time while processes are killed, jobs are delivered twice or forgotten, and
 * connections are dropped. Exit code 1 when the checker finds a violation, or when a process's memory grows.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type Lane, openLane } from '../crash-matrix/lane.ts';
import { paceOf } from '../crash-matrix/pace.ts';
import { randomFrom } from '../crash-matrix/plan.ts';
import { type Backend, startServers } from '../crash-matrix/servers.ts';
import { type Cleanup, withCleanup } from '../lab/cleanup.ts';
import { stirUp } from './chaos.ts';
import { Crowd } from './crowd.ts';
import { MemoryWatch } from './memory.ts';
import { codeOf, type Result, tell } from './report.ts';
import { Verdict } from './verdict.ts';

const USAGE = `usage: npm run soak -- [options]

  --runs N         runs to start (default 20000)
  --minutes M      start no more after M minutes
  --backend NAME   redis (default) or embedded (BullMQ on Postgres)
  --width N        runs under way at once (default 40)
  --chaos-ms N     average time between two events (default 1500)
  --seed S         of everything that is chosen at random (default 1)
  --json           one JSON object on stdout
`;

type Settings = {
  runs: number;
  minutes: number;
  backend: Backend;
  width: number;
  chaosMs: number;
  seed: number;
  json: boolean;
};

/** Deadlines of seconds: short enough that they pass, long enough for a busy machine. */
const PACE = 5;
const SAMPLE_MS = 3_000;
/** What the last runs are given to end when nothing goes wrong any more. */
const LAST_MS = 120_000;

async function soak(cleanup: Cleanup, settings: Settings): Promise<Result> {
  const started = performance.now();
  const servers = await startServers(cleanup, settings.backend);
  const lane = await openLane(cleanup, servers, { index: 0, pace: paceOf(PACE) });
  cleanup.defer(() => lane.close());
  for (const role of ['worker', 'relay', 'reconciler', 'api'] as const) {
    await lane.fleet.add(role);
  }
  const random = randomFrom(settings.seed);
  const [enough, calm, over] = [new AbortController(), new AbortController(), new AbortController()];
  const timer = setTimeout(() => enough.abort(), settings.minutes * 60_000);
  const crowd = new Crowd(lane, { ...settings, random, stopping: enough.signal });
  const verdict = new Verdict(lane, crowd);
  const memory = new MemoryWatch(lane);
  const chaos = stirUp(lane, { random, every: settings.chaosMs, over: calm.signal });
  const deciding = crowd.decideAll(over.signal);
  const watching = watch(lane, crowd, verdict, memory, over.signal);
  await crowd.startAll();
  clearTimeout(timer);
  calm.abort();
  const counts = await chaos;
  const end = performance.now() + LAST_MS;
  while (verdict.checked < crowd.started && performance.now() < end) {
    await sleep(100);
  }
  over.abort();
  await Promise.all([deciding, watching]);
  await verdict.finish();
  return {
    runs: crowd.started,
    checked: verdict.checked,
    seconds: Math.round((performance.now() - started) / 1000),
    ...counts,
    violations: verdict.violations,
    memory: memory.result(),
  };
}

/** Checks what has ended and samples memory, until everything is over. */
async function watch(
  lane: Lane,
  crowd: Crowd,
  verdict: Verdict,
  memory: MemoryWatch,
  over: AbortSignal,
): Promise<void> {
  let ended: Set<string> = new Set();
  let nextSample = 0;
  let told = 0;
  while (!over.aborted) {
    // A look that failed is repeated; one that keeps failing leaves runs unchecked, which is a violation in the end.
    ended = await verdict.checkOnce(ended).catch((error: unknown) => {
      process.stderr.write(`a look failed: ${error instanceof Error ? error.message : String(error)}\n`);
      return ended;
    });
    if (performance.now() > nextSample) {
      nextSample = performance.now() + SAMPLE_MS;
      await memory.sample().catch(() => undefined);
    }
    if (verdict.checked - told >= 1_000) {
      told = verdict.checked;
      process.stderr.write(
        `${crowd.started} started, ${verdict.checked} checked, ${verdict.violations.length} violations, ${lane.fleet.all('worker').length} workers\n`,
      );
    }
    await sleep(500);
  }
}

function readSettings(args: string[]): Settings | null {
  const { values } = parseArgs({
    args,
    options: {
      runs: { type: 'string', default: '20000' },
      minutes: { type: 'string', default: '600' },
      backend: { type: 'string', default: 'redis' },
      width: { type: 'string', default: '40' },
      'chaos-ms': { type: 'string', default: '1500' },
      seed: { type: 'string', default: '1' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    return null;
  }
  if (values.backend !== 'redis' && values.backend !== 'embedded') {
    throw new Error('--backend is redis or embedded');
  }
  const positive = (name: 'runs' | 'minutes' | 'width' | 'chaos-ms' | 'seed'): number => {
    const value = Number(values[name]);
    if (!(value > 0)) throw new Error(`--${name} is a positive number`);
    return value;
  };
  return {
    runs: positive('runs'),
    minutes: positive('minutes'),
    backend: values.backend,
    width: positive('width'),
    chaosMs: positive('chaos-ms'),
    seed: positive('seed'),
    json: values.json,
  };
}

async function main(): Promise<number> {
  const settings = readSettings(process.argv.slice(2));
  if (settings === null) {
    process.stdout.write(USAGE);
    return 0;
  }
  const result = await withCleanup((cleanup) => soak(cleanup, settings));
  process.stdout.write(settings.json ? `${JSON.stringify(result)}\n` : tell(result));
  return codeOf(result);
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    process.stderr.write(`soak: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exit(2);
  },
);
