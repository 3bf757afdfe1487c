import { describe, expect, test } from 'vitest';
import { parseStrictJson } from '../../src/digests/index.ts';
import { refusalOf, refused, refusedFor } from './refusals.ts';

describe('S19: argument text that two readers could read differently is refused', () => {
  test.each([
    ['a duplicate key', '{"to":"evil","to":"acme","amount":10}', 'duplicate_key', '$.to'],
    ['an integer beyond 2^53-1', '{"to":"acme","amount":9007199254740993}', 'unsafe_integer', '$.amount'],
    ['its even neighbour', '{"to":"acme","amount":9007199254740992}', 'unsafe_integer', '$.amount'],
    ['a negative one', '{"to":"acme","amount":-9007199254740992}', 'unsafe_integer', '$.amount'],
    ['too many digits', '{"to":"acme","amount":10.0000000000000000001}', 'inexact_number', '$.amount'],
    ['an infinite number', '{"to":"acme","amount":1e400}', 'number_overflow', '$.amount'],
  ] as const)('%s', (_name, text, reason, path) => {
    expect(refused(text)).toEqual(refusedFor(reason, path));
  });
});

describe('a number is accepted exactly if a double carries it', () => {
  test.each([
    ['10', 10],
    ['10.0', 10],
    ['1e1', 10],
    ['1E+1', 10],
    ['100e-1', 10],
    ['0.1', 0.1],
    ['1.10', 1.1],
    ['0.30000000000000004', 0.1 + 0.2],
    ['9007199254740991', Number.MAX_SAFE_INTEGER],
    ['-9007199254740991', Number.MIN_SAFE_INTEGER],
    ['9007199254740991.0', Number.MAX_SAFE_INTEGER],
    ['5e-324', Number.MIN_VALUE],
    ['-0', 0],
    ['0e999999999999', 0],
    [`1${'0'.repeat(300)}e-300`, 1],
    [`0.${'0'.repeat(300)}1e301`, 1],
  ])('%s', (text, value) => {
    expect(parseStrictJson(text)).toBe(value);
  });

  test.each([
    ['1e16', 'unsafe_integer'],
    ['9007199254740991.5', 'unsafe_integer'],
    ['1e308', 'unsafe_integer'],
    ['9007199254740991.4', 'inexact_number'],
    ['0.1000000000000000055511151231257827', 'inexact_number'],
    ['333333333.33333329', 'inexact_number'],
    ['4e-324', 'inexact_number'],
    ['1e-400', 'number_underflow'],
    ['-1e-400', 'number_underflow'],
    ['2e-324', 'number_underflow'],
    ['-1e400', 'number_overflow'],
    ['1e99999999999999999999', 'number_overflow'],
  ] as const)('%s is refused as %s', (text, reason) => {
    expect(refused(text)).toEqual(refusedFor(reason));
  });
});

describe('keys', () => {
  test.each([
    '{"a":1,"\\u0061":2}',
    '{"a":1,"a":1}',
    '{"":1,"":2}',
    '{"constructor":1,"constructor":2}',
    '{"1":1,"b":2,"1":3}',
  ])('a key that occurs twice after unescaping is refused: %s', (text) => {
    expect(refused(text)).toMatchObject({ reason: 'duplicate_key' });
  });

  test('the same key in two objects is no duplicate', () => {
    expect(parseStrictJson('{"a":{"a":1},"b":[{"a":1},{"a":2}]}')).toEqual({
      a: { a: 1 },
      b: [{ a: 1 }, { a: 2 }],
    });
  });

  test.each(['{"__proto__":{"admin":true}}', '{"\\u005f_proto__":1}'])('__proto__ is refused: %s', (text) => {
    expect(refused(text)).toEqual(refusedFor('unsafe_key', '$.__proto__'));
  });

  test('constructor, prototype and other inherited names are plain data', () => {
    const text = '{"constructor":{"prototype":{"admin":true}},"prototype":1,"toString":2,"toJSON":3}';
    const value = parseStrictJson(text);
    expect(Object.keys(value as object)).toEqual(['constructor', 'prototype', 'toString', 'toJSON']);
    expect(JSON.stringify(value)).toBe(text);
    expect(({} as { admin?: boolean }).admin).toBeUndefined();
  });
});

test('a key never reaches a setter that someone put on Object.prototype', () => {
  let reached = false;
  const set = () => {
    reached = true;
  };
  Object.defineProperty(Object.prototype, 'polluted', { set, configurable: true });
  try {
    expect(Object.entries(parseStrictJson('{"polluted":1}') as object)).toEqual([['polluted', 1]]);
    expect(reached).toBe(false);
  } finally {
    Reflect.deleteProperty(Object.prototype, 'polluted');
  }
});

describe('text', () => {
  test.each([
    ['an escaped lone high surrogate', '{"a":"\\ud800"}', 'lone_surrogate', '$.a'],
    ['an escaped lone low surrogate', '{"a":"x\\udc00y"}', 'lone_surrogate', '$.a'],
    ['surrogates in the wrong order', '{"a":"\\udc00\\ud800"}', 'lone_surrogate', '$.a'],
    ['a raw lone surrogate', '{"a":"\ud800"}', 'lone_surrogate', '$.a'],
    ['a pair that is half raw and half escaped', '{"a":"\ud83d\\ude00"}', 'lone_surrogate', '$.a'],
    ['a lone surrogate in a key', '{"b":{"\\ud800":1}}', 'lone_surrogate', '$.b'],
    ['an escaped NUL', '{"a":["","\\u0000"]}', 'nul_character', '$.a[1]'],
    ['a raw NUL', '{"a":"\0"}', 'nul_character', '$.a'],
    ['a NUL in a key', '{"a\\u0000":1}', 'nul_character', '$'],
  ] as const)('%s is refused', (_name, text, reason, path) => {
    expect(refused(text)).toEqual(refusedFor(reason, path));
  });

  test('pairs, invisible characters and foreign scripts come through unchanged', () => {
    const text = '😀\u202e\u200b\ufeff\u00ad\u2028 漢字 العربية раypal';
    expect(parseStrictJson(JSON.stringify(text))).toBe(text);
    expect(parseStrictJson('"\\ud83d\\ude00 \\"\\\\\\/\\b\\f\\n\\r\\t"')).toBe('😀 "\\/\b\f\n\r\t');
  });
});

describe('text that is not one JSON document is refused', () => {
  const malformed = [
    '',
    ' ',
    '{',
    '[',
    '"',
    '"a',
    '"\\',
    '"\\"',
    '{"a"',
    '{"a":',
    '{"a":1',
    '{"a":1,',
    '[1',
    '[1,',
  ];
  malformed.push(
    '{"a":1,}',
    '[1,]',
    '[,1]',
    '{,}',
    '{a:1}',
    "{'a':1}",
    '{"a" 1}',
    '{1:2}',
    '[1 2]',
    '{"a":1 "b":2}',
  );
  malformed.push(
    '01',
    '-',
    '+1',
    '.5',
    '5.',
    '1e',
    '1e+',
    '0x10',
    '-01',
    '1_000',
    'NaN',
    'Infinity',
    '-Infinity',
  );
  malformed.push(
    'nul',
    'True',
    'undefined',
    '1 2',
    '{}{}',
    '{} x',
    '// c\n1',
    '/**/1',
    '\ufeff{}',
    '\u00a01',
    '\v1',
  );
  malformed.push(
    '"\t"',
    '"\n"',
    '"\\x41"',
    '"\\u12"',
    '"\\u 041"',
    ']',
    '}',
    ',',
    ':',
    '\ud800',
    '```json\n{}\n```',
  );

  test.each(malformed.map((text) => [JSON.stringify(text), text] as const))('%s', (_shown, text) => {
    expect(() => JSON.parse(text)).toThrow();
    expect(refused(text)).toMatchObject({ code: 'ARGUMENTS_REFUSED', reason: 'malformed' });
  });

  test('the message says where the text stops being JSON', () => {
    const { message, details } = refusalOf('{"a":[1,2,x]}');
    expect(details).toEqual({ reason: 'malformed', path: '$.a[2]' });
    expect(message).toContain('$.a[2] (character 11)');
  });
});

describe('limits', () => {
  test('32 containers may be nested, 33 may not', () => {
    expect(parseStrictJson('['.repeat(32) + ']'.repeat(32))).toBeInstanceOf(Array);
    expect(refused('['.repeat(33) + ']'.repeat(33))).toMatchObject({ reason: 'too_deep' });
    expect(refused(`${'{"a":'.repeat(32)}{}${'}'.repeat(32)}`)).toMatchObject({ reason: 'too_deep' });
    expect(refused('['.repeat(200_000))).toMatchObject({ reason: 'too_deep' });
  });

  test('256 KiB of UTF-8 are accepted, one byte more is not', () => {
    const limit = 256 * 1024;
    expect(parseStrictJson(`"${'a'.repeat(limit - 2)}"`)).toHaveLength(limit - 2);
    expect(refused(`"${'a'.repeat(limit - 1)}"`)).toEqual(refusedFor('too_large'));
    expect(parseStrictJson(`"${'é'.repeat(limit / 2 - 1)}"`)).toHaveLength(limit / 2 - 1);
    expect(refused(`"${'é'.repeat(limit / 2 - 1)}a"`)).toEqual(refusedFor('too_large'));
  });

  test('10 000 values are accepted, one more is not', () => {
    const array = (size: number) => `[${Array(size).fill('1').join(',')}]`;
    expect(parseStrictJson(array(9_999))).toHaveLength(9_999);
    expect(refused(array(10_000))).toEqual(refusedFor('too_many_values', '$[9999]'));
  });

  test.each([
    ['one long integer', '1'.repeat(260_000)],
    ['one long fraction', `0.${'0'.repeat(260_000)}1`],
    ['zeros inside a fraction', `1.${`${'0'.repeat(1_000)}1`.repeat(250)}`],
    ['escapes only', `"${'\\u0061'.repeat(43_000)}"`],
    [
      'many integer keys',
      `{${Array.from({ length: 9_990 }, (_, index) => `"${index * 7919}":1`).join(',')}}`,
    ],
    ['whitespace only', ' '.repeat(260_000)],
  ])('the largest hostile text takes milliseconds, not seconds: %s', (_name, text) => {
    const started = performance.now();
    try {
      parseStrictJson(text);
    } catch {
      // Refused or not, it has to be quick.
    }
    expect(performance.now() - started).toBeLessThan(500);
  });
});

describe('a refusal tells the model what to fix and nobody else what it said', () => {
  test.each([
    '{"card":"SECRET","card":"SECRET"}',
    '{"card":"SECRET\\ud800"}',
    '{"card":"SECRET\\u0000"}',
    '{"card":"SECRET\\x"}',
    '{"card":"SECRET',
    '{"card":"SECRET"} SECRET',
    '[SECRET]',
  ])('no value is quoted: %s', (text) => {
    const error = refusalOf(text);
    expect(JSON.stringify(error) + error.message + error.stack).not.toContain('SECRET');
    expect(error.cause).toBeUndefined();
  });

  test('no digit of a number is quoted', () => {
    const error = refusalOf('{"card":4111111111111111411}');
    expect(error.message).toContain('$.card');
    expect(JSON.stringify(error)).not.toContain('4111');
  });

  test('a hostile key is escaped and cut, so that a path is at most 120 printable characters', () => {
    const key = `\u001b[2J\u202e"${'x'.repeat(5_000)}`;
    const text = `{"a":{${JSON.stringify(key)}:1e400}}`;
    const { message, details } = refusalOf(text);
    expect(details.path).toMatch(/^\$\.a\["\\u001b\[2J\\u202e\\"x+\.\.\.$/);
    expect(details.path).toHaveLength(120);
    expect(message).not.toContain('\u001b');
    expect(message.length).toBeLessThan(320);
  });

  test('the path counts array items from 0 and quotes keys that are not plain words', () => {
    expect(refused('{"items":[{"a":1},{"unit price":1e400}]}')).toEqual(
      refusedFor('number_overflow', '$.items[1]["unit price"]'),
    );
  });
});
