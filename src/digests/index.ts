/**
 * Digests: what "the same arguments" means.
 *
 * Where it stands: a leaf, used by every noun. Argument text that a model produced enters through `parseStrictJson`;
 * values that our own users hand over enter through `assertPlainJson`; both leave as `JsonValue`, whose digest is
 * what a decision binds to.
 *
 * Invariant (I2, what was reviewed is what runs): a value that two honest readers could read differently never gets a
 * digest. The reviewer's screen, the ledger and the tool then see one value, because there is only one to see.
 * So text is refused rather than repaired: a duplicate key shows the first value and pays the last, and
 * 9007199254740993 shows one amount and pays another.
 *
 * Rules: JSON is RFC 8259 narrowed towards I-JSON (RFC 7493); canonical text is RFC 8785 (JCS); a digest is SHA-256
 * of its UTF-8, 64 lower-case hex characters.
 *
 * A crash here leaves nothing behind: pure functions, no state, no I/O.
 */
export { canonicalJson } from './canonical.ts';
export { digestOf, digestParts, digestText } from './digest.ts';
export { isWellFormed, type JsonObject, type JsonValue } from './json.ts';
export { assertPlainJson, type PlainJsonOptions } from './plain.ts';
export type { RefusalReason } from './refusal.ts';
export { parseStrictJson } from './strict-parser.ts';
