import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { KeyRing, type SealBinding, sealedKeyId } from '../../src/seal/index.ts';
import { BINDING, entry, errorOf, freshRing, handMadeRecord, withVersion } from './records.ts';

const ring = freshRing();
const PLAINTEXT = 'PLAINTEXT-of-the-run';

describe('what is sealed opens, at its own place', () => {
  test.each([
    ['nothing', ''],
    ['one byte', 'x'],
    ['text of every width', 'aé漢😀\u0000\u202e'],
    ['a byte order mark', '\ufeffx'],
    ['5 MB', 'x'.repeat(5_000_000)],
  ])('%s', (_name, text) => {
    const sealed = ring.seal('state', text, BINDING);
    expect(ring.openText('state', sealed, BINDING)).toBe(text);
    expect(ring.open('state', sealed, BINDING).equals(Buffer.from(text))).toBe(true);
  });

  test('bytes, JSON and both purposes', () => {
    const bytes = randomBytes(1_000);
    expect(ring.open('review', ring.seal('review', bytes, BINDING), BINDING).equals(bytes)).toBe(true);
    const value = { a: [1, null, 'é'], b: { constructor: true } };
    expect(ring.openJson('state', ring.sealJson('state', value, BINDING), BINDING)).toEqual(value);
  });

  test('a plain Uint8Array opens as well as a Buffer, also as a view into a larger one', () => {
    const sealed = ring.seal('state', PLAINTEXT, BINDING);
    const larger = new Uint8Array(sealed.length + 20);
    larger.set(sealed, 10);
    const view = larger.subarray(10, 10 + sealed.length);
    expect(ring.openText('state', view, BINDING)).toBe(PLAINTEXT);
    expect(sealedKeyId(view)).toBe('s1');
  });

  test('sealing twice gives records that share nothing but their header', () => {
    const pieces = (): string[] =>
      ring.seal('state', PLAINTEXT, BINDING).subarray(13).toString('hex').match(/.{24}/g) ?? [];
    const one = pieces();
    expect(pieces().filter((piece) => one.includes(piece))).toEqual([]);
    expect(ring.seal('state', PLAINTEXT, BINDING).includes(PLAINTEXT)).toBe(false);
  });

  test('a record costs at most 131 bytes', () => {
    const longest = KeyRing.parse({ state: entry('k'.repeat(32)), review: entry('r') });
    expect(longest.seal('state', '', BINDING)).toHaveLength(131);
    expect(ring.seal('state', '12345', BINDING)).toHaveLength(99 + 's1'.length + 5);
  });

  test('a record written by hand from the documented layout opens: the format is pinned', () => {
    const key = randomBytes(32);
    const pinned = KeyRing.parse({ state: `k-1:${key.toString('base64')}`, review: entry('r') });
    expect(pinned.openText('state', handMadeRecord('k-1', key, PLAINTEXT), BINDING)).toBe(PLAINTEXT);
  });
});

describe('S27: a record that was moved does not open', () => {
  const swaps: [string, SealBinding][] = [
    ['another tenant', { ...BINDING, tenant: 'tenant-2' }],
    ['another table', { ...BINDING, table: 'actions' }],
    ['another column', { ...BINDING, column: 'arguments' }],
    ['another run', { ...BINDING, row: 'run-2' }],
    ['another version of the run', { ...BINDING, sequence: 2 }],
    ['version 0', { ...BINDING, sequence: 0 }],
  ];
  const { sequence: _sequence, ...withoutSequence } = BINDING;
  swaps.push(['no version', withoutSequence]);

  test.each(swaps)('%s: both ways, and for a re-wrap too', (_name, other) => {
    const here = ring.seal('state', PLAINTEXT, BINDING);
    const there = ring.seal('state', PLAINTEXT, other);
    for (const call of [
      () => ring.open('state', here, other),
      () => ring.open('state', there, BINDING),
      () => ring.openJson('state', here, other),
      () => ring.rewrap('state', here, other),
    ]) {
      const error = errorOf(call);
      expect(error.code).toBe('SEAL_BROKEN');
      expect(error.details.reason).toBe('not_authentic');
      expect(error.message + JSON.stringify(error) + error.stack).not.toContain('PLAINTEXT');
    }
  });

  test('sequence 0 is not the same as none', () => {
    const sealed = ring.seal('state', PLAINTEXT, { ...BINDING, sequence: 0 });
    expect(errorOf(() => ring.open('state', sealed, withoutSequence)).code).toBe('SEAL_BROKEN');
  });

  test('text that shifts between the parts of a binding does not make two bindings one', () => {
    const sealed = ring.seal('state', PLAINTEXT, { ...BINDING, table: 'a', column: 'b","c' });
    const error = errorOf(() => ring.open('state', sealed, { ...BINDING, table: 'a","b', column: 'c' }));
    expect(error.code).toBe('SEAL_BROKEN');
  });

  test('halves of two records do not make one, even at the same binding', () => {
    const one = ring.seal('state', PLAINTEXT, BINDING);
    const two = ring.seal('state', PLAINTEXT, BINDING);
    const payloadAt = 71 + 's1'.length;
    const mixed = Buffer.concat([one.subarray(0, payloadAt), two.subarray(payloadAt)]);
    expect(errorOf(() => ring.open('state', mixed, BINDING)).code).toBe('SEAL_BROKEN');
  });
});

describe('S27: a damaged record does not open', () => {
  const sealed = ring.seal('state', PLAINTEXT, BINDING);

  test('a flipped bit at any position is SEAL_BROKEN, and never "too new" or "key missing"', () => {
    for (let at = 0; at < sealed.length; at += 1) {
      for (let bit = 0; bit < 8; bit += 1) {
        const flipped = Buffer.from(sealed);
        flipped[at] = (flipped[at] ?? 0) ^ (1 << bit);
        expect(errorOf(() => ring.open('state', flipped, BINDING)).code, `byte ${at} bit ${bit}`).toBe(
          'SEAL_BROKEN',
        );
      }
    }
  });

  test('every truncation is SEAL_BROKEN, and so is a byte too many', () => {
    for (let length = 0; length < sealed.length; length += 1) {
      const cut = sealed.subarray(0, length);
      expect(errorOf(() => ring.open('state', cut, BINDING)).code, `${length} bytes`).toBe('SEAL_BROKEN');
      expect(errorOf(() => ring.open('state', sealed.subarray(length + 1), BINDING)).code).toBe(
        'SEAL_BROKEN',
      );
    }
    expect(errorOf(() => ring.open('state', Buffer.concat([sealed, Buffer.from([0])]), BINDING)).code).toBe(
      'SEAL_BROKEN',
    );
  });

  test('bytes that were never sealed are SEAL_BROKEN', () => {
    for (const bytes of [
      Buffer.from('{"state":"plain"}'),
      Buffer.alloc(500),
      randomBytes(500),
      Buffer.alloc(0),
    ]) {
      expect(errorOf(() => ring.open('state', bytes, BINDING)).details.reason).toBe('malformed');
      expect(errorOf(() => sealedKeyId(bytes)).code).toBe('SEAL_BROKEN');
    }
  });

  test('the error says where the record lies, and nothing of what it holds', () => {
    const flipped = Buffer.from(sealed);
    flipped[sealed.length - 1] = (flipped[sealed.length - 1] ?? 0) ^ 1;
    const error = errorOf(() => ring.openText('state', flipped, BINDING));
    expect(error.message).toContain('checkpoints.state of row run-1, sequence 3');
    expect(error.details).toEqual({
      reason: 'not_authentic',
      table: 'checkpoints',
      column: 'state',
      row: 'run-1',
      sequence: 3,
    });
    expect(error.message + error.stack).not.toContain('PLAINTEXT');
    expect(error.cause).toBeUndefined();
  });

  test('authentic bytes that are no text or no JSON are SEAL_BROKEN, without being quoted', () => {
    const bytes = ring.seal('state', Buffer.from([0x50, 0xff, 0xfe]), BINDING);
    expect(errorOf(() => ring.openText('state', bytes, BINDING)).details.reason).toBe('not_text');
    const error = errorOf(() => ring.openJson('state', sealed, BINDING));
    expect(error.details.reason).toBe('not_json');
    expect(error.message + error.stack).not.toContain('PLAINTEXT');
    expect(error.cause).toBeUndefined();
  });
});

describe('broken, too new and key missing are three different errors', () => {
  test('an intact record of an unknown format version is SEAL_VERSION_UNSUPPORTED', () => {
    for (const version of [0, 2, 255]) {
      const error = errorOf(() =>
        ring.open('state', withVersion(ring.seal('state', 'x', BINDING), version), BINDING),
      );
      expect(error.code).toBe('SEAL_VERSION_UNSUPPORTED');
      expect(error.details).toMatchObject({ version, table: 'checkpoints', row: 'run-1' });
    }
  });

  test('the key id of a newer record can still be read', () => {
    expect(sealedKeyId(withVersion(ring.seal('state', 'x', BINDING), 9))).toBe('s1');
  });

  test('a record of an unknown format version is not re-wrapped either', () => {
    const newer = withVersion(ring.seal('state', 'x', BINDING), 2);
    expect(errorOf(() => ring.rewrap('state', newer, BINDING)).code).toBe('SEAL_VERSION_UNSUPPORTED');
  });

  test('a key that the ring does not have is KEY_MISSING, with purpose and key id', () => {
    const other = KeyRing.parse({ state: entry('s2'), review: entry('r2') });
    const error = errorOf(() => other.open('state', ring.seal('state', 'x', BINDING), BINDING));
    expect(error.code).toBe('KEY_MISSING');
    expect(error.details).toEqual({ purpose: 'state', keyId: 's1' });
  });

  test('another key under the same id is SEAL_BROKEN', () => {
    const impostor = freshRing();
    const error = errorOf(() => impostor.open('state', ring.seal('state', 'x', BINDING), BINDING));
    expect(error.details.reason).toBe('not_authentic');
  });
});

describe('purposes are kept apart', () => {
  test('a record of one purpose does not open as the other, even where both keys have one id', () => {
    const same = KeyRing.parse({ state: entry('k'), review: entry('k') });
    const error = errorOf(() => same.open('review', same.seal('state', PLAINTEXT, BINDING), BINDING));
    expect(error.code).toBe('SEAL_BROKEN');
    expect(error.details.reason).toBe('wrong_purpose');
  });

  test('a process without the state key can review, and can neither seal nor open state', () => {
    const spec = KeyRing.generate();
    const [worker, api] = [KeyRing.parse(spec), KeyRing.parse({ review: spec.review })];
    expect([api.has('state'), api.has('review'), worker.has('state')]).toEqual([false, true, true]);
    expect(api.openText('review', worker.seal('review', 'card', BINDING), BINDING)).toBe('card');

    const sealed = worker.seal('state', PLAINTEXT, BINDING);
    const keyId = worker.currentKeyId('state');
    expect(errorOf(() => api.seal('state', 'x', BINDING)).details).toEqual({ purpose: 'state', keyId: null });
    expect(errorOf(() => api.currentKeyId('state')).code).toBe('KEY_MISSING');
    for (const call of [
      () => api.open('state', sealed, BINDING),
      () => api.rewrap('state', sealed, BINDING),
    ]) {
      const error = errorOf(call);
      expect(error.code).toBe('KEY_MISSING');
      expect(error.details).toEqual({ purpose: 'state', keyId });
    }
  });
});

describe('what cannot be bound or kept is not sealed', () => {
  test.each(['tenant', 'table', 'column', 'row'] as const)('an empty or absent %s is refused', (part) => {
    const sealed = ring.seal('state', 'x', BINDING);
    for (const value of ['', undefined, null]) {
      const unbound = { ...BINDING, [part]: value } as SealBinding;
      expect(errorOf(() => ring.seal('state', 'x', unbound)).code).toBe('SEAL_BINDING_INVALID');
      expect(errorOf(() => ring.open('state', sealed, unbound)).details).toEqual({ part });
    }
  });

  test.each([-1, 0.5, Number.NaN, 2 ** 53])('sequence %s is refused', (sequence) => {
    const error = errorOf(() => ring.seal('state', 'x', { ...BINDING, sequence }));
    expect(error.code).toBe('SEAL_BINDING_INVALID');
  });

  test('a text with a lone surrogate is refused, since it would come back changed', () => {
    const error = errorOf(() => ring.seal('state', 'SECRET\ud800', BINDING));
    expect(error.code).toBe('NOT_PLAIN_JSON');
    expect(error.message).toContain('checkpoints.state');
    expect(error.message).not.toContain('SECRET');
  });
});
