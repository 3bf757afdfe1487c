import { z } from 'zod';
import type { AnyAgent, ModelProvider } from '../agents-sdk/index.ts';
import { CountersignError } from '../errors.ts';

/** Who a run belongs to; for `provide`, which fetches secrets from the process and never from the run. */
export type RunIdentity = { tenant: string; runId: string };

/**
 * Declares that this version can carry runs of an earlier one. Keep a stored checkpoint of that version as a fixture
 * and test the adapter against it; `countersign versions check` tries it on the runs that wait.
 */
export type Adapter = {
  /** The earlier version. */
  from: string;
  /** Earlier definitions of `action()` tools, of the same names, that today's tools are equal to in effect. */
  tools?: readonly object[];
  /** Rewrites the earlier version's RunState text, for instance after an agent was renamed. Default: as it is. */
  state?: (text: string) => string;
};

export type WorkflowOptions<Context extends z.ZodObject = z.ZodObject> = {
  name: string;
  /** Names the code that can carry a run. A change that an older checkpoint would notice is a new version. */
  version: string;
  /** Builds the agent graph; called once per worker process. */
  agent: () => AnyAgent | Promise<AnyAgent>;
  /** Identifiers a run is started with: strict, plain JSON, stored sealed. Secrets do not belong here. Default: none. */
  context?: Context;
  /** Turns the identifiers into what tools see as their context, at every claim; may be async. Default: the identifiers. */
  provide?: (ids: z.output<Context>, run: RunIdentity) => unknown;
  /** Resolves model names. Default: OpenAI, from OPENAI_API_KEY and OPENAI_BASE_URL. */
  modelProvider?: () => ModelProvider;
  /** Model turns of the whole run, over all its segments, before it fails. Default 20. */
  maxTurns?: number;
  /** Earlier versions whose runs this one can carry. Default: none. */
  adapters?: readonly Adapter[];
};

/** A workflow as written, checked. */
export type Workflow = {
  readonly kind: 'countersign.workflow';
  readonly name: string;
  readonly version: string;
  readonly agent: () => AnyAgent | Promise<AnyAgent>;
  readonly context: z.ZodObject;
  readonly provide: (ids: Record<string, unknown>, run: RunIdentity) => unknown;
  readonly modelProvider: (() => ModelProvider) | null;
  readonly maxTurns: number;
  readonly adapters: readonly Adapter[];
};

const KNOWN = new Set([
  'name',
  'version',
  'agent',
  'context',
  'provide',
  'modelProvider',
  'maxTurns',
  'adapters',
]);

/** @throws WORKFLOW_INVALID naming the setting and the fix. */
export function workflow<Context extends z.ZodObject>(options: WorkflowOptions<Context>): Workflow {
  const label = typeof options?.name === 'string' ? `workflow "${options.name}"` : 'workflow()';
  const fail = (field: string, fix: string): never => {
    throw new CountersignError('WORKFLOW_INVALID', `${label}: ${field} ${fix}`, {
      details: { workflow: String(options?.name), field },
    });
  };
  const unknown = Object.keys(options ?? {}).find((key) => !KNOWN.has(key));
  if (unknown !== undefined) {
    fail(unknown, `is not a setting of workflow(); known are ${[...KNOWN].join(', ')}.`);
  }
  if (typeof options?.name !== 'string' || !/^[A-Za-z0-9._-]{1,100}$/.test(options.name)) {
    fail('name', 'must be 1 to 100 letters, digits, ., _ or -.');
  }
  if (typeof options.version !== 'string' || !/^[A-Za-z0-9._-]{1,100}$/.test(options.version)) {
    fail('version', 'must be text of 1 to 100 letters, digits, ., _ or -.');
  }
  if (typeof options.agent !== 'function') {
    fail('agent', 'must be a function that builds the agent.');
  }
  for (const field of ['provide', 'modelProvider'] as const) {
    if (options[field] !== undefined && typeof options[field] !== 'function') {
      fail(field, 'must be a function.');
    }
  }
  if (options.context !== undefined && !(options.context instanceof z.ZodObject)) {
    fail('context', 'must be a z.strictObject(…) of identifiers.');
  }
  const maxTurns = options.maxTurns ?? 20;
  if (!Number.isInteger(maxTurns) || maxTurns < 1 || maxTurns > 1_000) {
    fail('maxTurns', 'must be a whole number from 1 to 1000.');
  }
  const adapters = options.adapters ?? [];
  if (
    !Array.isArray(adapters) ||
    adapters.some((one: Adapter) => typeof one?.from !== 'string' || one.from === options.version)
  ) {
    fail('adapters', 'must each name an earlier version in "from".');
  }
  return Object.freeze({
    kind: 'countersign.workflow',
    name: options.name,
    version: options.version,
    agent: options.agent,
    context: (options.context ?? z.object({})).strict(),
    provide: (options.provide ?? ((ids: unknown) => ids)) as Workflow['provide'],
    modelProvider: options.modelProvider ?? null,
    maxTurns,
    adapters,
  });
}
