import { CountersignError } from '../errors.ts';
import { MAX_BYTES, MAX_DEPTH, MAX_NODES } from './json.ts';
import { formatPath, type PathStep } from './path.ts';

/**
 * For each reason why argument text is refused: what is wrong, then what to send instead.
 * The sentences go back to the model, so they never quote a value.
 */
const SENTENCES = {
  malformed: 'the text is not valid JSON (RFC 8259). Send exactly one JSON document and nothing around it',
  duplicate_key: 'the same key occurs twice in one object. Send each key once',
  unsafe_key: 'the key __proto__ is not allowed. Rename it',
  unsafe_integer: 'the number is beyond ±(2^53-1), where integers are no longer exact. Send it as a string',
  inexact_number:
    'the number has more digits than a double can carry. Send it as a string, or round it first',
  number_overflow: 'the number is too large for a double. Send it as a string',
  number_underflow: 'the number is not zero but too small for a double. Send it as a string, or send 0',
  lone_surrogate:
    'a string or key holds half of a surrogate pair, which is not text. Send complete characters',
  nul_character: 'a string or key holds U+0000. Remove it',
  too_deep: `more than ${MAX_DEPTH} arrays and objects are nested. Send a flatter document`,
  too_large: `the text is longer than ${MAX_BYTES} bytes. Send less, or send a reference`,
  too_many_values: `the document holds more than ${MAX_NODES} values. Send fewer, or send a reference`,
} as const;

/** Why `parseStrictJson` refused a text: closed, stable, found in the error's `details.reason`. */
export type RefusalReason = keyof typeof SENTENCES;

/**
 * The error for a refused argument text.
 *
 * @param steps the path to the field, outermost first.
 * @param offset zero-based index into the text in UTF-16 units; named only where a path alone does not help.
 * @returns ARGUMENTS_REFUSED with details { reason, path }.
 */
export function refusal(
  reason: RefusalReason,
  steps: readonly PathStep[] = [],
  offset?: number,
): CountersignError {
  const path = formatPath('$', steps);
  const place = offset === undefined ? path : `${path} (character ${offset + 1})`;
  return new CountersignError('ARGUMENTS_REFUSED', `Arguments refused at ${place}: ${SENTENCES[reason]}.`, {
    details: { reason, path },
  });
}
