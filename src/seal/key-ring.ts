import { isUtf8 } from 'node:buffer';
import { inspect } from 'node:util';
import { isWellFormed, type JsonValue } from '../digests/index.ts';
import { CountersignError } from '../errors.ts';
import type { KeyPurpose, SealBinding } from './binding.ts';
import { type NamedKey, openEnvelope, rewrapEnvelope, sealEnvelope } from './envelope.ts';
import { keyMissing, sealBroken } from './failures.ts';
import { generateEntry, type KeySpec, parseKeys } from './key-spec.ts';
import { readPreamble, splitSealed } from './layout.ts';

/** A purpose's keys by id, and the one that seals. */
type Keys = { readonly current: NamedKey; readonly byId: ReadonlyMap<string, NamedKey> };

/**
 * The keys of this process, and the only thing that seals and opens. Owns the key material: no method returns it, and
 * neither `JSON.stringify` nor `util.inspect` shows more than key ids.
 *
 * Rotation: put a new entry first, keep the old ones behind it, restart every process that opens; then `rewrap` every
 * record whose `sealedKeyId` is old; then drop the old entries.
 */
export class KeyRing {
  readonly #keys: ReadonlyMap<KeyPurpose, Keys>;

  private constructor(keys: ReadonlyMap<KeyPurpose, Keys>) {
    this.#keys = keys;
  }

  /**
   * Reads the keys from configuration. Without `spec.state`, sealing and opening state throws KEY_MISSING.
   *
   * @throws CountersignError KEY_INVALID naming the purpose, the key's id or position, and the fix.
   */
  static parse(spec: KeySpec): KeyRing {
    const keys = new Map<KeyPurpose, Keys>();
    const owners = new Map<string, string>();
    for (const purpose of ['state', 'review'] as const) {
      const text = spec[purpose];
      if (text === undefined) continue;
      const [current, ...older] = parseKeys(purpose, text, owners);
      if (current === undefined) continue;
      keys.set(purpose, { current, byId: new Map([current, ...older].map((key) => [key.id, key])) });
    }
    return new KeyRing(keys);
  }

  /** A spec with one fresh random key per purpose, for `parse`. It is the secret: print it once, store it safely. */
  static generate(): { state: string; review: string } {
    return { state: generateEntry('state'), review: generateEntry('review') };
  }

  /** True if this process can seal for the purpose, and open what its keys have sealed. */
  has(purpose: KeyPurpose): boolean {
    return this.#keys.has(purpose);
  }

  /**
   * The id of the key that seals now; records with another `sealedKeyId` are due for `rewrap`.
   *
   * @throws CountersignError KEY_MISSING.
   */
  currentKeyId(purpose: KeyPurpose): string {
    return this.#keysFor(purpose, null).current.id;
  }

  /**
   * Encrypts the plaintext so that it opens only with this ring's key, for this purpose, at this binding.
   * The result is at most 131 bytes longer than the plaintext.
   *
   * @throws CountersignError KEY_MISSING; SEAL_BINDING_INVALID; NOT_PLAIN_JSON for a text with a lone surrogate,
   *   which would come back as U+FFFD.
   */
  seal(purpose: KeyPurpose, plaintext: string | Uint8Array, binding: SealBinding): Buffer {
    const { current } = this.#keysFor(purpose, null);
    if (typeof plaintext === 'string' && !isWellFormed(plaintext)) {
      const field = `${binding.table}.${binding.column}`;
      throw new CountersignError('NOT_PLAIN_JSON', `The text for ${field} holds half of a surrogate pair.`, {
        details: { field, found: 'lone surrogate' },
      });
    }
    return sealEnvelope(current, purpose, plaintext, binding);
  }

  /**
   * Decrypts what `seal` returned for the same purpose and binding. All or nothing: no byte of an inauthentic record
   * is ever returned.
   *
   * @throws CountersignError SEAL_BROKEN for a record that is damaged, cut short, changed, moved or sealed for another
   *   purpose; SEAL_VERSION_UNSUPPORTED for an intact one of an unknown format; KEY_MISSING for an intact one whose
   *   key this process does not have; SEAL_BINDING_INVALID.
   */
  open(purpose: KeyPurpose, sealed: Uint8Array, binding: SealBinding): Buffer {
    const parts = splitSealed(purpose, sealed, binding);
    return openEnvelope(this.#keyNamed(purpose, parts.keyId), parts, binding);
  }

  /** `open` for a text. @throws CountersignError as `open`, and SEAL_BROKEN (not_text) for bytes that are not UTF-8. */
  openText(purpose: KeyPurpose, sealed: Uint8Array, binding: SealBinding): string {
    const plaintext = this.open(purpose, sealed, binding);
    if (!isUtf8(plaintext)) throw sealBroken('not_text', binding);
    return plaintext.toString('utf8');
  }

  /** `seal` for a JSON value; trusts the type, so check foreign values with `assertPlainJson` first. */
  sealJson(purpose: KeyPurpose, value: JsonValue, binding: SealBinding): Buffer {
    return this.seal(purpose, JSON.stringify(value), binding);
  }

  /** `open` for a JSON value. @throws CountersignError as `openText`, and SEAL_BROKEN (not_json). */
  openJson(purpose: KeyPurpose, sealed: Uint8Array, binding: SealBinding): JsonValue {
    const text = this.openText(purpose, sealed, binding);
    try {
      return JSON.parse(text) as JsonValue;
    } catch {
      // Not kept as the cause: its message quotes the text.
      throw sealBroken('not_json', binding);
    }
  }

  /**
   * The same record under the purpose's current key: only the data key is decrypted and encrypted anew, the payload's
   * bytes are copied as they are. Also re-wraps what is under the current key already, to new bytes.
   *
   * @throws CountersignError as `open`, except that damage to the payload itself is left for `open` to find.
   */
  rewrap(purpose: KeyPurpose, sealed: Uint8Array, binding: SealBinding): Buffer {
    const parts = splitSealed(purpose, sealed, binding);
    const from = this.#keyNamed(purpose, parts.keyId);
    return rewrapEnvelope(from, this.#keysFor(purpose, null).current, parts, binding);
  }

  /** Key ids only. */
  toJSON(): Partial<Record<KeyPurpose, string[]>> {
    return Object.fromEntries([...this.#keys].map(([purpose, { byId }]) => [purpose, [...byId.keys()]]));
  }

  /** Key ids only. */
  [inspect.custom](): string {
    return `KeyRing ${JSON.stringify(this)}`;
  }

  #keysFor(purpose: KeyPurpose, keyId: string | null): Keys {
    const keys = this.#keys.get(purpose);
    if (keys === undefined) throw keyMissing(purpose, keyId);
    return keys;
  }

  #keyNamed(purpose: KeyPurpose, keyId: string): NamedKey {
    const key = this.#keysFor(purpose, keyId).byId.get(keyId);
    if (key === undefined) throw keyMissing(purpose, keyId);
    return key;
  }
}

/**
 * The id of the key that a record names, without opening it and in any format version. Not authenticated: use it to
 * find records that are due for `rewrap`, or keys that are still needed, never to trust one.
 *
 * @throws CountersignError SEAL_BROKEN (malformed).
 */
export function sealedKeyId(sealed: Uint8Array): string {
  return readPreamble(sealed).keyId;
}
