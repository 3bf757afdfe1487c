import { z } from 'zod';
import { type FunctionTool, guardedTool } from '../agents-sdk/index.ts';
import { digestOf, digestParts, type JsonValue } from '../digests/index.ts';
import type { Duration } from '../duration.ts';
import type { Queryable } from '../postgres/index.ts';
import type { Recovery, RecoveryKind } from './recovery.ts';
import { invalid, REQUEST_MAX_MS, settingMs } from './setting.ts';

/** What `execute` is handed beside its arguments. */
export type ActionCall<Kind extends RecoveryKind = RecoveryKind> = {
  /** The durable identity of this effect: send it as the idempotency key. Never changes. */
  operationKey: string;
  /** Fires at the call deadline and at nothing else. */
  signal: AbortSignal;
  /**
   * May the request still leave? False once `sendWithin` has passed since the ledger was asked. `httpEffect` asks right
   * before the first byte; a client of your own that can should too: a process may be frozen while it connects.
   */
  inTime: () => boolean;
  /** 1 for the first dispatch under this key. */
  attempt: number;
  tenant: string;
  runId: string;
  /** What the workflow's `provide` returned. */
  context: unknown;
} & (Kind extends 'transactional' ? { tx: Queryable } : unknown);

/** When a person must decide. */
export type ApprovalRule = {
  /** Name of the policy, shown to reviewers and bound into the decision. */
  policy: string;
  /** How long a reviewer has. Default 24h. */
  expiresIn?: Duration;
  /** How long an approved action may still start. Default 1h. */
  executeWithin?: Duration;
  /** Distinct people who must approve. Default 1. With more than one, the requester's own vote is refused. */
  quorum?: number;
};

/** What the reviewer is shown, beside the arguments themselves. */
export type Review = { summary: string; undo?: string } & Record<string, JsonValue | undefined>;

export type ActionOptions<Schema extends z.ZodObject, Kind extends RecoveryKind> = {
  name: string;
  description: string;
  parameters: Schema;
  /** Part of what a decision binds to: change it when `execute` starts to mean something else. Default "1". */
  version?: string;
  execute: (args: z.output<Schema>, call: ActionCall<Kind>) => unknown;
  // biome-ignore lint/suspicious/noExplicitAny: a call's result cannot be inferred from a sibling setting, so a look-up's arguments are its own to name
  recovery: Recovery<any, Kind>;
  /** What is acted upon; with the arguments it says what "the same operation" is. Default: the tool's name alone. */
  target?: (args: z.output<Schema>) => string;
  review?: (args: z.output<Schema>) => Review;
  /**
   * The rule, or null: no decision needed. Or a function of the effective arguments that returns one of the two; anything
   * else that it returns, undefined included, ends the run. Default null.
   */
  approval?: ApprovalRule | null | ((args: z.output<Schema>) => ApprovalRule | null);
  /** Two identical calls are meant as two effects and need not wait for each other's outcome. Default false. */
  repeatable?: boolean;
  /** How long after the ledger's "dispatched" the request may still leave. Default 5s. */
  sendWithin?: Duration;
  /** How long `execute` may take. Default 30s. */
  callTimeout?: Duration;
  /** Dispatches under one key before a person is asked. Default 5. */
  attempts?: number;
};

/** An action with nothing left undefined. Argument types are erased: it is called with what its schema returned. */
export type ActionDefinition = {
  readonly name: string;
  readonly version: string;
  readonly parameters: z.ZodObject;
  readonly execute: (args: unknown, call: ActionCall & { tx?: Queryable }) => unknown;
  readonly recovery: Recovery<unknown>;
  readonly target: (args: unknown) => string;
  readonly review: (args: unknown) => Review;
  readonly approvalFor: (
    args: unknown,
  ) =>
    | (Required<Pick<ApprovalRule, 'policy' | 'quorum'>> & { expiresInMs: number; executeWithinMs: number })
    | null;
  readonly repeatable: boolean;
  readonly sendWithinMs: number;
  readonly callTimeoutMs: number;
  readonly attemptBudget: number;
  /** What a worker announces and a checkpoint needs: name, version, schema, recovery kind. */
  readonly manifest: string;
};

const DEFINITION = Symbol('countersign.action');

/** The definition behind a tool made by `action()`, or undefined for any other tool. */
export function definitionOf(tool: object): ActionDefinition | undefined {
  return (tool as { [DEFINITION]?: ActionDefinition })[DEFINITION];
}

/**
 * A tool with consequences: takes the options of the SDK's `tool()` plus the safety settings, and is used in an
 * agent's `tools` like any other.
 *
 * @throws ACTION_INVALID naming the setting that is missing or contradicts another, and what to add.
 */
export function action<Schema extends z.ZodObject, Kind extends RecoveryKind>(
  options: ActionOptions<Schema, Kind>,
): FunctionTool<unknown, Schema, string> {
  const definition = compile(options as unknown as ActionOptions<z.ZodObject, RecoveryKind>);
  const tool = sdkTool(options as unknown as ActionOptions<z.ZodObject, RecoveryKind>);
  Object.defineProperty(tool, DEFINITION, { value: definition });
  return tool as unknown as FunctionTool<unknown, Schema, string>;
}

/** The SDK refuses schemas that a model cannot be told: transforms, dates, records of anything but JSON. */
function sdkTool({
  name,
  description,
  parameters,
}: Pick<ActionOptions<z.ZodObject, RecoveryKind>, 'name' | 'description' | 'parameters'>) {
  try {
    return guardedTool({ name, description, parameters });
  } catch (error) {
    throw invalid(
      name,
      'parameters',
      `cannot be told to a model: ${error instanceof Error ? error.message : ''}`,
      error,
    );
  }
}

const KNOWN = new Set([
  'name',
  'description',
  'parameters',
  'version',
  'execute',
  'recovery',
  'target',
  'review',
  'approval',
  'repeatable',
  'sendWithin',
  'callTimeout',
  'attempts',
]);
const KNOWN_IN_RULE = new Set(['policy', 'expiresIn', 'executeWithin', 'quorum']);

function compile(options: ActionOptions<z.ZodObject, RecoveryKind>): ActionDefinition {
  checkSettings(options);
  const { name, approval } = options;
  const version = options.version ?? '1';
  if (typeof approval === 'object' && approval !== null) {
    compileRule(name, approval);
  }
  const target = authored(name, 'target', options.target ?? (() => ''));
  const review = authored(name, 'review', options.review ?? (() => ({ summary: `Run ${name}` })));
  const rule = authored(name, 'approval', typeof approval === 'function' ? approval : () => approval ?? null);
  return {
    name,
    version,
    parameters: options.parameters,
    execute: options.execute as ActionDefinition['execute'],
    recovery: options.recovery as Recovery<unknown>,
    target: (args) => {
      const said: unknown = target(args);
      if (typeof said !== 'string') {
        throw invalid(name, 'target', 'must return a text.');
      }
      return said;
    },
    review: (args) => {
      const said: unknown = review(args);
      if (typeof said !== 'object' || said === null || typeof (said as Review).summary !== 'string') {
        throw invalid(name, 'review', 'must return an object with a summary.');
      }
      return said as Review;
    },
    approvalFor: (args) => {
      // Only an explicit null means "no decision needed": a forgotten return must not.
      const said = rule(args);
      return said === null ? null : compileRule(name, said);
    },
    repeatable: options.repeatable ?? false,
    sendWithinMs: settingMs(options.sendWithin ?? '5s', name, 'sendWithin', REQUEST_MAX_MS),
    callTimeoutMs: settingMs(options.callTimeout ?? '30s', name, 'callTimeout', REQUEST_MAX_MS),
    attemptBudget: options.attempts ?? 5,
    manifest: digestParts([name, version, schemaDigest(options), options.recovery.kind]),
  };
}

function checkSettings(options: ActionOptions<z.ZodObject, RecoveryKind>): void {
  const fail = (field: string, fix: string): never => {
    throw invalid(options?.name, field, fix);
  };
  const unknown = Object.keys(options ?? {}).find((key) => !KNOWN.has(key));
  if (unknown !== undefined) {
    fail(unknown, `is not a setting of action(); known are ${[...KNOWN].join(', ')}.`);
  }
  if (typeof options?.name !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(options.name)) {
    fail('name', 'must be 1 to 64 letters, digits, _ or -.');
  }
  if (typeof options.description !== 'string') {
    fail('description', 'must be a text: the model chooses the tool by it.');
  }
  if (typeof options.execute !== 'function') {
    fail('execute', 'must be a function that performs the effect.');
  }
  for (const field of ['target', 'review'] as const) {
    if (options[field] !== undefined && typeof options[field] !== 'function') {
      fail(field, 'must be a function of the arguments.');
    }
  }
  if (!['undefined', 'object', 'function'].includes(typeof options.approval)) {
    fail('approval', 'must be a rule, null, or a function of the arguments that returns one.');
  }
  if (
    typeof (options.version ?? '') !== 'string' ||
    !/^[A-Za-z0-9._-]{1,100}$/.test(options.version ?? '1')
  ) {
    fail('version', 'must be text of 1 to 100 letters, digits, ., _ or -.');
  }
  if (!(options.parameters instanceof z.ZodObject)) {
    fail('parameters', 'must be a z.object(…).');
  }
  if (!['transactional', 'idempotent', 'lookup', 'manual'].includes(options.recovery?.kind)) {
    fail(
      'recovery',
      'is missing: add idempotent({ keyLifetime }), lookup(find, { settlesWithin }), transactional() or manual().',
    );
  }
  const attempts = options.attempts ?? 5;
  if (!Number.isInteger(attempts) || attempts < 1 || attempts > 100) {
    fail('attempts', 'must be a whole number from 1 to 100.');
  }
}

/**
 * A function of the author's: it works on a copy, so that what it changes is nobody's arguments, and what it throws
 * is named as its own. A run ends with that: repeating it would only repeat it.
 */
function authored<T>(name: string, field: string, work: (args: never) => T): (args: unknown) => T {
  return (args) => {
    let said: T;
    try {
      said = work(structuredClone(args) as never);
    } catch (error) {
      const thrown = error instanceof Error ? error.constructor.name : 'a value';
      throw invalid(name, field, `threw ${thrown}.`, error);
    }
    if (said instanceof Promise) {
      said.catch(() => undefined);
      throw invalid(name, field, 'must answer at once, not with a promise.');
    }
    return said;
  };
}

/** A schema that reads differently each time (a default of the current time) would be another one in every process. */
function schemaDigest({ name, parameters }: ActionOptions<z.ZodObject, RecoveryKind>): string {
  const read = () => z.toJSONSchema(parameters, { io: 'input', unrepresentable: 'any' }) as JsonValue;
  const first = read();
  const digest = digestOf(first);
  if (!JSON.stringify(first).includes('"default"')) {
    return digest;
  }
  const until = Date.now() + 2;
  while (Date.now() < until) {
    // Long enough for the clock to show another time.
  }
  if (digestOf(read()) !== digest) {
    throw invalid(name, 'parameters', 'must not have a default that changes: make it a constant.');
  }
  return digest;
}

function compileRule(name: string, rule: ApprovalRule) {
  const fail = (field: string, fix: string): never => {
    throw invalid(name, field, fix);
  };
  if (typeof rule !== 'object' || rule === null) {
    fail('approval', 'must be a rule or null; a function must return one of the two at once.');
  }
  const unknown = Object.keys(rule).find((key) => !KNOWN_IN_RULE.has(key));
  if (unknown !== undefined) {
    fail(`approval.${unknown}`, `is not a setting of a rule; known are ${[...KNOWN_IN_RULE].join(', ')}.`);
  }
  const quorum = rule.quorum ?? 1;
  if (
    typeof rule.policy !== 'string' ||
    rule.policy.length === 0 ||
    rule.policy.length > 200 ||
    rule.policy.includes('\u0000')
  ) {
    fail('approval.policy', 'must name the policy (1 to 200 characters).');
  }
  if (!Number.isInteger(quorum) || quorum < 1 || quorum > 16) {
    fail('approval.quorum', 'must be a whole number from 1 to 16.');
  }
  return {
    policy: rule.policy,
    quorum,
    expiresInMs: settingMs(rule.expiresIn ?? '24h', name, 'approval.expiresIn'),
    executeWithinMs: settingMs(rule.executeWithin ?? '1h', name, 'approval.executeWithin'),
  };
}
