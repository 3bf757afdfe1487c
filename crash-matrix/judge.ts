/** A schedule is over: what does the checker say? */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  check,
  type Expected,
  type Facts,
  openerFor,
  readFacts,
  type Violation,
} from '../src/checker/index.ts';
import { checkSession, type HistoryItem } from './checker-session.ts';
import type { Lane } from './lane.ts';
import { effectsOf, explainAll } from './observe.ts';
import type { Scenario } from './scenarios.ts';
import type { Story } from './story.ts';

export async function judge(
  lane: Lane,
  scenario: Scenario,
  tenant: string,
  story: Story,
): Promise<Violation[]> {
  const facts = await settledFacts(lane, tenant);
  const expected: Expected = {
    ended: story.ended,
    ends: scenario.ends,
    effects: scenario.effects,
    judged: story.judged,
    givenUp: scenario.person === 'replays',
    ...(scenario.effectsMayBeMissing === undefined ? {} : { effectsMayBeMissing: true }),
  };
  const found = check(facts, {
    effects: await effectsOf(lane, tenant),
    expected,
    explanations: await explainAll(lane, facts),
    opened: openerFor(lane.keys, facts),
  });
  found.push(...story.found);
  for (const { role } of lane.fleet.crashed()) {
    found.push(`I9: a ${role} ended by itself`);
  }
  if (facts.runs.length !== 1) {
    found.push(`I4: ${facts.runs.length} runs were started with one key`);
  }
  if (!story.ended) {
    found.push(`I9: not recovered within ${lane.place.pace.boundMs} ms; it is ${story.status}`);
  }
  if (scenario.session === true && story.ended) {
    found.push(...checkSession(sessionItems(lane, facts)));
  }
  return found;
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
