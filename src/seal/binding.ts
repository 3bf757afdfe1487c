import { CountersignError } from '../errors.ts';

/** Which processes may open a record: `state` is for workers and reconcilers, `review` also for the api. */
export type KeyPurpose = 'state' | 'review';

/** The one place where a sealed record may lie. Opening it anywhere else fails. */
export type SealBinding = {
  tenant: string;
  table: string;
  column: string;
  /** The row's id; a composite key is written out by the caller, unambiguously. */
  row: string;
  /** The record's number within the row's owner, such as a checkpoint's. Absent is not the same as 0. */
  sequence?: number;
};

/** `key` wraps the data key, `payload` holds the data: one layer's ciphertext never authenticates as the other's. */
export type SealLayer = 'key' | 'payload';

/**
 * The additional authenticated data of one layer (NIST SP 800-38D section 5.2.1.1): a JSON array, which keeps its
 * parts apart whatever they contain, and which for strings and safe integers is RFC 8785 text already.
 *
 * @param keyId the wrapping key's id for layer `key`; null for `payload`, which must survive a re-wrap.
 * @throws CountersignError SEAL_BINDING_INVALID for an empty part or a sequence that is no safe integer ≥ 0: a record
 *   bound to nothing would open anywhere.
 */
export function associatedData(
  version: number,
  layer: SealLayer,
  purpose: KeyPurpose,
  keyId: string | null,
  binding: SealBinding,
): Buffer {
  const { tenant, table, column, row, sequence } = binding;
  for (const [part, value] of [
    ['tenant', tenant],
    ['table', table],
    ['column', column],
    ['row', row],
  ] as const) {
    if (typeof value !== 'string' || value === '') throw bindingInvalid(part);
  }
  if (sequence !== undefined && !(Number.isSafeInteger(sequence) && sequence >= 0)) {
    throw bindingInvalid('sequence');
  }
  return Buffer.from(
    JSON.stringify([
      'countersign.seal',
      version,
      layer,
      purpose,
      keyId,
      tenant,
      table,
      column,
      row,
      sequence ?? null,
    ]),
  );
}

function bindingInvalid(part: keyof SealBinding): CountersignError {
  const rule = part === 'sequence' ? 'a whole number from 0 on, or absent' : 'a text that is not empty';
  return new CountersignError('SEAL_BINDING_INVALID', `A seal's ${part} must be ${rule}.`, {
    details: { part },
  });
}
