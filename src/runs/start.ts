import { randomUUID } from 'node:crypto';
import { sealInput } from '../checkpoints/index.ts';
import { assertPlainJson, digestOf, isWellFormed, type JsonValue } from '../digests/index.ts';
import { CountersignError } from '../errors.ts';
import { nudgeRelay } from '../outbox/index.ts';
import { callFunction, type Database, type Queryable } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';

export type StartOptions = {
  tenant: string;
  workflow: string;
  /** Default: the version that a worker announced last. */
  version?: string | undefined;
  /** A prompt, or the SDK's input items as plain JSON. */
  input: string | JsonValue[];
  /** Identifiers that the workflow's context schema names. Plain JSON, no secrets. Default {}. */
  context?: Record<string, unknown> | undefined;
  /** Makes the start idempotent: the same key with the same input is the same run. */
  key?: string | undefined;
  /** A conversation to go on with. One run is active on it at a time. */
  session?: string | undefined;
  /** Let a run that only waits for a decision on this session give way; its approvals are superseded. Default false. */
  supersede?: boolean | undefined;
  /** Who asked, for the record. */
  requestedBy: string;
};

export type Started = { runId: string; outcome: 'started' | 'existing' };

/** 1 MiB of input; larger material belongs where tools can fetch it. */
const MAX_INPUT_BYTES = 1_048_576;

/**
 * Starts a run: checkpoint 0 (the sealed input), status and outbox row in one transaction. Pass a client that is
 * inside a transaction of yours and the run exists exactly if that transaction commits.
 *
 * @throws INPUT_INVALID, NOT_PLAIN_JSON naming the field; nothing is written.
 * @throws SESSION_BUSY naming the active run.
 * @throws WORKFLOW_UNKNOWN when no worker ever announced the workflow. @throws CLIENT_KEY_CONFLICT: same key, other input.
 */
export async function start(
  db: Database | Queryable,
  keys: KeyRing,
  options: StartOptions,
): Promise<Started> {
  assertText(options.tenant, 'tenant', 512);
  assertText(options.workflow, 'workflow', 200);
  assertText(options.requestedBy, 'requestedBy', 512);
  if (options.key !== undefined) {
    assertText(options.key, 'key', 512);
  }
  if (options.session !== undefined) {
    assertText(options.session, 'session', 512);
  }
  if (typeof options.input !== 'string' && !Array.isArray(options.input)) {
    throw new CountersignError('INPUT_INVALID', 'input must be text or an array of input items.', {
      details: { field: 'input' },
    });
  }
  assertPlainJson(options.input, 'input', { maxBytes: MAX_INPUT_BYTES });
  const context: unknown = options.context ?? {};
  assertPlainJson(context, 'context');
  if (typeof context !== 'object' || context === null || Array.isArray(context)) {
    throw new CountersignError('INPUT_INVALID', 'context must be an object of identifiers.', {
      details: { field: 'context' },
    });
  }
  const input = { input: options.input, context };
  const runId = randomUUID();
  const sealed = sealInput(keys, { tenant: options.tenant, runId, number: 0 }, input);
  const [row] = await callFunction<{ outcome: string; run_id: string | null; known: string[] | null }>(
    db,
    'start_run',
    [
      options.tenant,
      runId,
      options.workflow,
      options.version ?? null,
      options.key ?? null,
      digestOf({ ...input, session: options.session ?? null }),
      sealed,
      options.requestedBy,
      options.session ?? null,
      options.supersede ?? false,
    ],
  );
  switch (row?.outcome) {
    case 'started':
      nudgeRelay(db);
      return { runId: String(row.run_id), outcome: row.outcome };
    case 'existing':
      return { runId: String(row.run_id), outcome: row.outcome };
    case 'unknown_workflow':
      throw new CountersignError(
        'WORKFLOW_UNKNOWN',
        `No worker has ever announced ${options.workflow}${options.version === undefined ? '' : `@${options.version}`}; start a worker that loads it, or use one of: ${row.known?.join(', ') || 'none yet'}.`,
        {
          details: { field: 'workflow', workflow: options.workflow, known: row.known ?? [] },
        },
      );
    case 'session_busy':
      throw new CountersignError(
        'SESSION_BUSY',
        'A run is active on this session; wait for it, decide it, or start with supersede.',
        { details: { field: 'session', runId: String(row.run_id) } },
      );
    default:
      throw new CountersignError(
        'CLIENT_KEY_CONFLICT',
        'This key has already started a run with another input, workflow or version; use a new key.',
        {
          details: { field: 'key', runId: String(row?.run_id) },
        },
      );
  }
}

function assertText(value: unknown, field: string, max: number): void {
  // A NUL cannot be stored in Postgres text, and a lone surrogate cannot be compared.
  if (
    typeof value !== 'string' ||
    value.length === 0 ||
    value.length > max ||
    value.includes('\u0000') ||
    !isWellFormed(value)
  ) {
    throw new CountersignError(
      'INPUT_INVALID',
      `${field} must be text of 1 to ${max} characters, without NUL or lone surrogates.`,
      {
        details: { field },
      },
    );
  }
}
