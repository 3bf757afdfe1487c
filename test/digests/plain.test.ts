import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import { assertPlainJson, parseStrictJson } from '../../src/digests/index.ts';
import { randomFrom, randomJson } from './random-json.ts';
import { errorOf } from './refusals.ts';

class Money {
  readonly amount = 10;
}

const found = (value: unknown, options = {}) => errorOf(() => assertPlainJson(value, 'context', options));

describe('a value that JSON text would lose or change is refused, with its path', () => {
  const cycle: { self?: unknown } = {};
  cycle.self = [cycle];
  const holes: unknown[] = [1, 2, 3];
  delete holes[1];

  test.each([
    ['BigInt', 10n],
    ['Date', new Date(0)],
    ['Map', new Map([['a', 1]])],
    ['Set', new Set([1])],
    ['class instance', new Money()],
    ['class instance', /x/],
    ['class instance', new Error('x')],
    ['class instance', Buffer.from('x')],
    ['class instance', Object.create({ inherited: 1 })],
    ['class instance', new (class extends Array {})()],
    ['class instance', Object(1)],
    ['proxy', new Proxy({}, {})],
    ['function', () => 1],
    ['symbol', Symbol('x')],
    ['undefined', undefined],
    ['NaN', Number.NaN],
    ['Infinity', Number.NEGATIVE_INFINITY],
    ['sparse array', holes],
    ['sparse array', new Array(3)],
    ['lone surrogate', 'x\ud800'],
    ['NUL character', 'x\0'],
  ])('%s', (name, value) => {
    const nested = found({ list: [1, { value }] });
    expect(nested.code).toBe('NOT_PLAIN_JSON');
    expect(nested.details.found).toBe(name);
    expect(nested.details.field).toMatch(/^context\.list\[1\]\.value/);
    expect(nested.message).toContain('context.list[1].value');
    expect(found([value]).details.found).toBe(name);
    expect(found(value).details.found).toBe(name);
  });

  test.each([
    ['cycle', cycle, 'context.self[0]'],
    ['toJSON method', { a: { toJSON: () => 1 } }, 'context.a.toJSON'],
    ['toJSON method', { a: Object.defineProperty({}, 'toJSON', { value: () => 1 }) }, 'context.a.toJSON'],
    ['hidden property', Object.defineProperty({}, 'a', { value: 1 }), 'context.a'],
    ['array property', Object.assign([1], { extra: 1 }), 'context'],
    ['symbol key', { [Symbol('x')]: 1 }, 'context'],
    ['unsafe key', JSON.parse('{"__proto__":1}'), 'context.__proto__'],
    ['lone surrogate', { 'x\udc00': 1 }, 'context'],
    ['NUL character', { 'x\0': 1 }, 'context'],
  ])('%s at its own place', (name, value, field) => {
    expect(found(value).details).toEqual({ field, found: name });
  });

  test('no code of the value runs', () => {
    let ran = 0;
    const run = () => {
      ran += 1;
      return 1;
    };
    const trap = new Proxy({}, { get: run, ownKeys: () => [`${run()}`], has: () => run() === 1 });
    const getter = Object.defineProperty({}, 'a', { get: run, enumerable: true });
    const element = Object.defineProperty([0], '0', { get: run, enumerable: true });
    expect(found(getter).details.found).toBe('accessor');
    expect(found(element).details.found).toBe('accessor');
    expect(found(trap).details.found).toBe('proxy');
    expect(found({ toJSON: run }).details.found).toBe('toJSON method');
    expect(ran).toBe(0);
  });

  test('no value is quoted', () => {
    for (const value of ['SECRET\0', 'SECRET\ud800', [Symbol('SECRET')], new Map([['SECRET', 'SECRET']])]) {
      const error = found({ key: value });
      expect(error.message + JSON.stringify(error)).not.toContain('SECRET');
    }
  });

  test('an object of another realm is refused rather than trusted', () => {
    expect(found(runInNewContext('({})')).details.found).toBe('class instance');
  });
});

describe('plain values are accepted', () => {
  test.each([
    ['null', null],
    ['an empty object', {}],
    ['an object without a prototype', Object.assign(Object.create(null), { a: 1 })],
    ['a frozen object', Object.freeze({ a: Object.freeze([1]) })],
    ['emoji and escapes', { '😀"\n': '😀"\n' }],
    ['an own key called constructor', { constructor: 1, toJSON: 'text' }],
    ['negative zero', -0],
  ])('%s', (_name, value) => {
    expect(() => assertPlainJson(value, 'context')).not.toThrow();
  });

  test('a value that two fields share is no cycle', () => {
    const shared = { a: 1 };
    expect(() => assertPlainJson({ one: shared, two: [shared, shared] }, 'context')).not.toThrow();
  });

  test('whatever the strict parser returns is plain', () => {
    for (let seed = 1; seed <= 500; seed += 1) {
      const value = parseStrictJson(JSON.stringify(randomJson(randomFrom(seed))));
      expect(() => assertPlainJson(value, 'arguments'), `seed ${seed}`).not.toThrow();
    }
  });
});

describe('limits', () => {
  test('32 containers may be nested, 33 may not', () => {
    const nested = (depth: number) => JSON.parse('['.repeat(depth) + ']'.repeat(depth));
    expect(() => assertPlainJson(nested(32), 'context')).not.toThrow();
    expect(found(nested(33)).details.found).toBe('too deep');
    expect(found(nested(5_000)).details.found).toBe('too deep');
  });

  test('the size is that of the JSON text in UTF-8, with its escapes', () => {
    const sized = (value: unknown, maxBytes: number) => () => assertPlainJson(value, 'context', { maxBytes });
    for (const value of ['aaaa', 'é', '漢漢', '😀', '"\n\u001f', { 'k"': [1.5, true, null, -2] }, [], {}]) {
      const bytes = Buffer.byteLength(JSON.stringify(value));
      expect(sized(value, bytes)).not.toThrow();
      expect(errorOf(sized(value, bytes - 1)).details.found).toBe('too large');
    }
  });

  test('the default size is 256 KiB, and may be raised', () => {
    const text = 'a'.repeat(256 * 1024 - 2);
    expect(() => assertPlainJson(text, 'context')).not.toThrow();
    expect(found(`${text}a`).details).toEqual({ field: 'context', found: 'too large' });
    expect(() => assertPlainJson(`${text}a`, 'context', { maxBytes: 1_000_000 })).not.toThrow();
  });

  test('10 000 values are accepted, one more is not, unless the caller says so', () => {
    expect(() => assertPlainJson(Array(9_999).fill(1), 'context')).not.toThrow();
    expect(found(Array(10_000).fill(1)).details.found).toBe('too many values');
    expect(found(new Array(4_000_000_000)).details.found).toBe('too many values');
    expect(() => assertPlainJson(Array(10_000).fill(1), 'context', { maxNodes: 20_000 })).not.toThrow();
  });

  test('a value whose text would not even fit into a string is too large', () => {
    const value = Array(9_000).fill('x'.repeat(100_000));
    expect(found(value).details.found).toBe('too large');
  });

  test('a small value that shares its parts cannot expand without bound', () => {
    let value: unknown = 'x'.repeat(1_000);
    for (let level = 0; level < 30; level += 1) value = [value, value];
    expect(['too large', 'too many values']).toContain(found(value).details.found);
  });
});
