/** A JSON document as JavaScript values: what a parser returns and a digest is taken over. */
export type JsonValue = string | number | boolean | null | JsonValue[] | JsonObject;

/** A JSON object: own, enumerable, string-keyed data properties and nothing else. */
export type JsonObject = { [key: string]: JsonValue };

/** Containers open at once; the root container is depth 1. Deep enough for any tool, shallow enough to recurse. */
export const MAX_DEPTH = 32;

/** UTF-8 bytes of the JSON text: 256 KiB. Larger arguments belong in a store, passed by id. */
export const MAX_BYTES = 256 * 1024;

/** Values in one document, containers included and keys not: bounds the work of every later pass. */
export const MAX_NODES = 10_000;

/**
 * False when the text holds a surrogate without its partner. Such text has no UTF-8 form: encoders write U+FFFD
 * instead, so two different texts would share one digest or one stored form.
 */
export function isWellFormed(text: string): boolean {
  // In every Node we support, but typed only from lib ES2024 on.
  return (text as string & { isWellFormed(): boolean }).isWellFormed();
}
