import { type KeyObject, randomBytes } from 'node:crypto';
import { associatedData, type KeyPurpose, type SealBinding } from './binding.ts';
import { sealBroken } from './failures.ts';
import { gcmDecrypt, gcmEncrypt } from './gcm.ts';
import { FORMAT_VERSION, joinSealed, KEY_BYTES, NONCE_BYTES, type SealedParts } from './layout.ts';

/** A long-lived key, called by its name in every record whose data key it wraps. */
export type NamedKey = { readonly id: string; readonly secret: KeyObject };

/**
 * Encrypts the plaintext under a fresh data key, and the data key under the named key.
 *
 * The data key encrypts one record, so its nonce cannot repeat. The named key's nonces are random: NIST SP 800-38D
 * section 8.3 allows 2^32 of them per key, so rotate well before four thousand million seals.
 */
export function sealEnvelope(
  key: NamedKey,
  purpose: KeyPurpose,
  plaintext: string | Uint8Array,
  binding: SealBinding,
): Buffer {
  const random = randomBytes(KEY_BYTES + NONCE_BYTES + NONCE_BYTES);
  const dataKey = random.subarray(0, KEY_BYTES);
  const wrapNonce = random.subarray(KEY_BYTES, KEY_BYTES + NONCE_BYTES);
  const payloadNonce = random.subarray(KEY_BYTES + NONCE_BYTES);
  const wrapped = wrapDataKey(key, wrapNonce, purpose, dataKey, binding);
  const additionalData = associatedData(FORMAT_VERSION, 'payload', purpose, null, binding);
  const sealed = gcmEncrypt(dataKey, payloadNonce, additionalData, plaintext);
  dataKey.fill(0);
  return joinSealed({
    keyId: key.id,
    purpose,
    ...wrapped,
    payloadNonce,
    payloadTag: sealed.tag,
    payload: sealed.ciphertext,
  });
}

/**
 * Decrypts a record; nothing of the payload is looked at before it is authentic.
 *
 * @throws CountersignError SEAL_BROKEN (not_authentic).
 */
export function openEnvelope(key: NamedKey, parts: SealedParts, binding: SealBinding): Buffer {
  const dataKey = unwrapDataKey(key, parts, binding);
  const additionalData = associatedData(FORMAT_VERSION, 'payload', parts.purpose, null, binding);
  const plaintext = gcmDecrypt(dataKey, parts.payloadNonce, additionalData, parts.payload, parts.payloadTag);
  dataKey.fill(0);
  if (plaintext === undefined) throw sealBroken('not_authentic', binding);
  return plaintext;
}

/**
 * Wraps the record's data key under another named key; the payload's nonce, tag and ciphertext stay as they are.
 * The payload is not authenticated here: damage to it is found by the next open, as before.
 *
 * @throws CountersignError SEAL_BROKEN (not_authentic) when the old key does not open the data key at this binding.
 */
export function rewrapEnvelope(
  from: NamedKey,
  to: NamedKey,
  parts: SealedParts,
  binding: SealBinding,
): Buffer {
  const dataKey = unwrapDataKey(from, parts, binding);
  const wrapped = wrapDataKey(to, randomBytes(NONCE_BYTES), parts.purpose, dataKey, binding);
  dataKey.fill(0);
  return joinSealed({ ...parts, ...wrapped, keyId: to.id });
}

function wrapDataKey(
  key: NamedKey,
  wrapNonce: Uint8Array,
  purpose: KeyPurpose,
  dataKey: Uint8Array,
  binding: SealBinding,
): Pick<SealedParts, 'wrapNonce' | 'wrappedKey' | 'wrapTag'> {
  const additionalData = associatedData(FORMAT_VERSION, 'key', purpose, key.id, binding);
  const { ciphertext, tag } = gcmEncrypt(key.secret, wrapNonce, additionalData, dataKey);
  return { wrapNonce, wrappedKey: ciphertext, wrapTag: tag };
}

function unwrapDataKey(key: NamedKey, parts: SealedParts, binding: SealBinding): Buffer {
  const additionalData = associatedData(FORMAT_VERSION, 'key', parts.purpose, key.id, binding);
  const dataKey = gcmDecrypt(key.secret, parts.wrapNonce, additionalData, parts.wrappedKey, parts.wrapTag);
  if (dataKey === undefined) throw sealBroken('not_authentic', binding);
  return dataKey;
}
