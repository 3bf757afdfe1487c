import { isWellFormed, type JsonObject, type JsonValue, MAX_BYTES, MAX_DEPTH, MAX_NODES } from './json.ts';
import type { PathStep } from './path.ts';
import { type RefusalReason, refusal } from './refusal.ts';
import { exactDouble, numberEnd } from './strict-number.ts';

/** Where the single pass stands. */
type Cursor = {
  readonly text: string;
  /** Index of the next character to read, in UTF-16 units. */
  at: number;
  /** Values begun so far. */
  nodes: number;
  /** Containers open now. */
  depth: number;
  /** path[i] is the key or index being read in the container at depth i + 1; entries past `depth` are stale. */
  readonly path: PathStep[];
};

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Parses text that a model produced, or refuses it when two honest readers could read it differently.
 *
 * Accepts a subset of RFC 8259, close to I-JSON (RFC 7493): no duplicate keys (compared after unescaping), no
 * `__proto__` key, no number whose exact value a double does not carry, no integer beyond ±(2^53-1), no lone
 * surrogate, no U+0000; at most 32 containers deep, 256 KiB of UTF-8 and 10 000 values. Whatever is accepted equals
 * what `JSON.parse` returns, except that -0 is 0 (as in RFC 8785), so that a value and its digest never disagree.
 *
 * One pass, linear in the length of the text.
 *
 * @throws CountersignError ARGUMENTS_REFUSED, details { reason: RefusalReason, path }. The message names the field
 *   and the fix, and never quotes a value.
 */
export function parseStrictJson(text: string): JsonValue {
  // A UTF-16 unit is 1 to 3 bytes of UTF-8: short texts, nearly all of them, need no count.
  if (text.length > MAX_BYTES || (text.length * 3 > MAX_BYTES && Buffer.byteLength(text) > MAX_BYTES)) {
    throw refusal('too_large');
  }
  const cursor: Cursor = { text, at: 0, nodes: 0, depth: 0, path: [] };
  skipWhitespace(cursor);
  const value = readValue(cursor);
  skipWhitespace(cursor);
  if (cursor.at < text.length) throw refused(cursor, 'malformed');
  return value;
}

/** Reads one value; the cursor is at its first character, and ends after its last. */
function readValue(cursor: Cursor): JsonValue {
  cursor.nodes += 1;
  if (cursor.nodes > MAX_NODES) throw refused(cursor, 'too_many_values');
  switch (cursor.text.charCodeAt(cursor.at)) {
    case QUOTE:
      return readString(cursor);
    case OPEN_BRACE:
      return readObject(cursor);
    case OPEN_BRACKET:
      return readArray(cursor);
    case 0x74 /* t */:
      return readWord(cursor, 'true', true);
    case 0x66 /* f */:
      return readWord(cursor, 'false', false);
    case 0x6e /* n */:
      return readWord(cursor, 'null', null);
    default:
      return readNumber(cursor);
  }
}

function readObject(cursor: Cursor): JsonObject {
  openContainer(cursor);
  const object: JsonObject = {};
  if (skipIf(cursor, CLOSE_BRACE)) return closeContainer(cursor, object);
  for (;;) {
    if (cursor.text.charCodeAt(cursor.at) !== QUOTE) throw refused(cursor, 'malformed');
    readMember(cursor, object);
    skipWhitespace(cursor);
    if (skipIf(cursor, COMMA)) continue;
    if (!skipIf(cursor, CLOSE_BRACE)) throw refused(cursor, 'malformed');
    return closeContainer(cursor, object);
  }
}

/** Reads `"key": value` and adds it to the object as an own data property, whatever the key is called. */
function readMember(cursor: Cursor, object: JsonObject): void {
  const key = readString(cursor);
  cursor.path[cursor.depth - 1] = key;
  const known = key in object;
  if (known) {
    if (key === '__proto__') throw refused(cursor, 'unsafe_key');
    if (Object.hasOwn(object, key)) throw refused(cursor, 'duplicate_key');
  }
  skipWhitespace(cursor);
  if (!skipIf(cursor, COLON)) throw refused(cursor, 'malformed');
  const value = readValue(cursor);
  if (known) {
    // An inherited name such as `constructor`: plain assignment would fail where Object.prototype is frozen.
    Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  } else {
    object[key] = value;
  }
}

function readArray(cursor: Cursor): JsonValue[] {
  openContainer(cursor);
  const array: JsonValue[] = [];
  if (skipIf(cursor, CLOSE_BRACKET)) return closeContainer(cursor, array);
  for (;;) {
    cursor.path[cursor.depth - 1] = array.length;
    array.push(readValue(cursor));
    skipWhitespace(cursor);
    if (skipIf(cursor, COMMA)) continue;
    if (!skipIf(cursor, CLOSE_BRACKET)) throw refused(cursor, 'malformed');
    return closeContainer(cursor, array);
  }
}

function openContainer(cursor: Cursor): void {
  if (cursor.depth === MAX_DEPTH) throw refused(cursor, 'too_deep');
  cursor.path[cursor.depth] = null;
  cursor.depth += 1;
  cursor.at += 1;
  skipWhitespace(cursor);
}

function closeContainer<Container>(cursor: Cursor, container: Container): Container {
  cursor.depth -= 1;
  return container;
}

/** Reads a string or a key; the cursor is at its opening quote. */
function readString(cursor: Cursor): string {
  const { text } = cursor;
  const start = cursor.at + 1;
  let escaped = false;
  let surrogates = false;
  let at = start;
  for (; ; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) break;
    if (code === BACKSLASH) {
      escaped = true;
      at += 1;
    } else if (code >= 0xd800 && code <= 0xdfff) {
      surrogates = true;
    } else if (!(code >= 0x20)) {
      // A raw control character, or NaN: the text ended inside the string.
      cursor.at = at;
      throw refused(cursor, code === 0 ? 'nul_character' : 'malformed');
    }
  }
  const raw = text.slice(start, at);
  if (surrogates && !isWellFormed(raw)) throw refused(cursor, 'lone_surrogate');
  const string = escaped ? decodeEscapes(cursor, at + 1) : raw;
  cursor.at = at + 1;
  return string;
}

/** Decodes the string between the cursor and `end`, quotes included, and checks what its escapes brought in. */
function decodeEscapes(cursor: Cursor, end: number): string {
  let string: string;
  try {
    string = JSON.parse(cursor.text.slice(cursor.at, end)) as string;
  } catch {
    // Not kept as the cause: its message quotes the text.
    throw refused(cursor, 'malformed');
  }
  if (!isWellFormed(string)) throw refused(cursor, 'lone_surrogate');
  if (string.includes('\0')) throw refused(cursor, 'nul_character');
  return string;
}

function readNumber(cursor: Cursor): number {
  const end = numberEnd(cursor.text, cursor.at);
  if (end < 0) throw refused(cursor, 'malformed');
  const value = exactDouble(cursor.text.slice(cursor.at, end));
  if (typeof value === 'string') throw refused(cursor, value);
  cursor.at = end;
  return value;
}

function readWord<Value>(cursor: Cursor, word: string, value: Value): Value {
  if (!cursor.text.startsWith(word, cursor.at)) throw refused(cursor, 'malformed');
  cursor.at += word.length;
  return value;
}

/** Steps over the character if it is the next one, and over the whitespace behind it. */
function skipIf(cursor: Cursor, code: number): boolean {
  if (cursor.text.charCodeAt(cursor.at) !== code) return false;
  cursor.at += 1;
  skipWhitespace(cursor);
  return true;
}

/** Space, tab, line feed and carriage return: the only whitespace of RFC 8259. */
function skipWhitespace(cursor: Cursor): void {
  const { text } = cursor;
  let code = text.charCodeAt(cursor.at);
  while (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) {
    cursor.at += 1;
    code = text.charCodeAt(cursor.at);
  }
}

function refused(cursor: Cursor, reason: RefusalReason): Error {
  const offset = reason === 'malformed' ? cursor.at : undefined;
  return refusal(reason, cursor.path.slice(0, cursor.depth), offset);
}
