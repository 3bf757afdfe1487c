import { hash } from 'node:crypto';
import { CountersignError } from '../errors.ts';
import { canonicalJson } from './canonical.ts';
import { isWellFormed, type JsonValue } from './json.ts';

/**
 * The digest of a JSON value: SHA-256 over the UTF-8 of its canonical text (RFC 8785), 64 lower-case hex characters.
 * Spelling, key order and whitespace do not matter; types do (10 is not "10", null is not absence).
 *
 * @throws CountersignError NOT_PLAIN_JSON as `canonicalJson` does.
 */
export function digestOf(value: JsonValue): string {
  return hash('sha256', canonicalJson(value), 'hex');
}

/**
 * The digest of a text as it stands: SHA-256 over its UTF-8, 64 lower-case hex characters.
 *
 * @throws CountersignError NOT_PLAIN_JSON for a lone surrogate, which UTF-8 would silently replace by U+FFFD.
 */
export function digestText(text: string): string {
  if (!isWellFormed(text)) {
    throw new CountersignError(
      'NOT_PLAIN_JSON',
      'The text holds half of a surrogate pair: it has no UTF-8.',
      {
        details: { field: '$', found: 'lone surrogate' },
      },
    );
  }
  return hash('sha256', text, 'hex');
}

/**
 * The digest of a list of texts, over the canonical JSON array that holds them: unlike a joined text, ['a', 'bc'],
 * ['ab', 'c'] and ['a', '', 'bc'] all differ. Put a constant word for the purpose first.
 *
 * @throws CountersignError NOT_PLAIN_JSON for a lone surrogate in a part.
 */
export function digestParts(parts: readonly string[]): string {
  return digestOf([...parts]);
}
