import type { JsonValue } from '../../src/digests/index.ts';

/** A stream of numbers in [0, 1) that a seed repeats exactly (mulberry32). */
export type Random = () => number;

export function randomFrom(seed: number): Random {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A whole number in [0, bound). */
export function below(random: Random, bound: number): number {
  return Math.floor(random() * bound);
}

export function pick<Item>(random: Random, items: readonly Item[]): Item {
  const item = items[below(random, items.length)];
  if (item === undefined) throw new Error('nothing to pick from');
  return item;
}

const PIECES = [
  'a',
  'Z',
  '0',
  ' ',
  '"',
  '\\',
  '/',
  '\n',
  '\t',
  '\u001f',
  'é',
  '漢',
  '\u2028',
  '\u202e',
  '😀',
];
const ODD_KEYS = [
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'toJSON',
  'length',
  '',
  '0',
  '-1',
];

function randomText(random: Random): string {
  return Array.from({ length: below(random, 12) }, () => pick(random, PIECES)).join('');
}

function randomNumber(random: Random): number {
  const kinds = [
    () => below(random, 10) - 5,
    () => Math.floor((random() - 0.5) * 2 ** 53),
    () => (random() - 0.5) * 10 ** below(random, 12),
    () => random() * 10 ** -below(random, 300),
    () => pick(random, [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, Number.MIN_VALUE, Number.EPSILON]),
  ];
  return pick(random, kinds)();
}

/** A value that `parseStrictJson` must accept: unique keys, safe integers, at most `depth` containers deep. */
export function randomJson(random: Random, depth = 5): JsonValue {
  const kind = below(random, depth > 0 ? 7 : 5);
  if (kind === 0) return null;
  if (kind === 1) return random() < 0.5;
  if (kind === 2) return randomText(random);
  if (kind <= 4) return randomNumber(random);
  const size = below(random, 6);
  if (kind === 5) return Array.from({ length: size }, () => randomJson(random, depth - 1));
  const entries = Array.from({ length: size }, () => {
    const key = random() < 0.2 ? pick(random, ODD_KEYS) : randomText(random);
    return [key, randomJson(random, depth - 1)] as const;
  });
  return Object.fromEntries(entries);
}

/** The value as JSON text with whitespace and escapes that `JSON.stringify` would not write. */
export function randomSpelling(random: Random, value: JsonValue): string {
  const gap = () => (random() < 0.3 ? pick(random, [' ', '\n', '\t', '\r', '  ']) : '');
  const spellText = (text: string) => {
    const characters = Array.from(text, (character) =>
      random() < 0.2 ? escaped(character) : literal(character),
    );
    return `"${characters.join('')}"`;
  };
  const spell = (part: JsonValue): string => {
    if (typeof part === 'string') return spellText(part);
    if (part === null || typeof part !== 'object') return JSON.stringify(part);
    const inner = Array.isArray(part)
      ? part.map((item) => gap() + spell(item) + gap())
      : Object.entries(part).map(
          ([key, item]) => `${gap()}${spellText(key)}${gap()}:${gap()}${spell(item)}${gap()}`,
        );
    return Array.isArray(part) ? `[${gap()}${inner.join(',')}]` : `{${gap()}${inner.join(',')}}`;
  };
  return gap() + spell(value) + gap();
}

function literal(character: string): string {
  return JSON.stringify(character).slice(1, -1);
}

function escaped(character: string): string {
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('');
}
