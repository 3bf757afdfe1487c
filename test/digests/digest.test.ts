import { describe, expect, test } from 'vitest';
import {
  canonicalJson,
  digestOf,
  digestParts,
  digestText,
  parseStrictJson,
} from '../../src/digests/index.ts';
import { errorOf } from './refusals.ts';

const digestOfText = (text: string) => digestOf(parseStrictJson(text));

describe('S19: the digest of model arguments', () => {
  test.each([
    '{"to":"acme","amount":10}',
    '{ "amount": 1e1, "to": "\\u0061cme" }',
    '{"to":"acme","amount":10.0}',
  ])('order, whitespace, escapes and number spelling do not change the digest: %s', (text) => {
    expect(digestOfText(text)).toBe('d8176674f5ef464959eb65d18b879af411476030418694d1f094cccccd476e06');
  });

  test.each(['-0', '0', '0.0', '-0e5', '0e400'])('every spelling of zero has one digest: %s', (amount) => {
    const digest = '05dca7b54ca8d28671d4955a320a14b363ee3091d0ec14ae1cc6dd006cdb40dd';
    expect(digestOfText(`{"to":"acme","amount":${amount}}`)).toBe(digest);
  });

  test('a string of digits is not the number', () => {
    const digest = 'dbe19e6044867e14cc8f71de4bab971f28ade5e62851dda2a73f6358469c53ba';
    expect(digestOfText('{"to":"acme","amount":"10"}')).toBe(digest);
  });

  test('a null member is not an absent one', () => {
    const digest = '0ec3ce13f00dbfb86463d705925a2a7325d7a5cb61c11e071859ec3e35ead931';
    expect(digestOfText('{"to":"acme","amount":10,"note":null}')).toBe(digest);
  });
});

describe('canonical text follows RFC 8785', () => {
  test('the sample of section 3.2.2 becomes the bytes of section 3.2.4', () => {
    const input =
      '{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],' +
      '"string":"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/","literals":[null,true,false]}';
    const bytes =
      '7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a5b3333333333333333332e' +
      '333333333333332c31652b33302c342e352c302e3030322c31652d32375d2c22737472696e67223a22e282ac245c7530303066' +
      '5c6e4127425c225c5c5c5c5c222f227d';
    expect(Buffer.from(canonicalJson(JSON.parse(input))).toString('hex')).toBe(bytes);
  });

  test('keys are sorted by UTF-16 units, as in section 3.2.3', () => {
    const input = {
      '\u20ac': 'Euro Sign',
      '\r': 'Carriage Return',
      '\ufb33': 'Hebrew Letter Dalet With Dagesh',
      '1': 'One',
      '\u{1f600}': 'Emoji: Grinning Face',
      '\u0080': 'Control',
      '\u00f6': 'Latin Small Letter O With Diaeresis',
    };
    expect(
      Object.values(
        JSON.parse(
          `[${canonicalJson(input)
            .replaceAll(/"[^"]*":/g, '')
            .slice(1, -1)}]`,
        ),
      ),
    ).toEqual([
      'Carriage Return',
      'One',
      'Control',
      'Latin Small Letter O With Diaeresis',
      'Euro Sign',
      'Emoji: Grinning Face',
      'Hebrew Letter Dalet With Dagesh',
    ]);
  });

  test.each([
    ['0000000000000000', '0'],
    ['8000000000000000', '0'],
    ['0000000000000001', '5e-324'],
    ['8000000000000001', '-5e-324'],
    ['7fefffffffffffff', '1.7976931348623157e+308'],
    ['ffefffffffffffff', '-1.7976931348623157e+308'],
    ['4340000000000000', '9007199254740992'],
    ['c340000000000000', '-9007199254740992'],
    ['4430000000000000', '295147905179352830000'],
    ['44b52d02c7e14af5', '9.999999999999997e+22'],
    ['44b52d02c7e14af6', '1e+23'],
    ['44b52d02c7e14af7', '1.0000000000000001e+23'],
    ['444b1ae4d6e2ef4e', '999999999999999700000'],
    ['444b1ae4d6e2ef4f', '999999999999999900000'],
    ['444b1ae4d6e2ef50', '1e+21'],
    ['3eb0c6f7a0b5ed8c', '9.999999999999997e-7'],
    ['3eb0c6f7a0b5ed8d', '0.000001'],
    ['41b3de4355555553', '333333333.3333332'],
    ['41b3de4355555554', '333333333.33333325'],
    ['41b3de4355555555', '333333333.3333333'],
    ['41b3de4355555556', '333333333.3333334'],
    ['41b3de4355555557', '333333333.33333343'],
    ['becbf647612f3696', '-0.0000033333333333333333'],
    ['43143ff3c1cb0959', '1424953923781206.2'],
  ])('the double %s of appendix B is written %s', (bits, text) => {
    expect(canonicalJson(Buffer.from(bits, 'hex').readDoubleBE())).toBe(text);
  });

  test.each([
    ['NaN', Number.NaN],
    ['an infinity', Number.POSITIVE_INFINITY],
    ['a lone surrogate', ['\ud800']],
    ['a lone surrogate in a key', { '\udc00': 1 }],
  ])('%s has no canonical text', (_name, value) => {
    expect(errorOf(() => canonicalJson(value)).code).toBe('NOT_PLAIN_JSON');
  });

  test('nesting that would exhaust the stack is an error of ours, not a crash', () => {
    const deep = JSON.parse('['.repeat(20_000) + ']'.repeat(20_000));
    expect(errorOf(() => canonicalJson(deep)).code).toBe('NOT_PLAIN_JSON');
  });
});

describe('the digest of texts', () => {
  test('a text is digested as its UTF-8 stands', () => {
    expect(digestText('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
    expect(digestText('é')).not.toBe(digestText('e\u0301'));
  });

  test('a lone surrogate is refused, since UTF-8 would make it U+FFFD', () => {
    expect(errorOf(() => digestText('a\ud800')).code).toBe('NOT_PLAIN_JSON');
    expect(errorOf(() => digestParts(['a\ud800'])).code).toBe('NOT_PLAIN_JSON');
  });

  test('parts never run into each other', () => {
    const lists = [['a', 'bc'], ['ab', 'c'], ['abc'], ['a', '', 'bc'], ['a","bc'], ['', 'abc'], [], ['']];
    expect(new Set(lists.map(digestParts)).size).toBe(lists.length);
    expect(digestParts(['a', 'bc'])).toBe(digestText('["a","bc"]'));
  });
});
