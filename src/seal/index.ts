/**
 * Seal: what is secret at rest, and bound to its place.
 *
 * Where it stands: a leaf. Checkpoints, journal, actions, receipts and sessions seal before they write a column and
 * open after they read one. Postgres, its backups and whoever can write to it see ciphertext only.
 *
 * Invariants (I12, and S26 and S27 of the field failures):
 * - A record opens only at the tenant, table, column, row and sequence it was sealed for, and only for its purpose.
 *   A record moved to another row is as broken as one with a flipped bit.
 * - Authentication comes before parsing: no byte of an inauthentic record reaches anyone.
 * - Three refusals stay apart, because three people act on them: SEAL_BROKEN (damaged or tampered with: quarantine),
 *   SEAL_VERSION_UNSUPPORTED (too new: park until a newer worker comes), KEY_MISSING (park until the key is given).
 * - Two purposes, so that a process that only shows reviews (the api) cannot open run state.
 *
 * What this does not protect from: an older record of the same binding put back in its place. The binding's
 * `sequence` is the defence; columns that are overwritten under one binding need a digest beside them.
 *
 * A crash here leaves nothing behind: no I/O and no state but the keys in memory.
 */
export type { KeyPurpose, SealBinding } from './binding.ts';
export type { BrokenReason } from './failures.ts';
export { KeyRing, sealedKeyId } from './key-ring.ts';
export type { KeySpec } from './key-spec.ts';
