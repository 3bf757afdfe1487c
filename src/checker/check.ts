/**
 * The checker: compares what Postgres says with what happened in the world, and names every disagreement by the
 * invariant it breaks. It decides nothing by what the code believes: effects are counted where they happened.
 */
import { canonicalJson, type JsonValue } from '../digests/index.ts';
import type { Explanation } from '../runs/index.ts';
import { checkAuthority } from './authority.ts';
import { checkEpochs, checkJournal } from './epochs.ts';
import type { ActionFact, Facts } from './facts.ts';

/** Something that happened outside, where it happened. */
export type Effect = { key: string | null; body: Record<string, unknown> };

export type Expected = {
  /** Nobody will do anything more: the rows are final, and must say so. */
  ended: boolean;
  /** Statuses in which each run may be. */
  ends: readonly string[];
  /** Effects by payee; null where nobody knows beforehand what will be asked for. */
  effects: Readonly<Record<string, number>> | null;
  /** An action whose approval was withdrawn in time has no effect, and that is right. */
  effectsMayBeMissing?: boolean;
  /** The story is one in which evidence contradicts itself, the run is given up, or an alarm is raised. */
  contradiction?: boolean;
  givenUp?: boolean;
  alarm?: boolean;
  /** Actions whose outcome a person has told us. */
  judged?: ReadonlySet<string>;
};

export type World = {
  effects: readonly Effect[];
  /** Others may have happened where nobody looked, so that one which is not seen proves nothing. */
  onlySome?: boolean;
  expected: Expected;
  explanations: readonly Explanation[];
  /** What the reviewer was shown and what is to run, opened; null where the caller has no keys. */
  opened: ((action: ActionFact) => { reviewed: JsonValue | null; effective: JsonValue | null }) | null;
};

/** `I4: …`. Sorted by invariant. */
export type Violation = string;

/** What must hold at every moment, and, once everybody is done, what must have been reached. */
export function check(facts: Facts, world: World): Violation[] {
  const always = [
    ...checkEffects(facts, world),
    ...checkAuthority(facts, world),
    ...checkEpochs(facts),
    ...checkJournal(facts),
    ...checkReviewed(facts, world),
    ...checkRecord(facts, world),
  ];
  const finally_ = [
    ...checkNumbers(facts, world),
    ...checkLedger(facts, world),
    ...checkProgress(facts, world),
    ...checkExplained(facts, world),
  ];
  return [...always, ...(world.expected.ended ? finally_ : [])].sort();
}

/** I4: one effect for each key, and no more than there should be. */
function checkEffects(facts: Facts, { effects, expected }: World): Violation[] {
  const found: Violation[] = [];
  const byKey = countBy(effects, ({ key }) => key ?? 'no key');
  for (const [key, count] of byKey) {
    if (count > 1) {
      found.push(`I4: ${count} effects under the key ${key}`);
    }
    if (!facts.actions.some(({ id }) => id === key)) {
      found.push(`I1: an effect under ${key}, which no ledger row knows`);
    }
  }
  const { effects: wantedBy } = expected;
  if (wantedBy === null) {
    return found;
  }
  for (const [payee, count] of countBy(effects, ({ body }) => String(body.to))) {
    const wanted = wantedBy[payee] ?? 0;
    if (count > wanted) {
      found.push(`I4: ${count} effects for ${payee}, expected ${wanted}`);
    }
  }
  return found;
}

/** I4: and no fewer. */
function checkNumbers(facts: Facts, { effects, expected }: World): Violation[] {
  if (expected.effects === null || (expected.effectsMayBeMissing === true && wasWithdrawn(facts))) {
    return [];
  }
  const byPayee = countBy(effects, ({ body }) => String(body.to));
  return Object.entries(expected.effects)
    .filter(([payee, wanted]) => (byPayee.get(payee) ?? 0) < wanted)
    .map(([payee, wanted]) => `I4: ${byPayee.get(payee) ?? 0} effects for ${payee}, expected ${wanted}`);
}

function wasWithdrawn(facts: Facts): boolean {
  return facts.approvals.some(({ state }) => state === 'revoked');
}

/** I2: what was reviewed is what is to run is what ran. */
function checkReviewed(facts: Facts, { effects, opened }: World): Violation[] {
  if (opened === null) {
    return [];
  }
  return facts.actions.flatMap((action) => {
    const { reviewed, effective } = opened(action);
    const wanted = effective === null ? null : canonicalJson(effective);
    const found: Violation[] = [];
    if (reviewed !== null && canonicalJson(reviewed) !== wanted) {
      found.push(`I2: action ${action.id} was reviewed with other arguments than it has`);
    }
    for (const effect of effects.filter(({ key }) => key === action.id)) {
      if (canonicalJson(effect.body as JsonValue) !== wanted) {
        found.push(`I2: the effect of action ${action.id} is not what was reviewed`);
      }
    }
    return found;
  });
}

/** Out in the world: its decision is spent, and nobody knows yet what came of it. */
const OPEN = new Set(['dispatched', 'outcome_unknown']);

/** I4, I5, I6: the ledger's rows agree with each other, with the evidence and with the world. */
function checkLedger(facts: Facts, { effects, expected, onlySome }: World): Violation[] {
  return facts.actions.flatMap((action) => {
    const found: Violation[] = [];
    const happened = effects.some(({ key }) => key === action.id);
    const evidence = facts.receipts.filter(({ actionId }) => actionId === action.id);
    const contradicted = isContradicted(facts, action.id);
    const waits = OPEN.has(action.state) && expected.ends.includes('awaiting_reconciliation');
    const accounted = action.state === 'succeeded' || waits || contradicted;
    if (happened && !accounted) {
      found.push(`I6: action ${action.id} happened and is ${action.state}, with no contradiction raised`);
    }
    const known = happened || onlySome === true || expected.judged?.has(action.id) === true;
    if (!known && action.state === 'succeeded') {
      found.push(`I6: action ${action.id} is succeeded and never happened`);
    }
    for (const proof of ['succeeded', 'failed'] as const) {
      if (action.state === proof && !evidence.some(({ outcome }) => outcome === proof)) {
        found.push(`I6: action ${action.id} is ${proof} without a receipt that says so`);
      }
    }
    if (contradicted && expected.contradiction !== true) {
      found.push(`I6: evidence about action ${action.id} contradicts itself`);
    }
    const approvals = facts.approvals.filter(({ actionId }) => actionId === action.id);
    const consumed = approvals.filter(({ state }) => state === 'consumed').length;
    const wanted = action.gated && action.attempt > 0 && (action.state === 'succeeded' || waits) ? 1 : 0;
    if (consumed !== wanted && !(action.state === 'failed' || action.state === 'abandoned')) {
      found.push(`I5: action ${action.id} is ${action.state} and has ${consumed} consumed approvals`);
    }
    return found;
  });
}

/** I8, I9: nothing is left lying: no run that nobody moves, no announcement that nobody sends. */
function checkProgress(facts: Facts, { expected }: World): Violation[] {
  const found: Violation[] = [];
  for (const run of facts.runs) {
    if (!expected.ends.includes(run.status)) {
      found.push(`I9: run is ${run.status} (${run.reason}), expected ${expected.ends.join(' or ')}`);
    }
    if (run.holdPassed) {
      found.push('I9: the run is running, and its hold has passed');
    }
    const announced = facts.outbox.some(({ runId, wake }) => runId === run.id && wake === run.wake);
    if (run.status === 'ready' && !announced) {
      found.push('I9: the run is ready and was never announced');
    }
  }
  for (const { runId, wake, sent, dead } of facts.outbox) {
    if (!sent) {
      found.push(`I9: the announcement ${wake} of run ${runId} is ${dead ? 'dead' : 'not sent'}`);
    }
  }
  const ended = facts.runs.every(({ status }) => ['completed', 'failed', 'cancelled'].includes(status));
  if (ended) {
    for (const { id, state } of facts.actions) {
      if (['prepared', 'dispatched', 'outcome_unknown'].includes(state)) {
        found.push(`I6: the run has ended with action ${id} ${state}`);
      }
    }
    for (const { id, state } of facts.approvals) {
      if (state === 'pending' || state === 'approved') {
        found.push(`I5: the run has ended with approval ${id} ${state}`);
      }
    }
  }
  return found;
}

/** I10: the events are gapless and their chain is whole. */
function checkRecord(facts: Facts, { expected }: World): Violation[] {
  const alerts = facts.events.filter(({ kind }) => kind === 'security_alert' || kind === 'run_quarantined');
  const links = facts.brokenLinks.map((link) => `I10: the chain of events is broken at ${link}`);
  const letters = facts.deadLetters.map((letter) => `I9: given up as a dead letter (${letter})`);
  const alarms = alerts.map(({ kind, data }) => `I7: ${kind} (${String(data.code ?? data.reason)})`);
  return [...links, ...(expected.givenUp ? [] : letters), ...(expected.alarm ? [] : alarms)];
}

/** I10: what `explain` says about each action is the truth. */
function checkExplained(facts: Facts, { effects, explanations, onlySome }: World): Violation[] {
  return explanations.flatMap((explanation) => {
    const run = facts.runs.find(({ id }) => id === explanation.runId);
    const found: Violation[] = [];
    if (run?.status !== explanation.status) {
      found.push(`I10: explain says ${explanation.status}, the run is ${run?.status}`);
    }
    for (const action of explanation.actions) {
      const happened = effects.some(({ key }) => key === action.id) ? 'yes' : 'no';
      const unseen = onlySome === true && happened === 'no';
      if (action.happened !== happened && action.happened !== 'unknown' && !unseen) {
        found.push(
          `I10: explain says of action ${action.id}: ${action.happened}; the world says ${happened}`,
        );
      }
      const open = ['dispatched', 'outcome_unknown', 'abandoned'].includes(action.state);
      if (action.happened === 'unknown' && !open && !isContradicted(facts, action.id)) {
        found.push(`I10: explain does not know what became of action ${action.id}, which is ${action.state}`);
      }
    }
    return found;
  });
}

function isContradicted(facts: Facts, action: string): boolean {
  return facts.events.some(({ kind, data }) => kind === 'contradiction' && data.action === action);
}

function countBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const item of items) {
    counts.set(keyOf(item), (counts.get(keyOf(item)) ?? 0) + 1);
  }
  return counts;
}
