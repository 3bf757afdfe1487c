/**
 * Thrown to end a segment whose action cannot be answered now. Not an error: the run waits for evidence, or for its
 * back-off. `released`: the transaction that settled the action has let the run go already.
 */
export class Suspended extends Error {
  override readonly name = 'Suspended';
  readonly released: boolean;
  readonly code: 'HELD' | 'DECIDE_AGAIN' | 'OUTCOME_UNKNOWN' | 'NEVER_SENT' | 'LEASE_LOST';

  constructor(code: Suspended['code'], released: boolean) {
    super(code);
    this.code = code;
    this.released = released;
  }
}
