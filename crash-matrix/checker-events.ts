/** The checker's reading of the events: who was allowed to do what, in the order in which it was written. */
import type { Violation, World } from './checker.ts';
import type { EventFact, Facts } from './facts.ts';

/** I1, I4, I5: every dispatch has a decision before it that still stands, and every effect has a dispatch. */
export function checkAuthority(facts: Facts, { effects }: World): Violation[] {
  const found: Violation[] = [];
  for (const action of facts.actions) {
    const events = facts.events.filter(({ data }) => data.action === action.id);
    const authority = readAuthority(events, action);
    found.push(...authority.found);
    if (effects.some(({ key }) => key === action.id) && authority.attempts === 0) {
      found.push(`I1: action ${action.id} took effect and was never dispatched`);
    }
    if (authority.attempts !== action.attempt) {
      found.push(`I4: action ${action.id} has ${authority.attempts} dispatches and counts ${action.attempt}`);
    }
    for (const [approval, count] of authority.decisions) {
      if (count > 1) {
        found.push(`I5: approval ${approval} was decided ${count} times`);
      }
    }
  }
  return found;
}

type Authority = { found: Violation[]; attempts: number; decisions: Map<unknown, number> };

const WITHDRAWN = new Set(['decision_rejected', 'revoke_revoked', 'approval_expired']);

/** Walks one action's events. A decision is spent by a dispatch and given back by the proof that nothing happened. */
function readAuthority(events: EventFact[], action: { id: string; gated: boolean; recovery: string }): Authority {
  const state: Authority = { found: [], attempts: 0, decisions: new Map() };
  let authority: 'none' | 'approved' | 'spent' = 'none';
  for (const { kind, data } of events) {
    if (kind === 'decision_approved' || kind === 'decision_rejected') {
      state.decisions.set(data.approval, (state.decisions.get(data.approval) ?? 0) + 1);
    }
    if (kind === 'decision_approved') {
      authority = 'approved';
    } else if (WITHDRAWN.has(kind)) {
      authority = 'none';
    } else if (kind === 'action_proven_not_executed') {
      authority = action.gated ? 'approved' : 'none';
    } else if (kind === 'action_dispatched') {
      state.attempts += 1;
      const repeated = authority === 'spent' && action.recovery === 'idempotent';
      if (action.gated && authority !== 'approved' && !repeated) {
        const why = authority === 'spent' ? 'on a decision that was spent' : 'without a decision';
        state.found.push(`I1: action ${action.id} was dispatched ${why} (attempt ${String(data.attempt)})`);
      }
      if (!action.gated && state.attempts > 1 && authority === 'spent' && !repeated) {
        state.found.push(`I4: action ${action.id} was dispatched again without proof of absence`);
      }
      if (data.attempt !== state.attempts) {
        state.found.push(`I4: dispatch ${state.attempts} of action ${action.id} is attempt ${String(data.attempt)}`);
      }
      authority = 'spent';
    }
  }
  return state;
}

/** Written by the transaction that lets the run go: after one of these nobody owns it until the next claim. */
const LETS_GO = /^run_(ready|awaiting_approval|awaiting_reconciliation|parked|completed|failed|cancelled|quarantined|dead_lettered|superseded)$/;
/** Written only by the owner of a running run, on the run's behalf. */
const OWNERS = new Set(['checkpoint_stored', 'action_dispatched', 'run_completed', 'run_failed', 'action_prepared']);

/** I3: epochs grow by one with each claim, and only the owner of the current one writes to the run. */
export function checkEpochs(facts: Facts): Violation[] {
  return facts.runs.flatMap((run) => {
    const found: Violation[] = [];
    let epoch = 0;
    let owned = false;
    for (const { n, kind, data } of facts.events.filter(({ runId }) => runId === run.id)) {
      if (kind === 'run_claimed') {
        if (data.epoch !== epoch + 1) {
          found.push(`I3: event ${n} claims epoch ${String(data.epoch)} after ${epoch}`);
        }
        if (owned && data.taken_over !== true) {
          found.push(`I3: event ${n} claims a run that is held`);
        }
        epoch = Number(data.epoch);
        owned = true;
        continue;
      }
      if (OWNERS.has(kind) && (!owned || (data.epoch !== undefined && data.epoch !== epoch))) {
        found.push(`I3: event ${n} (${kind}) was not written by the owner of epoch ${epoch}`);
      }
      if (LETS_GO.test(kind)) {
        owned = false;
      }
    }
    if (run.epoch !== epoch) {
      found.push(`I3: the run is in epoch ${run.epoch}, its events in ${epoch}`);
    }
    return found;
  });
}
