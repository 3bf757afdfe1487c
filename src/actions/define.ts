import { z } from 'zod';
import { type FunctionTool, guardedTool } from '../agents-sdk/index.ts';
import { digestOf, digestParts, type JsonValue } from '../digests/index.ts';
import { type Duration, durationMs } from '../duration.ts';
import { CountersignError } from '../errors.ts';
import type { Queryable } from '../postgres/index.ts';
import type { Recovery, RecoveryKind } from './recovery.ts';

/** What `execute` is handed beside its arguments. */
export type ActionCall<Kind extends RecoveryKind = RecoveryKind> = {
  /** The durable identity of this effect: send it as the idempotency key. Never changes. */
  operationKey: string;
  /** Fires at the call deadline and at nothing else. */
  signal: AbortSignal;
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
  recovery: Recovery<z.output<Schema>, Kind>;
  /** What is acted upon; with the arguments it says what "the same operation" is. Default: the tool's name alone. */
  target?: (args: z.output<Schema>) => string;
  review?: (args: z.output<Schema>) => Review;
  /** The rule, or a function of the effective arguments that returns it, or null: no decision needed. Default null. */
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
  const tool = guardedTool({
    name: options.name,
    description: options.description,
    parameters: options.parameters,
  });
  Object.defineProperty(tool, DEFINITION, { value: definition });
  return tool as unknown as FunctionTool<unknown, Schema, string>;
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

function compile(options: ActionOptions<z.ZodObject, RecoveryKind>): ActionDefinition {
  const label = typeof options?.name === 'string' ? `action "${options.name}"` : 'action()';
  const fail = (field: string, fix: string): never => {
    throw new CountersignError('ACTION_INVALID', `${label}: ${field} ${fix}`, {
      details: { action: String(options?.name), field },
    });
  };
  const unknown = Object.keys(options).find((key) => !KNOWN.has(key));
  if (unknown !== undefined) {
    fail(unknown, `is not a setting of action(); known are ${[...KNOWN].join(', ')}.`);
  }
  if (typeof options.name !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(options.name)) {
    fail('name', 'must be 1 to 64 letters, digits, _ or -.');
  }
  if (typeof options.execute !== 'function') {
    fail('execute', 'must be a function that performs the effect.');
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
  const attemptBudget = options.attempts ?? 5;
  if (!Number.isInteger(attemptBudget) || attemptBudget < 1 || attemptBudget > 100) {
    fail('attempts', 'must be a whole number from 1 to 100.');
  }
  if (typeof options.approval === 'object' && options.approval !== null) {
    compileRule(options.approval, fail);
  }
  const version = options.version ?? '1';
  return {
    name: options.name,
    version,
    parameters: options.parameters,
    execute: options.execute as ActionDefinition['execute'],
    recovery: options.recovery as Recovery<unknown>,
    target: (options.target as ActionDefinition['target'] | undefined) ?? (() => ''),
    review:
      (options.review as ActionDefinition['review'] | undefined) ??
      (() => ({ summary: `Run ${options.name}` })),
    approvalFor: (args) => {
      const rule =
        typeof options.approval === 'function' ? options.approval(args as never) : options.approval;
      return rule === null || rule === undefined ? null : compileRule(rule, fail);
    },
    repeatable: options.repeatable ?? false,
    sendWithinMs: durationMs(options.sendWithin ?? '5s', `${label}.sendWithin`),
    callTimeoutMs: durationMs(options.callTimeout ?? '30s', `${label}.callTimeout`),
    attemptBudget,
    manifest: digestParts([
      options.name,
      version,
      digestOf(z.toJSONSchema(options.parameters, { io: 'input', unrepresentable: 'any' }) as JsonValue),
      options.recovery.kind,
    ]),
  };
}

function compileRule(rule: ApprovalRule, fail: (field: string, fix: string) => never) {
  const quorum = rule.quorum ?? 1;
  if (typeof rule.policy !== 'string' || rule.policy.length === 0 || rule.policy.length > 200) {
    fail('approval.policy', 'must name the policy (1 to 200 characters).');
  }
  if (!Number.isInteger(quorum) || quorum < 1 || quorum > 16) {
    fail('approval.quorum', 'must be a whole number from 1 to 16.');
  }
  return {
    policy: rule.policy,
    quorum,
    expiresInMs: durationMs(rule.expiresIn ?? '24h', 'approval.expiresIn'),
    executeWithinMs: durationMs(rule.executeWithin ?? '1h', 'approval.executeWithin'),
  };
}
