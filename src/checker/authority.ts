/** The checker's reading of one action's events: who allowed what, when, and how often it was used. */
import type { Violation, World } from './check.ts';
import type { ActionFact, EventFact, Facts, Moment } from './facts.ts';

/** I1, I4, I5: every dispatch has a decision before it that still stands, and every effect has a dispatch. */
export function checkAuthority(facts: Facts, { effects }: World): Violation[] {
  return facts.actions.flatMap((action) => {
    // By time between runs: a restarted run has inherited its actions from another.
    const events = facts.events
      .filter(({ data }) => data.action === action.id)
      .sort((one, other) => (one.runId === other.runId ? one.n - other.n : one.at - other.at));
    const { found, attempts } = walk(events, action);
    if (effects.some(({ key }) => key === action.id) && attempts === 0) {
      found.push(`I1: action ${action.id} took effect and was never dispatched`);
    }
    if (attempts !== action.attempt) {
      found.push(`I4: action ${action.id} has ${attempts} dispatches and counts ${action.attempt}`);
    }
    return [...found, ...checkDecisions(facts, action, events), ...checkCancel(facts, action, events)];
  });
}

const WITHDRAWN = new Set(['decision_rejected', 'revoke_revoked', 'approval_expired']);

/** A decision is spent by a dispatch and given back by the proof that nothing happened. */
function walk(events: EventFact[], action: ActionFact): { found: Violation[]; attempts: number } {
  const found: Violation[] = [];
  let attempts = 0;
  let authority: 'none' | 'approved' | 'spent' = 'none';
  for (const { kind, data } of events) {
    if (kind === 'decision_approved') {
      authority = 'approved';
    } else if (WITHDRAWN.has(kind)) {
      authority = 'none';
    } else if (kind === 'action_proven_not_executed') {
      authority = action.gated ? 'approved' : 'none';
    } else if (kind === 'action_dispatched') {
      attempts += 1;
      const repeated = authority === 'spent' && action.recovery === 'idempotent';
      if (action.gated && authority !== 'approved' && !repeated) {
        const why = authority === 'spent' ? 'on a decision that was spent' : 'without a decision';
        found.push(`I1: action ${action.id} was dispatched ${why} (attempt ${String(data.attempt)})`);
      }
      if (!action.gated && authority === 'spent' && !repeated) {
        found.push(`I4: action ${action.id} was dispatched again without proof of absence`);
      }
      if (data.attempt !== attempts) {
        found.push(`I4: dispatch ${attempts} of action ${action.id} is attempt ${String(data.attempt)}`);
      }
      authority = 'spent';
    }
  }
  return { found, attempts };
}

/** Between the comparison with the clock and the event's own time a busy server may lose a moment. */
const CLOCK_SLACK_MS = 20;

/** I1, I5: an approval is decided once, by enough people, in time, and used in time. */
function checkDecisions(facts: Facts, action: ActionFact, events: EventFact[]): Violation[] {
  return facts.approvals
    .filter(({ actionId }) => actionId === action.id)
    .flatMap((approval) => {
      const found: Violation[] = [];
      const about = events.filter(({ data }) => data.approval === approval.id);
      const decisions = about.filter(
        ({ kind }) => kind === 'decision_approved' || kind === 'decision_rejected',
      );
      if (decisions.length > 1) {
        found.push(`I5: approval ${approval.id} was decided ${decisions.length} times`);
      }
      for (const { kind, at } of about) {
        if (kind === 'decision_approved' && approval.yes < approval.quorum) {
          found.push(`I5: approval ${approval.id} has ${approval.yes} of ${approval.quorum} votes`);
        }
        if (kind === 'decision_approved' && isAfter(at, approval.decideBefore)) {
          found.push(`I1: approval ${approval.id} was given after its time`);
        }
        if (kind === 'action_dispatched' && isAfter(at, approval.executeBefore)) {
          found.push(`I1: action ${action.id} was dispatched after its approval's last moment`);
        }
      }
      return found;
    });
}

function isAfter(at: Moment, limit: Moment | null): boolean {
  return limit !== null && at > limit + CLOCK_SLACK_MS;
}

/** I1: nothing is sent once the run is asked to stop. */
function checkCancel(facts: Facts, action: ActionFact, events: EventFact[]): Violation[] {
  const asked = facts.events.find(
    ({ runId, kind }) => runId === action.runId && kind === 'run_cancel_requested',
  );
  const sent = events.some(
    ({ kind, n }) => kind === 'action_dispatched' && asked !== undefined && n > asked.n,
  );
  return sent ? [`I1: action ${action.id} was dispatched after its run was asked to stop`] : [];
}
