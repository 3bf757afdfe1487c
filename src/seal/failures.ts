import { CountersignError } from '../errors.ts';
import type { KeyPurpose, SealBinding } from './binding.ts';

/** What is wrong with a record that does not open; closed, found in the error's `details.reason`. */
const BROKEN = {
  malformed: 'it is not a sealed record, or it is cut short or damaged',
  wrong_purpose: 'it was sealed for another purpose',
  not_authentic:
    'it fails authentication: changed, moved from another row, or sealed with another key of that id',
  not_text: 'it is authentic but holds no UTF-8 text',
  not_json: 'it is authentic but holds no JSON',
} as const;

/** Why a record is SEAL_BROKEN. */
export type BrokenReason = keyof typeof BROKEN;

/** SEAL_BROKEN: says where the record lies, never what it holds, and has no cause that might. */
export function sealBroken(reason: BrokenReason, binding?: SealBinding): CountersignError {
  const place = binding === undefined ? 'A sealed record' : placeOf(binding);
  return new CountersignError('SEAL_BROKEN', `${place} cannot be opened: ${BROKEN[reason]}.`, {
    details: { reason, ...detailsOf(binding) },
  });
}

/** SEAL_VERSION_UNSUPPORTED: an intact record, written by a newer release. */
export function sealVersionUnsupported(version: number, binding?: SealBinding): CountersignError {
  const place = binding === undefined ? 'A sealed record' : placeOf(binding);
  return new CountersignError(
    'SEAL_VERSION_UNSUPPORTED',
    `${place} has seal format ${version}, which this release cannot read. Use the release that wrote it, or a later one.`,
    { details: { version, ...detailsOf(binding) } },
  );
}

/**
 * KEY_MISSING.
 *
 * @param keyId the key that an intact record names; null when the ring has no key at all for the purpose.
 */
export function keyMissing(purpose: KeyPurpose, keyId: string | null): CountersignError {
  const what = keyId === null ? `any ${purpose} key` : `${purpose} key ${keyId}`;
  return new CountersignError(
    'KEY_MISSING',
    `This process does not have ${what}. Add it to the ${purpose} keys, or do this work in a process that has it.`,
    { details: { purpose, keyId } },
  );
}

function placeOf({ table, column, row, sequence }: SealBinding): string {
  const number = sequence === undefined ? '' : `, sequence ${sequence}`;
  return `${table}.${column} of row ${row}${number}`;
}

function detailsOf(binding: SealBinding | undefined): Record<string, string | number | null> {
  if (binding === undefined) return {};
  const { table, column, row, sequence = null } = binding;
  return { table, column, row, sequence };
}
