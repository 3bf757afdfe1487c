/**
 * Outbox and relay: the announcement that a run is ready is committed with the state that made it so, and published
 * afterwards, at least once.
 *
 * Invariants: I8, I9. Rows are claimed by a short statement, never by an open transaction across the network and never
 * by an id cursor (a row below the cursor may commit later). A relay that dies between publishing and marking
 * publishes twice: the job id is the row's id, and the claim of a run tells a stale delivery from a fresh one.
 */
export { publishDuplicates } from './duplicate.ts';
export { nudgeRelay, OUTBOX_CHANNEL } from './nudge.ts';
export { type RelayCounts, relayOnce } from './relay.ts';
