import { createSecretKey, randomBytes } from 'node:crypto';
import { CountersignError } from '../errors.ts';
import type { KeyPurpose } from './binding.ts';
import type { NamedKey } from './envelope.ts';
import { KEY_BYTES, KEY_ID } from './layout.ts';

/** Exactly 32 bytes in standard base64, as `openssl rand -base64 32` prints them; Node alone would decode anything. */
const BASE64_KEY = /^[A-Za-z0-9+/]{43}=$/;

const HOW_TO_MAKE = 'Make a key with: openssl rand -base64 32';

/** Key material as configuration carries it: per purpose `id:base64key[,id2:base64key…]`, the current key first. */
export type KeySpec = {
  /** Absent in a process that must not open run state, such as the api. */
  state?: string | undefined;
  review: string;
};

/**
 * Reads the keys of one purpose. Spaces around an entry are ignored.
 *
 * @param owners the keys read so far in base64, each with whose it is (`state key a`); grows.
 * @returns at least one key, in order.
 * @throws CountersignError KEY_INVALID, details { purpose, keyId: the id or null, position: from 1 }, for a malformed
 *   entry or id, a key that is not 32 bytes of base64, and an id or a key that is used twice. Never quotes a key: an
 *   entry whose id is malformed is named by its position only, since it may be a key without an id.
 */
export function parseKeys(purpose: KeyPurpose, spec: string, owners: Map<string, string>): NamedKey[] {
  const keys: NamedKey[] = [];
  for (const [index, entry] of spec.split(',').entries()) {
    const [id = '', encoded = '', ...rest] = entry.trim().split(':');
    if (!KEY_ID.test(id) || rest.length > 0 || encoded === '') {
      throw keyInvalid(
        purpose,
        null,
        index,
        'must read id:base64key, with an id of 1 to 32 of A-Z a-z 0-9 . _ -',
      );
    }
    if (keys.some((earlier) => earlier.id === id)) {
      throw keyInvalid(purpose, id, index, 'uses an id twice. Give every key its own id');
    }
    if (!BASE64_KEY.test(encoded)) {
      throw keyInvalid(purpose, id, index, 'must be 32 bytes in base64 (44 characters ending in =)');
    }
    const bytes = Buffer.from(encoded, 'base64');
    const canonical = bytes.toString('base64');
    const owner = owners.get(canonical);
    if (owner !== undefined) {
      throw keyInvalid(
        purpose,
        id,
        index,
        `is the same key as ${owner}. Every id and purpose needs its own key`,
      );
    }
    owners.set(canonical, `${purpose} key ${id}`);
    keys.push({ id, secret: createSecretKey(bytes) });
    bytes.fill(0);
  }
  return keys;
}

/** One fresh key as an entry: `purpose-` and 8 random hex characters as its id, then 32 random bytes. */
export function generateEntry(purpose: KeyPurpose): string {
  return `${purpose}-${randomBytes(4).toString('hex')}:${randomBytes(KEY_BYTES).toString('base64')}`;
}

function keyInvalid(
  purpose: KeyPurpose,
  keyId: string | null,
  index: number,
  problem: string,
): CountersignError {
  const which = keyId === null ? `entry ${index + 1} of the ${purpose} keys` : `${purpose} key ${keyId}`;
  return new CountersignError('KEY_INVALID', `Bad key: ${which} ${problem}. ${HOW_TO_MAKE}`, {
    details: { purpose, keyId, position: index + 1 },
  });
}
