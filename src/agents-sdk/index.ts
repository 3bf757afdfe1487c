/**
 * The edge to the OpenAI Agents SDK, and the only importer of `@openai/agents`. Everywhere else a RunState is opaque
 * text, a model response is JSON, and a tool call is a `CallRequest`.
 *
 * A segment runs inside `runSegment`, which gives the SDK two doors only: every model call goes through
 * `SegmentPort.respond` (the journal) and every `action()` through `SegmentPort.perform` (the ledger). What the SDK
 * would do by itself and must not (turn a lost outcome into "please try again", call a model after the segment was
 * stopped, run a guarded tool outside a run) is closed here.
 *
 * Invariants: I1 (whether a call is gated is asked of the port, never of today's code), I2 (the port sees the argument
 * text the SDK is about to run), I12 (the context is written into no state).
 * A crash here leaves nothing behind: nothing in this folder writes.
 */
export type { FunctionTool, ModelProvider } from '@openai/agents';
export { type AnyAgent, assertUngated, inspectGraph, type WorkflowGraph } from './graph.ts';
export { guardedTool } from './guarded-tool.ts';
export { defaultModelProvider, type ModelAnswer, STATE_SCHEMA } from './model.ts';
export { type OpenedState, openState, type PendingCall } from './open-state.ts';
export { type CallRequest, currentSegment, type ModelAsk, type SegmentPort } from './scope.ts';
export { runSegment, type SegmentResult, type SegmentStart } from './segment.ts';
export { type HistoryItem, memorySession, type RunSession } from './session.ts';
export { addUsage, NO_USAGE, ONE_REQUEST, type UsageNumbers } from './usage.ts';
