/**
 * The journal: every model response is stored before the runner acts on it, and in the same statement every
 * consequential call in it gets its ledger row and operation key. A redelivered segment is answered from here, so no
 * stored response is paid for twice and no effect changes its identity.
 *
 * Rows are keyed by (run, segment, path, n): nested agents call models concurrently, so order alone would hand one
 * agent another's answer; within a path the segment's run asks one after the other. Runs that a workflow's own code
 * makes, in a guardrail or a tool, come at once and in any order: they pass by the journal, happen at least once, and
 * can carry out no action. Call ids are replaced by our own, unique in the run, before the SDK sees them: providers
 * reuse and omit theirs.
 *
 * Invariants: I4, I8. A crash before the statement loses a response that was paid for once; a crash after it loses
 * nothing.
 */

export { callKey, type JournalEnvironment, type JournalRow, respond, type StoredCall } from './respond.ts';
export { recordToolResult } from './tool-results.ts';
