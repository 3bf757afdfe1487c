import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { KeyRing, sealedKeyId } from '../../src/seal/index.ts';
import { BINDING, entry, errorOf } from './records.ts';

const key = () => randomBytes(32).toString('base64');

describe('rotation', () => {
  const [one, two, review] = [entry('k1'), entry('k2'), entry('r1')];
  const before = KeyRing.parse({ state: one, review });
  const during = KeyRing.parse({ state: `${two},${one}`, review });
  const after = KeyRing.parse({ state: two, review });

  test('the first key seals, and all open', () => {
    const old = before.seal('state', 'old', BINDING);
    const fresh = during.seal('state', 'fresh', BINDING);
    expect([sealedKeyId(old), sealedKeyId(fresh)]).toEqual(['k1', 'k2']);
    expect([before, during, after].map((ring) => ring.currentKeyId('state'))).toEqual(['k1', 'k2', 'k2']);
    expect(during.openText('state', old, BINDING)).toBe('old');
    expect(during.openText('state', fresh, BINDING)).toBe('fresh');
    expect(errorOf(() => after.open('state', old, BINDING)).code).toBe('KEY_MISSING');
  });

  test('a re-wrap moves a record to the current key and leaves the payload bytes alone', () => {
    const old = before.seal('state', 'x'.repeat(1_000), BINDING);
    const rewrapped = during.rewrap('state', old, BINDING);
    expect(sealedKeyId(rewrapped)).toBe('k2');
    expect(after.openText('state', rewrapped, BINDING)).toBe('x'.repeat(1_000));
    const payload = (sealed: Buffer) => sealed.subarray(71 + 2);
    expect(payload(rewrapped).equals(payload(old))).toBe(true);
    expect(errorOf(() => before.open('state', rewrapped, BINDING)).code).toBe('KEY_MISSING');
  });

  test('a re-wrap changes the length by that of the key id only', () => {
    const long = KeyRing.parse({ state: `${entry('a-much-longer-id')},${one}`, review });
    const old = before.seal('state', 'x', BINDING);
    const rewrapped = long.rewrap('state', old, BINDING);
    expect(rewrapped.length - old.length).toBe('a-much-longer-id'.length - 'k1'.length);
    expect(long.openText('state', rewrapped, BINDING)).toBe('x');
  });

  test('a re-wrap of a record under the current key is harmless', () => {
    const sealed = after.seal('state', 'x', BINDING);
    const again = after.rewrap('state', sealed, BINDING);
    expect(again.equals(sealed)).toBe(false);
    expect(after.openText('state', again, BINDING)).toBe('x');
  });

  test('a re-wrap does not launder a damaged record', () => {
    const sealed = before.seal('state', 'x', BINDING);
    const last = sealed.length - 1;
    sealed[last] = (sealed[last] ?? 0) ^ 1;
    const rewrapped = during.rewrap('state', sealed, BINDING);
    expect(errorOf(() => during.open('state', rewrapped, BINDING)).code).toBe('SEAL_BROKEN');
  });

  test('a key id cannot be changed in place, even to one whose key the ring has', () => {
    const sealed = before.seal('state', 'x', BINDING);
    const header = after.seal('state', 'x', BINDING).subarray(0, 13);
    const renamed = Buffer.concat([header, sealed.subarray(13)]);
    expect(sealedKeyId(renamed)).toBe('k2');
    expect(errorOf(() => during.open('state', renamed, BINDING)).code).toBe('SEAL_BROKEN');
  });
});

describe('a ring is read from configuration, or refused with the fix', () => {
  test('what generate prints can be parsed, and differs each time', () => {
    const spec = KeyRing.generate();
    const ring = KeyRing.parse(spec);
    expect(ring.openText('state', ring.seal('state', 'x', BINDING), BINDING)).toBe('x');
    expect(KeyRing.generate().state).not.toBe(spec.state);
    expect(spec.state.split(':')[1]).not.toBe(spec.review.split(':')[1]);
  });

  test('spaces and line ends around an entry do not matter', () => {
    const ring = KeyRing.parse({ state: ` ${entry('a')} , ${entry('b')}\n`, review: entry('r') });
    expect(ring.toJSON()).toEqual({ state: ['a', 'b'], review: ['r'] });
  });

  test.each([
    ['nothing', '', null],
    ['no id', key(), null],
    ['an empty id', `:${key()}`, null],
    ['an id with a forbidden character', `a b:${key()}`, null],
    ['an id of 33 characters', `${'a'.repeat(33)}:${key()}`, null],
    ['a key in place of the id', `${key()}:a`, null],
    ['no key', 'a:', null],
    ['a third part', `a:${key()}:x`, null],
    ['31 bytes', `a:${randomBytes(31).toString('base64')}`, 'a'],
    ['33 bytes', `a:${randomBytes(33).toString('base64')}`, 'a'],
    ['hex instead of base64', `a:${randomBytes(32).toString('hex')}`, 'a'],
    ['a password', 'a:correct-horse-battery-staple-horse-battery-x=', 'a'],
    ['the url-safe alphabet', `a:${'-_'.repeat(21)}-=`, 'a'],
    ['a character that base64 does not have', `a:${'!'.repeat(43)}=`, 'a'],
  ])('%s is KEY_INVALID', (_name, state, keyId) => {
    const error = errorOf(() => KeyRing.parse({ state, review: entry('r') }));
    expect(error.code).toBe('KEY_INVALID');
    expect(error.details).toEqual({ purpose: 'state', keyId, position: 1 });
    expect(error.message).toContain('openssl rand -base64 32');
    const secret = state.match(/[A-Za-z0-9+/=!-]{30,}/)?.[0];
    if (secret !== undefined)
      expect(error.message + error.stack + JSON.stringify(error)).not.toContain(secret);
  });

  test('the error names the purpose and the place of a bad entry', () => {
    const error = errorOf(() => KeyRing.parse({ state: entry('s'), review: `${entry('r')},` }));
    expect(error.message).toContain('entry 2 of the review keys');
    expect(error.details).toEqual({ purpose: 'review', keyId: null, position: 2 });
  });

  test('an id that occurs twice is refused', () => {
    const error = errorOf(() => KeyRing.parse({ state: `${entry('a')},${entry('a')}`, review: entry('r') }));
    expect(error.message).toContain('state key a');
    expect(error.details).toEqual({ purpose: 'state', keyId: 'a', position: 2 });
  });

  test('one key for both purposes is refused, and so is one key under two ids', () => {
    const shared = key();
    const both = errorOf(() => KeyRing.parse({ state: `s:${shared}`, review: `r:${shared}` }));
    expect(both.code).toBe('KEY_INVALID');
    expect(both.message).toContain('review key r is the same key as state key s');
    const older = errorOf(() => KeyRing.parse({ state: entry('s'), review: `r1:${shared},r2:${shared}` }));
    expect(older.message).toContain('review key r2 is the same key as review key r1');
    expect(both.message + older.message).not.toContain(shared);
  });
});

describe('a ring never shows a key', () => {
  test('not by JSON, inspection, string conversion or its properties', () => {
    const spec = KeyRing.generate();
    const ring = KeyRing.parse(spec);
    const shown = [
      JSON.stringify({ ring }),
      inspect(ring),
      inspect({ ring }, { depth: 10, showHidden: true, getters: true }),
      inspect(ring, { customInspect: false, depth: 10, showHidden: true }),
      String(ring),
      JSON.stringify(Object.getOwnPropertyDescriptors(ring)),
      JSON.stringify(Reflect.ownKeys(ring)),
    ].join('\n');
    for (const text of [spec.state, spec.review]) {
      const [id = '', encoded = ''] = text.split(':');
      expect(shown).toContain(id);
      expect(shown).not.toContain(encoded);
      expect(shown).not.toContain(Buffer.from(encoded, 'base64').toString('hex'));
    }
  });
});
