/**
 * The api: how programs and reviewers reach the system from outside.
 *
 *   request ─▶ token ─▶ role ─▶ strict body ─▶ one function of a noun (start, decide, cancel, explain …) ─▶ JSON
 *
 * It holds no rule of its own: every answer is the noun's, every refusal a `CountersignError` with its status. The
 * tenant and the subject come from the token and from nowhere else, so another tenant's id answers exactly like an id
 * that does not exist (I11). The process has the `review` key only, takes on the role `countersign_api`, loads no
 * workflow code, and logs neither bodies nor URLs (I12).
 *
 * A crash here leaves what Postgres has: a request without an answer may or may not have taken effect. Repeating it is
 * safe: a start with a key, a decision by the same person and a cancel give the same answer again.
 */
export { type Api, type ApiOptions, runApi } from './api.ts';
