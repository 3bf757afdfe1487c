/**
 * Checkpoints: the immutable, sealed text that a run goes on from. Number 0 is the run's input; number N is the
 * RunState at its N-th pause.
 *
 * Invariants: I7 (the header is checked before the SDK sees a byte; unknown is refused, never guessed) and I12 (opened
 * only with the `state` key, in exactly the row it was sealed for). A checkpoint is stored by the pause's transaction,
 * together with its approvals, or not at all.
 */
export { openInput, openState, type RunInput, resealCheckpoint, sealInput, sealState } from './codec.ts';
