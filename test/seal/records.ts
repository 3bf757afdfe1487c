import { createCipheriv, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { type CountersignError, isCountersignError } from '../../src/errors.ts';
import { KeyRing, type SealBinding } from '../../src/seal/index.ts';

/** Where most test records lie. */
export const BINDING: SealBinding = {
  tenant: 'tenant-1',
  table: 'checkpoints',
  column: 'state',
  row: 'run-1',
  sequence: 3,
};

/** An entry of a key specification, with a fresh random key. */
export function entry(id: string): string {
  return `${id}:${randomBytes(32).toString('base64')}`;
}

/** A ring with one fresh key for each purpose: `s1` and `r1`. */
export function freshRing(): KeyRing {
  return KeyRing.parse({ state: entry('s1'), review: entry('r1') });
}

/** The error that the call throws; fails unless it is one of ours. */
export function errorOf(call: () => unknown): CountersignError {
  try {
    call();
  } catch (error) {
    if (isCountersignError(error)) return error;
    throw error;
  }
  throw new Error('expected a CountersignError, but nothing was thrown');
}

/** A copy with byte 4 set and the preamble's CRC made right again: what another release would write. */
export function withVersion(sealed: Uint8Array, version: number): Buffer {
  const copy = Buffer.from(sealed);
  copy[4] = version;
  const end = 7 + (copy[6] ?? 0);
  copy.writeUInt32BE(crc32(copy.subarray(0, end)), end);
  return copy;
}

/**
 * A version 1 record for BINDING, purpose state, written from the layout's documentation alone: the pinned form of
 * the format, so that no release can change it unnoticed.
 */
export function handMadeRecord(keyId: string, key: Uint8Array, plaintext: string): Buffer {
  const aad = (layer: string, id: string | null) =>
    `["countersign.seal",1,"${layer}","state",${JSON.stringify(id)},"tenant-1","checkpoints","state","run-1",3]`;
  const dataKey = Buffer.alloc(32, 7);
  const wrap = encrypt(key, Buffer.alloc(12, 1), aad('key', keyId), dataKey);
  const payload = encrypt(dataKey, Buffer.alloc(12, 2), aad('payload', null), Buffer.from(plaintext));
  const preamble = Buffer.concat([
    Buffer.from('CSEA'),
    Buffer.from([1, 1, keyId.length]),
    Buffer.from(keyId),
  ]);
  const crc = Buffer.alloc(4);
  crc.writeUInt32BE(crc32(preamble));
  const wrapped = [wrap.nonce, wrap.ciphertext, wrap.tag];
  return Buffer.concat([preamble, crc, ...wrapped, payload.nonce, payload.tag, payload.ciphertext]);
}

function encrypt(key: Uint8Array, nonce: Buffer, aad: string, plaintext: Buffer) {
  const cipher = createCipheriv('aes-256-gcm', key, nonce);
  cipher.setAAD(Buffer.from(aad));
  const ciphertext = Buffer.concat([cipher.update(plaintext), cipher.final()]);
  return { nonce, ciphertext, tag: cipher.getAuthTag() };
}
