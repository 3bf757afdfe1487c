/** The matrix: clean runs list the points, schedules run in lanes side by side, outcomes are kept as they come. */
import type { Cleanup } from '../lab/cleanup.ts';
import type { TraceLine } from '../src/failpoints.ts';
import type { Lane } from './lane.ts';
import { openLane } from './lane.ts';
import { paceOf } from './pace.ts';
import { newPoints, type Point, planOf, pointsOf, reduced } from './plan.ts';
import { ROLES } from './role-process.ts';
import { type Outcome, runSchedule } from './run-schedule.ts';
import type { Scenario } from './scenarios.ts';
import { nameOf, type Schedule } from './schedule.ts';
import type { Servers } from './servers.ts';

export type MatrixOptions = {
  scenarios: readonly Scenario[];
  parallel: number;
  seed: number;
  /** Of the plan's schedules; the rest is left out. Infinity: all. `reduced`: the part that belongs to `npm test`. */
  limit: number | 'reduced';
  pace: number;
  /** Run just these, without clean runs. */
  only: readonly Schedule[];
  /** Names of schedules that an earlier call has finished. */
  done: ReadonlySet<string>;
  onOutcome: (outcome: Outcome, progress: { finished: number; planned: number }) => void;
};

export type MatrixResult = { points: Point[]; outcomes: Outcome[]; planned: number };

export async function runMatrix(
  cleanup: Cleanup,
  servers: Servers,
  options: MatrixOptions,
): Promise<MatrixResult> {
  const pool = new LanePool(cleanup, servers, options.pace);
  const points: Point[] = [];
  const outcomes: Outcome[] = [];
  let planned = options.only.length;
  const keep = (outcome: Outcome): void => {
    outcomes.push(outcome);
    options.onOutcome(outcome, { finished: outcomes.length, planned });
  };
  try {
    if (options.only.length > 0) {
      await inLanes(pool, options.parallel, options.only, keep);
      return { points, outcomes, planned };
    }
    const clean = options.scenarios.map(({ name }) => cleanSchedule(name));
    const traces = new Map<string, TraceLine[]>();
    await inLanes(pool, options.parallel, clean, (outcome) => {
      traces.set(outcome.schedule.scenario, outcome.trace);
      keep(outcome);
    });
    for (const scenario of options.scenarios) {
      points.push(...pointsFor(scenario, options.scenarios[0] ?? scenario, traces));
    }
    const plan = planOf(points, options.seed);
    const wanted = options.limit === 'reduced' ? reduced(plan) : plan.slice(0, options.limit);
    planned = clean.length + wanted.length;
    const due = wanted.filter((schedule) => !options.done.has(nameOf(schedule)));
    await inLanes(pool, options.parallel, due, keep);
    return { points, outcomes, planned };
  } finally {
    await pool.close();
  }
}

/** Api, relay and reconciler see ids and states: to them, one workflow's run is like another's. */
const BLIND = ['api', 'relay', 'reconciler'] as const;

function pointsFor(
  { name, startsLike }: Scenario,
  first: Scenario,
  traces: ReadonlyMap<string, TraceLine[]>,
): Point[] {
  const trace = traces.get(name) ?? [];
  const like = traces.get(startsLike ?? first.name);
  return like === undefined || like === trace
    ? pointsOf(name, trace)
    : newPoints(name, trace, { trace: like, roles: startsLike === undefined ? BLIND : ROLES });
}

export function cleanSchedule(scenario: string): Schedule {
  return { scenario, role: 'worker', operation: 'nothing', occurrence: 1, fault: 'none' };
}

async function inLanes(
  pool: LanePool,
  parallel: number,
  schedules: readonly Schedule[],
  onOutcome: (outcome: Outcome) => void,
): Promise<void> {
  const waiting = [...schedules];
  const work = async (index: number): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const first = await attempt(await pool.lane(index), next);
      onOutcome(isSlow(first) ? await again(pool, index, first) : first);
      if (first.violations.length > 0) {
        // What went wrong may have left something that goes on: the next schedule starts in a clean room.
        await pool.discard(index);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(parallel, schedules.length) }, (_, index) => work(index)));
}

/** Nothing forbidden happened, but the run was not carried on in time. */
function isSlow({ violations }: Outcome): boolean {
  return violations.length > 0 && violations.every((violation) => violation.startsWith('I9'));
}

/**
 * On a machine whose cores are taken, a process can miss every deadline of a lane again and again without anything
 * being wrong. A run that did not recover is therefore given a second try with far longer deadlines, and counted.
 */
async function again(pool: LanePool, index: number, slow: Outcome): Promise<Outcome> {
  await pool.discard(index);
  const lane = await pool.lane(index, SECOND_TRY);
  return { ...(await attempt(lane, slow.schedule)), retried: true };
}

const SECOND_TRY = 4;

/** A driver that breaks down has proved nothing: that is reported like a violation, never skipped. */
async function attempt(lane: Lane, schedule: Schedule): Promise<Outcome> {
  const limitMs = 3 * lane.place.pace.boundMs;
  let timer: NodeJS.Timeout | undefined;
  const stuck = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came of it in ${limitMs} ms`)), limitMs);
  });
  try {
    return await Promise.race([runSchedule(lane, schedule), stuck]);
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { schedule, fired: false, violations: [`driver: ${text}`], tookMs: 0, trace: [], retried: false };
  } finally {
    clearTimeout(timer);
  }
}

class LanePool {
  readonly #cleanup: Cleanup;
  readonly #servers: Servers;
  readonly #pace: number;
  readonly #lanes = new Map<number, Lane>();

  constructor(cleanup: Cleanup, servers: Servers, pace: number) {
    this.#cleanup = cleanup;
    this.#servers = servers;
    this.#pace = pace;
  }

  /** @param stretch of the deadlines, for a lane that is opened by this call. */
  async lane(index: number, stretch = 1): Promise<Lane> {
    const pace = paceOf(this.#pace * stretch);
    const lane = this.#lanes.get(index) ?? (await openLane(this.#cleanup, this.#servers, { index, pace }));
    this.#lanes.set(index, lane);
    return lane;
  }

  async discard(index: number): Promise<void> {
    const lane = this.#lanes.get(index);
    this.#lanes.delete(index);
    await lane?.close();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#lanes.keys()].map((index) => this.discard(index)));
  }
}
