import { describe, expect, test } from 'vitest';
import { canonicalJson, digestOf, type JsonValue, parseStrictJson } from '../../src/digests/index.ts';
import { isCountersignError } from '../../src/errors.ts';
import { below, pick, type Random, randomFrom, randomJson, randomSpelling } from './random-json.ts';

/** Every failure names its seed; rerun it alone by putting the seed here. */
const SEEDS = Array.from({ length: 3_000 }, (_, index) => index + 1);

/** The value, or undefined when the text is refused with our own error; anything else is thrown on. */
function parsedOrRefused(text: string): JsonValue | undefined {
  try {
    return parseStrictJson(text);
  } catch (error) {
    if (isCountersignError(error, 'ARGUMENTS_REFUSED')) return undefined;
    throw error;
  }
}

function parsedNatively(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

describe('against JSON.parse', () => {
  test('every valid document is accepted, and is the value that JSON.parse returns', () => {
    for (const seed of SEEDS) {
      const random = randomFrom(seed);
      const value = randomJson(random);
      const text = randomSpelling(random, value);
      expect(JSON.parse(text), `seed ${seed}`).toEqual(value);
      expect(parsedOrRefused(text), `seed ${seed}: ${text}`).toEqual(JSON.parse(text));
    }
  });

  test('the digest depends on the value alone, not on its spelling', () => {
    for (const seed of SEEDS.slice(0, 500)) {
      const random = randomFrom(seed);
      const value = randomJson(random);
      const spellings = [1, 2, 3].map(() => digestOf(parseStrictJson(randomSpelling(random, value))));
      expect(new Set([digestOf(value), ...spellings]).size, `seed ${seed}`).toBe(1);
      expect(canonicalJson(parseStrictJson(canonicalJson(value))), `seed ${seed}`).toBe(canonicalJson(value));
    }
  });

  test('a damaged document is refused, or is the value that JSON.parse returns', () => {
    for (const seed of SEEDS) {
      const random = randomFrom(seed);
      const text = damaged(random, randomSpelling(random, randomJson(random)));
      const value = parsedOrRefused(text);
      if (value === undefined) continue;
      const native = parsedNatively(text);
      expect(native, `seed ${seed}: ${text}`).not.toBeUndefined();
      expect(canonicalJson(value), `seed ${seed}: ${text}`).toBe(canonicalJson(native as JsonValue));
    }
  });
});

/** The text with up to three characters dropped, repeated, replaced or added. */
function damaged(random: Random, text: string): string {
  let result = text;
  for (let count = 1 + below(random, 3); count > 0; count -= 1) {
    const at = below(random, result.length + 1);
    const middle = pick(random, [
      '',
      '"',
      '\\',
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '0',
      '9',
      '-',
      'e',
      '.',
      'u',
      '\n',
      '\0',
    ]);
    result = result.slice(0, at) + middle + result.slice(at + below(random, 2));
  }
  return result;
}

describe('against exact arithmetic', () => {
  test('a number is accepted exactly if its decimal value is that of its double and no unsafe integer', () => {
    for (const seed of SEEDS) {
      const random = randomFrom(seed);
      const text = randomDecimal(random);
      const value = Number(text);
      const exact = Number.isFinite(value) && sameRational(rational(text), rational(String(value)));
      const acceptable = exact && (!Number.isInteger(value) || Number.isSafeInteger(value));
      expect(parsedOrRefused(text) !== undefined, `seed ${seed}: ${text}`).toBe(acceptable);
    }
  });
});

function randomDecimal(random: Random): string {
  const digits = (most: number) =>
    Array.from({ length: 1 + below(random, most) }, () => below(random, 10)).join('');
  const whole = BigInt(digits(pick(random, [2, 6, 19]))).toString();
  const fraction = random() < 0.7 ? `.${digits(pick(random, [2, 8, 22]))}` : '';
  const exponent =
    random() < 0.4 ? `e${pick(random, ['', '+', '-'])}${below(random, pick(random, [5, 25, 340]))}` : '';
  return `${pick(random, ['', '-'])}${whole}${fraction}${exponent}`;
}

/** numerator × 10^exponent, exactly. */
type Rational = { numerator: bigint; exponent: number };

function rational(text: string): Rational {
  const [mantissa = '', exponent = '0'] = text.split('e');
  const [whole = '', fraction = ''] = mantissa.split('.');
  return { numerator: BigInt(whole + fraction), exponent: Number(exponent) - fraction.length };
}

function sameRational(a: Rational, b: Rational): boolean {
  const least = Math.min(a.exponent, b.exponent);
  return a.numerator * 10n ** BigInt(a.exponent - least) === b.numerator * 10n ** BigInt(b.exponent - least);
}
