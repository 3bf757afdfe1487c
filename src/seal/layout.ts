/**
 * The bytes of a sealed record. All sizes in bytes; `n` is the length of the key id, 1 to 32.
 *
 *     offset   size  field
 *     -- preamble: the same in every format version --------------------------------------------------
 *          0      4  magic "CSEA"
 *          4      1  format version, now 1
 *          5      1  purpose: 1 state, 2 review
 *          6      1  n
 *          7      n  key id, ASCII [A-Za-z0-9._-]
 *        7+n      4  CRC-32 of bytes 0 to 7+n, big-endian
 *     -- version 1 -----------------------------------------------------------------------------------
 *       11+n     12  nonce of the wrapped data key
 *       23+n     32  data key, encrypted with AES-256-GCM under the named key
 *       55+n     16  tag of the wrapped data key
 *       71+n     12  nonce of the payload
 *       83+n     16  tag of the payload
 *       99+n      *  payload, encrypted with AES-256-GCM under the data key
 *
 * Authentication comes from the two tags, whose additional data covers version, purpose, binding and, for the wrapped
 * data key, the key id. The CRC authenticates nothing. It tells accidents apart: without it, one flipped bit in the
 * version or key id would read as "too new" or "key missing", which send an operator after the wrong thing, and a
 * worker into waiting for a key that never existed, where it should quarantine.
 *
 * Version history
 *   1  the first.
 */
import { crc32 } from 'node:zlib';
import type { KeyPurpose, SealBinding } from './binding.ts';
import { sealBroken, sealVersionUnsupported } from './failures.ts';

export const FORMAT_VERSION = 1;

/** NIST SP 800-38D section 8.2: 96-bit nonces are used as they are. */
export const NONCE_BYTES = 12;

/** The full tag of NIST SP 800-38D section 5.2.1.2; shorter ones are refused. */
export const TAG_BYTES = 16;

/** AES-256. */
export const KEY_BYTES = 32;

/** The rule for key ids: fits one length byte, needs no escaping in a log or an environment variable. */
export const KEY_ID = /^[A-Za-z0-9._-]{1,32}$/;

const MAGIC = Buffer.from('CSEA', 'ascii');
const KEY_ID_AT = 7;
const CRC_BYTES = 4;
const WRAP_BYTES = NONCE_BYTES + KEY_BYTES + TAG_BYTES;
const PURPOSE_BYTES = { state: 1, review: 2 } as const satisfies Record<KeyPurpose, number>;

/** A sealed record taken apart: views into it, no copies. */
export type SealedParts = {
  keyId: string;
  purpose: KeyPurpose;
  wrapNonce: Uint8Array;
  wrappedKey: Uint8Array;
  wrapTag: Uint8Array;
  payloadNonce: Uint8Array;
  payloadTag: Uint8Array;
  payload: Uint8Array;
};

/** Bytes before the payload. */
export function headerBytes(keyId: string): number {
  return preambleBytes(keyId.length) + WRAP_BYTES + NONCE_BYTES + TAG_BYTES;
}

function preambleBytes(keyIdBytes: number): number {
  return KEY_ID_AT + keyIdBytes + CRC_BYTES;
}

/** Joins the parts into one record. Copies the payload once. */
export function joinSealed(parts: SealedParts): Buffer {
  return Buffer.concat([
    writePreamble(parts.purpose, parts.keyId),
    parts.wrapNonce,
    parts.wrappedKey,
    parts.wrapTag,
    parts.payloadNonce,
    parts.payloadTag,
    parts.payload,
  ]);
}

function writePreamble(purpose: KeyPurpose, keyId: string): Buffer {
  const preamble = Buffer.allocUnsafe(preambleBytes(keyId.length));
  MAGIC.copy(preamble);
  preamble[4] = FORMAT_VERSION;
  preamble[5] = PURPOSE_BYTES[purpose];
  preamble[6] = keyId.length;
  preamble.write(keyId, KEY_ID_AT, 'ascii');
  preamble.writeUInt32BE(crc32(preamble.subarray(0, -CRC_BYTES)), preamble.length - CRC_BYTES);
  return preamble;
}

/** What every format version says about itself. */
type Preamble = { version: number; purposeByte: number; keyId: string; bytes: number };

/**
 * Reads the preamble of a record of any format version.
 *
 * @param binding only for the error's text.
 * @throws CountersignError SEAL_BROKEN (malformed) unless the preamble is whole and intact.
 */
export function readPreamble(sealed: Uint8Array, binding?: SealBinding): Preamble {
  const buffer = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
  const keyIdBytes = buffer[6] ?? 0;
  const bytes = preambleBytes(keyIdBytes);
  const keyId = buffer.toString('latin1', KEY_ID_AT, KEY_ID_AT + keyIdBytes);
  const whole = buffer.length >= bytes && buffer.subarray(0, MAGIC.length).equals(MAGIC);
  if (!whole || buffer.readUInt32BE(bytes - CRC_BYTES) !== crc32(buffer.subarray(0, bytes - CRC_BYTES))) {
    throw sealBroken('malformed', binding);
  }
  if (!KEY_ID.test(keyId)) throw sealBroken('malformed', binding);
  return { version: buffer[4] ?? 0, purposeByte: buffer[5] ?? 0, keyId, bytes };
}

/**
 * Takes a record apart, without authenticating anything yet.
 *
 * @throws CountersignError SEAL_BROKEN (malformed, wrong_purpose), SEAL_VERSION_UNSUPPORTED.
 */
export function splitSealed(purpose: KeyPurpose, sealed: Uint8Array, binding: SealBinding): SealedParts {
  const { version, purposeByte, keyId, bytes } = readPreamble(sealed, binding);
  if (version !== FORMAT_VERSION) throw sealVersionUnsupported(version, binding);
  if (purposeByte !== PURPOSE_BYTES[purpose]) throw sealBroken('wrong_purpose', binding);
  if (sealed.length < headerBytes(keyId)) throw sealBroken('malformed', binding);
  let at = bytes;
  const take = (size: number): Uint8Array => {
    at += size;
    return sealed.subarray(at - size, at);
  };
  return {
    keyId,
    purpose,
    wrapNonce: take(NONCE_BYTES),
    wrappedKey: take(KEY_BYTES),
    wrapTag: take(TAG_BYTES),
    payloadNonce: take(NONCE_BYTES),
    payloadTag: take(TAG_BYTES),
    payload: sealed.subarray(at),
  };
}
