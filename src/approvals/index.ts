/**
 * Approvals: the request for a person's word on one action, and what became of it.
 *
 * Who may decide is the api's and the cli's question (an authenticated subject with the reviewer role); whether the
 * decision still counts is the database's (`decide_approval`): run lock, approval lock, then the clock. One transition
 * wins; every attempt leaves an event.
 *
 * Invariants: I1, I5. A crash leaves a decision that is recorded with its consequences, or none.
 */
export { type Decided, decide, revoke } from './decide.ts';
export { type ApprovalCard, type ApprovalSummary, listApprovals, showApproval } from './list.ts';
