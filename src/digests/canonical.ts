import canonicalize from 'canonicalize';
import { CountersignError } from '../errors.ts';
import type { JsonValue } from './json.ts';

/**
 * The one text of a JSON value (RFC 8785, JCS): keys sorted by UTF-16 units, numbers in their shortest round-trip
 * form (-0 as 0), no whitespace. Two values have the same text exactly if they are the same JSON value.
 *
 * Trusts the type: what `JSON.stringify` would drop or flatten (undefined members, Map, Date) is for
 * `assertPlainJson` to refuse first.
 *
 * @throws CountersignError NOT_PLAIN_JSON for what has no canonical text at all: a lone surrogate, NaN, an infinity,
 *   a BigInt, a cycle, or nesting deep enough to exhaust the stack.
 */
export function canonicalJson(value: JsonValue): string {
  const text = tryCanonicalize(value);
  if (text === undefined) {
    throw new CountersignError(
      'NOT_PLAIN_JSON',
      'The value has no canonical JSON text (RFC 8785). Check it with assertPlainJson, which names the field.',
      { details: { field: '$', found: 'not canonical' } },
    );
  }
  return text;
}

function tryCanonicalize(value: JsonValue): string | undefined {
  try {
    return canonicalize(value);
  } catch {
    return undefined;
  }
}
