/**
 * The checker: an auditor that stands beside the flow, never in it.
 *
 *   rows of Postgres + effects where they happened ─▶ check ─▶ violations, each named by the invariant it breaks
 *
 * The crash matrix, the soak and `countersign chaos` all end with its verdict. It decides nothing by what the code
 * believes: rows are read as they are, effects are counted at the provider, digests are recomputed. It keeps no
 * invariant and writes nothing, so a crash here leaves nothing.
 */
export { check, type Effect, type Expected, type Violation, type World } from './check.ts';
export { type ActionFact, type Facts, type Moment, readFacts } from './facts.ts';
export { openerFor } from './opened.ts';
