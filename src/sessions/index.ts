/**
 * Sessions: conversations that outlive a run.
 *
 * A segment works on a session in memory, from what its claim loaded; the changes are stored by the transaction that
 * pauses or ends the run, together with the checkpoint. So a redelivered segment starts from the same history and
 * appends each call and each result once. One run is active on a session at a time; a run goes on only from the
 * version it left (SESSION_MOVED_ON).
 *
 * Invariants: I3, I12. A crash before that transaction leaves the history as it was.
 */
export { type OpenedSession, openSession, type SessionChange, type StoredSession } from './open.ts';
