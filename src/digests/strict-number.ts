import type { RefusalReason } from './refusal.ts';

const ZERO = 0x30;
const NINE = 0x39;

/**
 * Where the JSON number that starts at `start` ends (RFC 8259 section 6).
 *
 * @returns the index after its last character, or -1 when no number starts there.
 */
export function numberEnd(text: string, start: number): number {
  let at = text.charCodeAt(start) === 0x2d /* - */ ? start + 1 : start;
  at = text.charCodeAt(at) === ZERO ? at + 1 : digitsEnd(text, at);
  if (at > 0 && text.charCodeAt(at) === 0x2e /* . */) at = digitsEnd(text, at + 1);
  if (at > 0 && (text.charCodeAt(at) | 0x20) === 0x65 /* e or E */) {
    const sign = text.charCodeAt(at + 1);
    at = digitsEnd(text, sign === 0x2b || sign === 0x2d ? at + 2 : at + 1);
  }
  return at;
}

/** The index after one or more digits, or -1 when there is none. */
function digitsEnd(text: string, start: number): number {
  let at = start;
  while (isDigit(text.charCodeAt(at))) at += 1;
  return at === start ? -1 : at;
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

/**
 * The double that a JSON number means, if it means the same to every reader: a person who reads the digits, a parser
 * with arbitrary precision, and one with doubles (RFC 7493 section 2.2). Judged by value, not by spelling, because
 * the digest is: 10, 10.0 and 1e1 are one number, and 1e16 is as much beyond 2^53-1 as 10000000000000000.
 *
 * A number survives when its exact decimal value equals that of the double's shortest round-trip text, which is what
 * RFC 8785 writes. So 0.1 survives although no double is exactly one tenth.
 *
 * @param lexeme a valid JSON number.
 * @returns the value, with -0 as 0; or the reason why it is refused.
 */
export function exactDouble(lexeme: string): number | RefusalReason {
  const value = Number(lexeme);
  if (!Number.isFinite(value)) return 'number_overflow';
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) return 'unsafe_integer';
  const shortest = String(value);
  if (shortest === lexeme) return value;
  const written = decimal(lexeme);
  if (value === 0) return written.digits === '' ? 0 : 'number_underflow';
  const kept = decimal(shortest);
  return written.digits === kept.digits && written.exponent === kept.exponent ? value : 'inexact_number';
}

/** A decimal's magnitude as digits × 10^exponent; the digits have no zero at either end, and zero has none at all. */
type Decimal = { digits: string; exponent: number };

/** Normalises a number's text, in time linear in its length. The sign is dropped: rounding never changes it. */
function decimal(text: string): Decimal {
  const mark = text.search(/[eE]/);
  const mantissa = text.slice(text.startsWith('-') ? 1 : 0, mark < 0 ? text.length : mark);
  const point = mantissa.indexOf('.');
  const fraction = point < 0 ? '' : mantissa.slice(point + 1);
  const digits = (point < 0 ? mantissa : mantissa.slice(0, point)) + fraction;
  let first = 0;
  while (digits.charCodeAt(first) === ZERO) first += 1;
  let end = digits.length;
  while (end > first && digits.charCodeAt(end - 1) === ZERO) end -= 1;
  const exponent = mark < 0 ? 0 : Number(text.slice(mark + 1));
  return { digits: digits.slice(first, end), exponent: exponent - fraction.length + (digits.length - end) };
}
