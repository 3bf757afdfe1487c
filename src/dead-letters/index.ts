/**
 * Dead letters: a run's work given up with a reason, or an announcement that could not be published, kept in Postgres
 * until a named person puts it back.
 *
 * A replay is a fresh attempt budget and nothing more: what may still happen is decided by the ledger, action by
 * action, exactly as for any other claim. `planReplay` says beforehand what that will be. Invariants: I4, I10.
 * A crash in the middle of a bulk replay leaves some entries replayed and recorded; repeating it does the rest.
 */
export { type DeadLetter, type DeadLetterFilter, listDeadLetters, showDeadLetter } from './list.ts';
export { type PlannedAction, planReplay } from './plan.ts';
export { type Replayed, replay } from './replay.ts';
