import { types } from 'node:util';
import { CountersignError } from '../errors.ts';
import { isWellFormed, type JsonValue, MAX_BYTES, MAX_DEPTH, MAX_NODES } from './json.ts';
import { formatPath, type PathStep } from './path.ts';

/** What each finding is called in `details.found`, and what to do about it. */
const FIXES = {
  BigInt: 'Use a string of digits',
  Date: 'Use toISOString()',
  Map: 'Use Object.fromEntries()',
  Set: 'Use an array',
  'class instance': 'Copy the fields you need into a plain object',
  proxy: 'Copy the fields you need into a plain object',
  function: 'Leave it out',
  symbol: 'Use a string',
  'symbol key': 'Use a string key',
  undefined: 'Leave the key out, or use null',
  NaN: 'Use null, or leave the key out',
  Infinity: 'Use null, or leave the key out',
  cycle: 'Refer by an id instead',
  'sparse array': 'Fill the holes with null',
  'array property': 'Use an object for named members',
  'toJSON method': 'Call it yourself and pass its result',
  accessor: 'Copy its value into a plain property',
  'hidden property': 'Make the property enumerable, or leave it out',
  'unsafe key': 'Rename the key __proto__',
  'lone surrogate': 'Use complete characters: half of a surrogate pair is not text',
  'NUL character': 'Remove U+0000',
  'too deep': `Nest at most ${MAX_DEPTH} arrays and objects`,
  'too large': 'Pass less, or pass a reference',
  'too many values': 'Pass fewer, or pass a reference',
} as const;

type Finding = keyof typeof FIXES;

/** Limits of `assertPlainJson`; each defaults to the limit of `parseStrictJson`. */
export type PlainJsonOptions = {
  /** UTF-8 bytes of the value's JSON text. Default 256 KiB. */
  maxBytes?: number;
  /** Values in the document, containers included. Default 10 000. */
  maxNodes?: number;
};

/** Where the walk stands. */
type Walk = {
  readonly field: string;
  readonly maxBytes: number;
  readonly maxNodes: number;
  /** path[i] is the key or index being looked at in ancestors[i]. */
  readonly path: PathStep[];
  readonly ancestors: object[];
  nodes: number;
  /** UTF-16 units of all strings and keys: at least one byte each in the JSON text, and at most six. */
  units: number;
};

/**
 * Refuses a value that would not come back the same from its JSON text: BigInt, Map, Set, Date, class instances,
 * proxies, functions, symbols, undefined, NaN and infinities, cycles, sparse arrays, toJSON methods, accessors,
 * hidden or symbol-keyed properties, a `__proto__` key, lone surrogates, U+0000. A value shared by two fields is fine.
 * Runs no code of the value: no getter, no toJSON, no proxy trap.
 *
 * Two things pass although their text is not theirs alone: -0, which is written as 0, and integers beyond ±(2^53-1),
 * which are exact here but which `parseStrictJson` refuses as text.
 *
 * @param field what the value is called in the message, such as `context`; paths start with it.
 * @throws CountersignError NOT_PLAIN_JSON, details { field: path, found }. The message names the fix and never quotes
 *   a value.
 */
export function assertPlainJson(
  value: unknown,
  field: string,
  options: PlainJsonOptions = {},
): asserts value is JsonValue {
  const { maxBytes = MAX_BYTES, maxNodes = MAX_NODES } = options;
  const walk: Walk = { field, maxBytes, maxNodes, path: [], ancestors: [], nodes: 0, units: 0 };
  visit(walk, value);
  assertSize(walk, value);
}

/** Counts the bytes only when the bound of 6 per UTF-16 unit and 32 per value and its punctuation does not settle it. */
function assertSize(walk: Walk, value: unknown): void {
  if (walk.units * 6 + walk.nodes * 32 <= walk.maxBytes) return;
  if (Buffer.byteLength(JSON.stringify(value)) > walk.maxBytes) throw notPlain(walk, 'too large');
}

function visit(walk: Walk, value: unknown): void {
  walk.nodes += 1;
  if (walk.nodes > walk.maxNodes) throw notPlain(walk, 'too many values');
  if (value === null || typeof value === 'boolean') return;
  if (typeof value === 'string') visitText(walk, value);
  else if (typeof value === 'number') visitNumber(walk, value);
  else if (typeof value === 'object') visitContainer(walk, value);
  else if (typeof value === 'bigint') throw notPlain(walk, 'BigInt');
  else throw notPlain(walk, typeof value as 'undefined' | 'function' | 'symbol');
}

function visitNumber(walk: Walk, value: number): void {
  if (Number.isNaN(value)) throw notPlain(walk, 'NaN');
  if (!Number.isFinite(value)) throw notPlain(walk, 'Infinity');
}

function visitText(walk: Walk, text: string): void {
  if (!isWellFormed(text)) throw notPlain(walk, 'lone surrogate');
  if (text.includes('\0')) throw notPlain(walk, 'NUL character');
  walk.units += text.length;
  if (walk.units > walk.maxBytes) throw notPlain(walk, 'too large');
}

function visitContainer(walk: Walk, value: object): void {
  const kind = kindOf(value);
  if (kind !== 'array' && kind !== 'object') throw notPlain(walk, kind);
  if (walk.ancestors.includes(value)) throw notPlain(walk, 'cycle');
  if (walk.ancestors.length === MAX_DEPTH) throw notPlain(walk, 'too deep');
  walk.ancestors.push(value);
  walk.path.push(null);
  if (kind === 'array') visitArray(walk, value as unknown[]);
  else visitObject(walk, value);
  walk.path.pop();
  walk.ancestors.pop();
}

function kindOf(value: object): 'array' | 'object' | Finding {
  if (types.isProxy(value)) return 'proxy';
  const prototype: unknown = Object.getPrototypeOf(value);
  if (Array.isArray(value)) return prototype === Array.prototype ? 'array' : 'class instance';
  if (prototype === Object.prototype || prototype === null) return 'object';
  if (types.isDate(value)) return 'Date';
  if (types.isMap(value)) return 'Map';
  if (types.isSet(value)) return 'Set';
  return 'class instance';
}

function visitArray(walk: Walk, array: unknown[]): void {
  if (array.length > walk.maxNodes) throw notPlain(walk, 'too many values');
  for (let index = 0; index < array.length; index += 1) {
    walk.path[walk.path.length - 1] = index;
    visitProperty(walk, array, index);
  }
  walk.path[walk.path.length - 1] = null;
  // Every index is there by now, and `length`: one more key is one too many.
  if (Reflect.ownKeys(array).length > array.length + 1) throw notPlain(walk, 'array property');
}

function visitObject(walk: Walk, object: object): void {
  for (const key of Reflect.ownKeys(object)) {
    if (typeof key === 'symbol') throw notPlain(walk, 'symbol key');
    visitText(walk, key);
    walk.path[walk.path.length - 1] = key;
    if (key === '__proto__') throw notPlain(walk, 'unsafe key');
    visitProperty(walk, object, key);
    walk.path[walk.path.length - 1] = null;
  }
}

function visitProperty(walk: Walk, owner: object, key: string | number): void {
  const property = Object.getOwnPropertyDescriptor(owner, key);
  if (property === undefined) throw notPlain(walk, 'sparse array');
  if (!('value' in property)) throw notPlain(walk, 'accessor');
  if (key === 'toJSON' && typeof property.value === 'function') throw notPlain(walk, 'toJSON method');
  if (property.enumerable !== true) throw notPlain(walk, 'hidden property');
  visit(walk, property.value);
}

function notPlain(walk: Walk, found: Finding): CountersignError {
  const path = formatPath(walk.field, walk.path);
  return new CountersignError('NOT_PLAIN_JSON', `${path} is not plain JSON (${found}). ${FIXES[found]}.`, {
    details: { field: path, found },
  });
}
