/**
 * Runs one schedule in a lane: arms the fault, plays the story, waits until nobody can do anything more, and has the
 * outcome checked. A tenant of its own keeps schedules apart.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Violation } from '../src/checker/index.ts';
import type { TraceLine } from '../src/failpoints.ts';
import { inject } from './inject.ts';
import { judge } from './judge.ts';
import type { Lane } from './lane.ts';
import type { Member } from './member.ts';
import { ROLES, type Role } from './role-process.ts';
import { type Scenario, scenarioNamed } from './scenarios.ts';
import type { Schedule } from './schedule.ts';
import { look, playStory } from './story.ts';

export type Outcome = {
  schedule: Schedule;
  /** False: the point was not reached this time, so nothing went wrong. */
  fired: boolean;
  violations: Violation[];
  tookMs: number;
  /** Of every role, when nothing was to go wrong. */
  trace: TraceLine[];
  /** The second try of a schedule that did not recover in time. */
  retried: boolean;
};

export async function runSchedule(lane: Lane, schedule: Schedule): Promise<Outcome> {
  const started = performance.now();
  const scenario = scenarioNamed(schedule.scenario);
  const tenant = `t-${randomBytes(6).toString('hex')}`;
  if (scenario.provider !== undefined) {
    await lane.provider.client.fault(scenario.provider);
  }
  const crew = await crewOf(lane, scenario);
  const recovered = new AbortController();
  const traced = schedule.fault === 'none';
  const injection = traced
    ? null
    : await inject(lane, schedule, crew[schedule.role], { tenant, recovered: recovered.signal });
  if (traced) {
    await Promise.all(ROLES.map((role) => crew[role].arm({ fault: null, duplicateFor: null })));
  }
  const changes = changeFleet(lane, scenario, crew, { tenant, recovered: recovered.signal });
  const story = await playStory(lane, scenario, tenant);
  recovered.abort();
  await injection?.over();
  await changes;
  const violations = await judge(lane, scenario, tenant, story);
  const trace = traced ? ROLES.flatMap((role) => crew[role].readTrace()) : [];
  await putBack(lane, scenario);
  return {
    schedule,
    fired: injection?.fired() ?? true,
    violations,
    tookMs: Math.round(performance.now() - started),
    trace,
    retried: false,
  };
}

/** The members that the schedule begins with. Those that are still to join have no role yet. */
type Crew = Readonly<Record<Role, Member>>;

/** They announce what they can carry, so that a run can wait for them. */
const JOINING = ['worker', 'reconciler'] as const;

async function crewOf(lane: Lane, scenario: Scenario): Promise<Crew> {
  const { fleet } = lane;
  const crew = {
    api: fleet.one('api'),
    relay: fleet.one('relay'),
    worker: fleet.one('worker'),
    reconciler: fleet.one('reconciler'),
  };
  if (scenario.fleet === 'joins') {
    await Promise.all(JOINING.map((role) => fleet.vacate(role)));
  }
  return crew;
}

/** What changes in the fleet as part of the scenario, whatever else goes wrong. */
async function changeFleet(
  lane: Lane,
  scenario: Scenario,
  crew: Crew,
  { tenant, recovered }: { tenant: string; recovered: AbortSignal },
): Promise<void> {
  const { fleet, place } = lane;
  const until = async (status: string): Promise<void> => {
    while (!recovered.aborted && (await look(lane, tenant))?.status !== status) {
      await sleep(place.pace.stepMs);
    }
  };
  if (scenario.fleet === 'joins') {
    await until('parked');
    await Promise.all(JOINING.map((role) => fleet.occupy(crew[role], role)));
  }
  if (scenario.fleet === 'leaves') {
    await until('running');
    await sleep(place.pace.ttlMs / 3);
    // A frozen one cannot leave; a killed one has left.
    const leaving = fleet.vacate('worker').catch(() => undefined);
    await fleet.add('worker');
    await leaving;
  }
}

/** Leaves the lane as the next schedule expects it. */
async function putBack(lane: Lane, scenario: Scenario): Promise<void> {
  await lane.fleet.restore();
  await Promise.all(ROLES.map((role) => lane.fleet.one(role).disarm()));
  if (scenario.provider !== undefined) {
    await lane.provider.client.clearFaults();
  }
  await lane.forgetJobs();
}
