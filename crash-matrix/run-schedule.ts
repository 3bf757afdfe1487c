/**
 * Runs one schedule in a lane: arms the fault, plays the story, replaces what died, thaws what was frozen, waits until
 * nobody can do anything more, and has the outcome checked. A tenant of its own keeps schedules apart.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TraceLine } from '../src/failpoints.ts';
import { check, type Effect, type Expected, type Violation, type World } from './checker.ts';
import { checkSession, type HistoryItem } from './checker-session.ts';
import { type Facts, readFacts } from './facts.ts';
import type { Lane } from './lane.ts';
import type { Member } from './member.ts';
import { effectsOf, explainAll, openerFor } from './observe.ts';
import { ROLES, type Role } from './role-process.ts';
import { type Scenario, scenarioNamed } from './scenarios.ts';
import { gateFault, type Schedule } from './schedule.ts';
import { look, playStory, type Story } from './story.ts';

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

const LAST_OPERATIONS_MS = 100;

export async function runSchedule(lane: Lane, schedule: Schedule): Promise<Outcome> {
  const started = performance.now();
  const scenario = scenarioNamed(schedule.scenario);
  const tenant = `t-${randomBytes(6).toString('hex')}`;
  if (scenario.provider !== undefined) {
    await lane.provider.client.fault(scenario.provider);
  }
  const traced = schedule.fault === 'none';
  const recovered = new AbortController();
  const vacant = scenario.fleet === 'joins' ? await vacate(lane) : [];
  const memberOf = (role: Role) =>
    vacant.find((place) => place.role === role)?.member ?? lane.fleet.one(role);
  const fault = traced ? null : await armFault(lane, schedule, tenant, memberOf, recovered.signal);
  if (traced) {
    await Promise.all(ROLES.map((role) => memberOf(role).arm({ fault: null, duplicateFor: null })));
  }
  const traces = ROLES.map(memberOf);
  const changes = changeFleet(lane, scenario, tenant, vacant, recovered.signal);
  const story = await playStory(lane, scenario, tenant);
  recovered.abort();
  await fault?.over();
  await changes;
  const violations = await judge(lane, scenario, tenant, story);
  const trace = traced ? traces.flatMap((member) => member.readTrace()) : [];
  await putBack(lane, scenario);
  return {
    schedule,
    fired: fault?.fired() ?? true,
    violations,
    tookMs: Math.round(performance.now() - started),
    trace,
    retried: false,
  };
}

type Vacant = { role: Role; member: Member };

/** Before a run that nobody can carry: the roles that announce themselves are given up, and taken on again later. */
async function vacate(lane: Lane): Promise<Vacant[]> {
  const roles = ['worker', 'reconciler'] as const;
  return Promise.all(roles.map(async (role) => ({ role, member: await lane.fleet.vacate(role) })));
}

/** What changes in the fleet as part of the scenario, whatever else goes wrong. */
async function changeFleet(
  lane: Lane,
  scenario: Scenario,
  tenant: string,
  vacant: readonly Vacant[],
  recovered: AbortSignal,
): Promise<void> {
  const statusIs = async (status: string) => (await look(lane, tenant))?.status === status;
  const until = async (status: string): Promise<void> => {
    while (!recovered.aborted && !(await statusIs(status))) {
      await sleep(lane.place.pace.stepMs);
    }
  };
  if (scenario.fleet === 'joins') {
    await until('parked');
    await Promise.all(vacant.map(({ role, member }) => lane.fleet.occupy(member, role)));
  }
  if (scenario.fleet === 'leaves') {
    await until('running');
    await sleep(lane.place.pace.ttlMs / 3);
    // A frozen one cannot leave; a killed one has left.
    const leaving = lane.fleet.vacate('worker').catch(() => undefined);
    await lane.fleet.add('worker');
    await leaving;
  }
}

/** Arms the one process that is to fail, and stands by to do what the rest of a real fleet would do. */
async function armFault(
  lane: Lane,
  schedule: Schedule,
  tenant: string,
  memberOf: (role: Role) => Member,
  recovered: AbortSignal,
) {
  const { role, operation, occurrence, fault } = schedule;
  const { pace } = lane.place;
  const target = memberOf(role);
  await target.arm({
    fault: {
      role,
      operation,
      occurrence,
      fault: gateFault(fault),
      ms: operation === 'publish' ? pace.publishDelayMs : pace.delayMs,
    },
    duplicateFor: fault === 'deliver_again' ? tenant : null,
  });
  let fired = false;
  let disarmed = false;
  const watch = async (): Promise<void> => {
    // A killed process may be gone before its trace is read.
    target.doomed = fault.startsWith('kill');
    while (!fired && !disarmed) {
      fired = target.readTrace().some((line) => line.fired !== undefined) || !target.alive;
      await (fired ? answerFault(lane, schedule, target, recovered) : sleep(pace.stepMs));
    }
  };
  const watching = watch();
  // Awaited in `over`, unless the story itself has failed first.
  watching.catch(() => undefined);
  return {
    fired: () => fired,
    /** Resolves when the fault has run its course, or cannot strike any more. */
    async over(): Promise<void> {
      if (!fired) {
        // The last operations of a delivery come after the run has ended.
        await sleep(LAST_OPERATIONS_MS);
        // A process that is killed or frozen just now never answers; then its trace says so.
        target.disarm().then(
          () => {
            disarmed = true;
          },
          () => undefined,
        );
      }
      await watching;
      target.doomed = !target.alive && target.doomed;
    },
  };
}

/** What happens to a fleet when one of its processes fails: somebody else takes the place, sooner or later. */
async function answerFault(
  lane: Lane,
  { role, fault, operation }: Schedule,
  target: Member,
  recovered: AbortSignal,
): Promise<void> {
  const { pace } = lane.place;
  switch (fault) {
    case 'kill_before':
    case 'kill_after':
      await target.ended;
      await lane.fleet.add(role);
      return;
    case 'stop':
      // It is thawed when the others have recovered without it, and every deadline has passed.
      await Promise.all([lane.fleet.add(role), sleep(pace.frozenMs), aborted(recovered)]);
      target.signal('SIGCONT');
      await sleep(pace.quietMs);
      return;
    case 'delay_after':
      await sleep((operation === 'publish' ? pace.publishDelayMs : pace.delayMs) + pace.quietMs);
      return;
    case 'deliver_again':
      await lane.fleet.add('worker');
      await sleep(pace.quietMs);
      return;
    default:
      return;
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
    }
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Announcements may still be on their way to the queue when a run has ended; they must arrive. */
async function settledFacts(lane: Lane, tenant: string): Promise<Facts> {
  const end = performance.now() + lane.place.pace.boundMs;
  for (;;) {
    const facts = await readFacts(lane.admin, tenant);
    if (facts.outbox.every(({ sent, dead }) => sent || dead) || performance.now() > end) {
      return facts;
    }
    await sleep(lane.place.pace.stepMs);
  }
}

async function judge(lane: Lane, scenario: Scenario, tenant: string, story: Story): Promise<Violation[]> {
  const facts = await settledFacts(lane, tenant);
  const effects: Effect[] = await effectsOf(lane, tenant);
  const expected: Expected = {
    ended: story.ended,
    ends: scenario.ends,
    effects: scenario.effects,
    judged: story.judged,
    givenUp: scenario.person === 'replays',
    ...(scenario.effectsMayBeMissing === undefined ? {} : { effectsMayBeMissing: true }),
  };
  const world: World = {
    effects,
    expected,
    explanations: await explainAll(lane, facts),
    opened: openerFor(lane.keys, facts),
  };
  const found = check(facts, world);
  for (const { role } of lane.fleet.crashed()) {
    found.push(`I9: a ${role} ended by itself`);
  }
  if (facts.runs.length !== 1) {
    found.push(`I4: ${facts.runs.length} runs were started with one key`);
  }
  if (!story.ended) {
    found.push(`I9: not recovered within ${lane.place.pace.boundMs} ms; it is ${story.status}`);
  }
  return scenario.session === true && story.ended
    ? [...found, ...checkSession(sessionItems(lane, facts))]
    : found;
}

function sessionItems(lane: Lane, facts: Facts): HistoryItem[] {
  return facts.sessionItems.map(
    ({ sessionId, position, sealed }) =>
      lane.keys.openJson('state', sealed, {
        tenant: facts.tenant,
        table: 'session_items',
        column: 'sealed',
        row: sessionId,
        sequence: position,
      }) as unknown as HistoryItem,
  );
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
