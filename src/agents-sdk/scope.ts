import { AsyncLocalStorage } from 'node:async_hooks';
import { CountersignError } from '../errors.ts';
import { meaningOf } from './failures.ts';
import type { ModelAnswer } from './model.ts';

/** One model call of a segment, before it is made. */
export type ModelAsk = {
  /** Chain of parent call ids, joined by `/`; empty for the outer agent. */
  path: string;
  /** Order within the path, from 0. */
  n: number;
  /** SHA-256 over what the model is asked, to notice a replay that asks something else. */
  requestDigest: string;
  /** Makes the call. Not invoked when the journal has the answer. */
  ask: () => Promise<ModelAnswer>;
};

/** One call of an `action()` tool that the SDK wants executed now. */
export type CallRequest = {
  callId: string;
  tool: string;
  /** Exactly what the SDK would hand to the tool. */
  argumentsText: string;
  path: string;
  /** The SDK has given the turn up already: do not start anything new. */
  aborted: boolean;
};

/** What a segment's owner gives to the SDK's side. Both doors may throw to end the segment. */
export type SegmentPort = {
  respond(ask: ModelAsk): Promise<ModelAnswer>;
  /** A plain tool's call: answered from the record of an earlier claim of this segment, or live and then recorded. */
  record(callId: string, tool: string, run: () => Promise<unknown>): Promise<unknown>;
  /** Must a person decide before this call may run? Read from the ledger row. */
  isGated(callId: string): boolean;
  /** Returns what the model is told. */
  perform(call: CallRequest): Promise<string>;
};

/**
 * Whose model calls these are. `ours`: a run of the segment, one call after the other on its path, so that an order
 * within the path is an identity. `own`: user code in a tool, a guardrail or a hook, with runs that it starts itself, at
 * once and in any order: they pass by the journal and take no place in it. An agent: its run is about to begin.
 */
type Whose = 'ours' | 'own' | { readonly begins: object };

/** One segment in flight. `stop` is set once; from then on nothing new starts, whatever the SDK makes of the throw. */
export type SegmentScope = {
  readonly port: SegmentPort;
  readonly path: string;
  readonly whose: Whose;
  /** What the innermost call of an agent used as a tool ended with, if it threw: the SDK makes a text of it. */
  readonly call: { failure: unknown };
  readonly shared: {
    stop: unknown;
    readonly counters: Map<string, number>;
    /** The call that a path waits for; an older one on the same path was given up by the SDK. */
    readonly asking: Map<string, symbol>;
    /** Paths on which an action was handed to the ledger. */
    readonly performed: Set<string>;
  };
};

const storage = new AsyncLocalStorage<SegmentScope>();

/** @throws OUTSIDE_A_RUN when no segment is in flight: guarded tools and journaled models run nowhere else. */
export function currentSegment(what: string): SegmentScope {
  const scope = storage.getStore();
  if (scope === undefined) {
    throw new CountersignError(
      'OUTSIDE_A_RUN',
      `${what} runs only inside a Countersign worker; start a run of its workflow.`,
      {
        details: { what },
      },
    );
  }
  return scope;
}

export function enterSegment<T>(port: SegmentPort, agent: object, work: () => Promise<T>): Promise<T> {
  const shared = { stop: undefined, counters: new Map(), asking: new Map(), performed: new Set<string>() };
  const whose = { begins: agent };
  return storage.run({ port, path: '', whose, call: { failure: undefined }, shared }, work);
}

/** Runs `work`, which is user code, one level deeper: it belongs to the call `callId`. */
export function enterCall<T>(scope: SegmentScope, callId: string, work: () => Promise<T>): Promise<T> {
  return storage.run({ ...scope, path: pathOf(scope, callId), whose: 'own' }, work);
}

/**
 * Runs an agent used as a tool: the models it asks and the calls it makes belong to the call `callId`.
 *
 * @param resumed it goes on from where a pause left it.
 * @throws the meaning of its failure, which ends the segment, once it has paid for something: "an error occurred, please
 *   try again" would be an invitation to pay twice. And the SDK writes a state that it cannot read again (0.20) when a
 *   nested run that it resumed has thrown.
 */
export async function enterAgentCall<T>(
  scope: SegmentScope,
  callId: string,
  nested: { agent: object; resumed: boolean },
  work: () => Promise<T>,
): Promise<T> {
  const path = pathOf(scope, callId);
  const call = { failure: undefined as unknown };
  const result = await storage.run({ ...scope, path, whose: { begins: nested.agent }, call }, work);
  if (call.failure !== undefined && (nested.resumed || hasPerformed(scope, path))) {
    stopSegment(scope, meaningOf(call.failure));
  }
  return result;
}

function pathOf(scope: SegmentScope, callId: string): string {
  return scope.path === '' ? callId : `${scope.path}/${callId}`;
}

function hasPerformed({ shared }: SegmentScope, path: string): boolean {
  return [...shared.performed].some((each) => each === path || each.startsWith(`${path}/`));
}

/** Runs `work` as user code. */
export function enterUserCode<T>(scope: SegmentScope, work: () => Promise<T>): Promise<T> {
  return storage.run({ ...scope, whose: 'own' }, work);
}

/** Runs `work`, which is a run of `agent`: the segment's if that is the one about to begin, else user code's own. */
export function enterRun(agent: object, work: () => Promise<unknown>): Promise<unknown> {
  const outer = storage.getStore();
  if (outer === undefined) {
    return work();
  }
  if (typeof outer.whose !== 'object' || outer.whose.begins !== agent) {
    return storage.run({ ...outer, whose: 'own' }, work);
  }
  const running = storage.run({ ...outer, whose: 'ours' }, work);
  const note = (error: unknown) => {
    outer.call.failure = error;
  };
  // A streamed run is there at once and throws later.
  running.then((result) => completion(result)?.catch(note), note);
  return running;
}

function completion(result: unknown): Promise<unknown> | undefined {
  return typeof result === 'object' && result !== null && 'completed' in result
    ? (result.completed as Promise<unknown>)
    : undefined;
}

/** Ends the segment with `reason` and throws it. The first reason wins. */
export function stopSegment(scope: SegmentScope, reason: unknown): never {
  scope.shared.stop ??= reason;
  throw scope.shared.stop;
}

/** Throws the reason if the segment was stopped. */
export function assertGoing(scope: SegmentScope): void {
  if (scope.shared.stop !== undefined) {
    throw scope.shared.stop;
  }
}
