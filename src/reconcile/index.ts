/**
 * Reconcile: settle an unproven action by evidence.
 *
 * An action that was dispatched and not settled by its deadline is `outcome_unknown`. This asks the provider with the
 * tool's `lookup`, from the code of the run's own workflow version; it never guesses and never re-sends by itself.
 * What an answer means is decided by `settle_actions`: an absence counts only if the look-up *started* after
 * `absent_after` of the latest attempt, compare-and-set names the attempt, two reconcilers at once are harmless.
 * Asking ends: when an attempt's look-ups are spent (`settle_lookup`), a named person must look, and is told so.
 *
 * Invariant: I6. A crash leaves the action unknown and due again when the reconciler's lease on it lapses.
 */
export { type ReconcileCounts, reconcileOnce } from './reconcile.ts';
