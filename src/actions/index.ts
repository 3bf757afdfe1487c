/**
 * Actions: tool calls with consequences, and the ledger that lets each take effect once.
 *
 *   journal ─▶ mint ─▶ (approval) ─▶ intend ─▶ call ─▶ settle
 *
 * `action()` is what a user writes. `prepareArguments` turns the model's text into what is reviewed and what runs.
 * `performAction` carries one call through the ledger; every rule about whether it may run is in the SQL function
 * `intend_actions`, every rule about what an outcome means in `settle_actions`.
 *
 * Invariants: I1, I2, I4, I6. A crash before intend leaves `prepared`: nothing happened. A crash after it leaves
 * `dispatched`: nobody knows, and the reconciler finds out. A crash after settle leaves the receipt, which answers
 * every later call under the same key.
 */

export { type PreparedArguments, prepareArguments } from './arguments.ts';
export { askAction } from './ask.ts';
export { textOfResult } from './call-outcome.ts';
export {
  type ActionCall,
  type ActionDefinition,
  type ActionOptions,
  type ApprovalRule,
  action,
  definitionOf,
  type Review,
} from './define.ts';
export { type HttpEffect, type HttpReceipt, httpEffect } from './http-effect.ts';
export { type LedgerAction, refusalText, type SettleOutcome, settleAction } from './ledger.ts';
export { type MintedAction, mintAction } from './mint.ts';
export { NeverSent, neverSent, ProviderRefused, refused } from './outcome.ts';
export { type ActionEnvironment, performAction, type ReviewedArguments } from './perform.ts';
export {
  DEFAULT_LOOKUPS,
  idempotent,
  type LookupAnswer,
  lookup,
  manual,
  type Recovery,
  readAnswer,
  transactional,
} from './recovery.ts';
export { type Judgement, listOpenActions, type OpenAction, resolveAction } from './resolve.ts';
export { definitionReview } from './review.ts';
export { Suspended } from './suspended.ts';
