import { STATE_SCHEMA } from '../agents-sdk/index.ts';
import type { JsonValue } from '../digests/index.ts';
import { CountersignError } from '../errors.ts';
import type { KeyRing, SealBinding } from '../seal/index.ts';

/** What a run is started with. */
export type RunInput = {
  /** A prompt, or the SDK's input items. */
  input: string | JsonValue[];
  /** Identifiers for the workflow's context schema. */
  context: { [key: string]: JsonValue };
};

type CheckpointId = { tenant: string; runId: string; number: number };

function bindingOf({ tenant, runId, number }: CheckpointId): SealBinding {
  return { tenant, table: 'checkpoints', column: 'sealed', row: runId, sequence: number };
}

/** The api may seal an input, so it takes the `review` key. */
export function sealInput(keys: KeyRing, id: CheckpointId, input: RunInput): Buffer {
  return keys.sealJson('review', input as unknown as JsonValue, bindingOf(id));
}

export function openInput(keys: KeyRing, id: CheckpointId, sealed: Uint8Array): RunInput {
  return keys.openJson('review', sealed, bindingOf(id)) as unknown as RunInput;
}

/** First line: our format, the run's workflow and version, the SDK's schema. Then the input's context, then the state. */
const FORMAT = 'countersign-checkpoint/1';

type StateHeader = { workflow: string; context: RunInput['context'] };

/** Seals a RunState with the identifiers its context is rebuilt from. */
export function sealState(keys: KeyRing, id: CheckpointId, header: StateHeader, stateText: string): Buffer {
  const head = JSON.stringify([FORMAT, STATE_SCHEMA, header.workflow, header.context]);
  return keys.seal('state', `${head}\n${stateText}`, bindingOf(id));
}

/**
 * @throws SEAL_BROKEN, KEY_MISSING, SEAL_VERSION_UNSUPPORTED from the seal; STATE_SCHEMA_UNSUPPORTED for a header that
 *   this build does not read; DIGEST_MISMATCH for a state that belongs to another workflow.
 */
export function openState(
  keys: KeyRing,
  id: CheckpointId,
  workflow: string,
  sealed: Uint8Array,
): { context: RunInput['context']; stateText: string } {
  const text = keys.openText('state', sealed, bindingOf(id));
  const end = text.indexOf('\n');
  const [format, schema, owner, context] = readHead(text.slice(0, end));
  if (format !== FORMAT || schema !== STATE_SCHEMA) {
    throw new CountersignError(
      'STATE_SCHEMA_UNSUPPORTED',
      'The checkpoint was written in a format that this worker does not read.',
      {
        details: { format: String(format), schema: String(schema) },
      },
    );
  }
  if (owner !== workflow) {
    throw new CountersignError('DIGEST_MISMATCH', 'The checkpoint belongs to another workflow.', {
      details: { workflow },
    });
  }
  return { context: context as RunInput['context'], stateText: text.slice(end + 1) };
}

function readHead(line: string): unknown[] {
  try {
    const head: unknown = JSON.parse(line);
    return Array.isArray(head) ? head : [];
  } catch {
    return [];
  }
}

/**
 * Seals a checkpoint again for another run: its seal names the run. The text itself is not changed.
 *
 * @throws SEAL_BROKEN, KEY_MISSING
 */
export function resealCheckpoint(
  keys: KeyRing,
  from: CheckpointId,
  toRunId: string,
  sealed: Uint8Array,
): Buffer {
  const purpose = from.number === 0 ? 'review' : 'state';
  return keys.seal(
    purpose,
    keys.open(purpose, sealed, bindingOf(from)),
    bindingOf({ ...from, runId: toRunId }),
  );
}
