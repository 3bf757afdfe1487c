/** The effects that exist, per kind, indexed so that no call and no look-up walks all of them. */
import { isDeepStrictEqual } from 'node:util';
import type { Effect, JsonObject } from './types.ts';

type Stored = { effect: Effect; visibleFromMs: number };

type KindStore = {
  byKey: Map<string, Stored[]>;
  /** `field:value` of every top-level scalar of the body. */
  byNatural: Map<string, Stored[]>;
  /** Keys whose first call is admitted and not committed yet, with its body. */
  inProgress: Map<string, JsonObject>;
};

export type Store = { kinds: Map<string, KindStore>; lastNumber: number };

export function createStore(): Store {
  return { kinds: new Map(), lastNumber: 0 };
}

/** What the provider remembers about a key when a call arrives under it. */
export type KeyMemory =
  | { type: 'new' }
  | { type: 'first_receipt'; effect: Effect }
  | { type: 'in_progress' }
  | { type: 'key_reused' };

/** Compares the body with the one first seen under this key. After `forget_keys`, the latest commit counts. */
export function recallKey(store: Store, call: { kind: string; key: string; body: JsonObject }): KeyMemory {
  const kind = store.kinds.get(call.kind);
  const busy = kind?.inProgress.get(call.key);
  if (busy) return isDeepStrictEqual(busy, call.body) ? { type: 'in_progress' } : { type: 'key_reused' };
  const effect = kind?.byKey.get(call.key)?.at(-1)?.effect;
  if (!effect) return { type: 'new' };
  return isDeepStrictEqual(effect.body, call.body)
    ? { type: 'first_receipt', effect }
    : { type: 'key_reused' };
}

/** Marks a key as in progress until the returned function is called. */
export function occupyKey(store: Store, call: { kind: string; key: string; body: JsonObject }): () => void {
  const { inProgress } = kindStore(store, call.kind);
  if (inProgress.has(call.key)) return () => {};
  inProgress.set(call.key, call.body);
  return () => inProgress.delete(call.key);
}

/** Makes a new effect exist. Look-ups see it from `visibleFromMs` on (`performance.now()` time). */
export function commitEffect(
  store: Store,
  call: { kind: string; key: string | null; body: JsonObject },
  visibleFromMs: number,
): Effect {
  const effect: Effect = {
    id: `${call.kind}-${store.lastNumber + 1}`,
    kind: call.kind,
    key: call.key,
    body: call.body,
    committedAt: new Date().toISOString(),
  };
  keepEffect(store, effect, visibleFromMs);
  return effect;
}

/** Puts an effect into the indexes; also used when a journal file is read back. */
export function keepEffect(store: Store, effect: Effect, visibleFromMs: number): void {
  store.lastNumber += 1;
  const kind = kindStore(store, effect.kind);
  const stored = { effect, visibleFromMs };
  if (effect.key !== null) append(kind.byKey, effect.key, stored);
  for (const [field, value] of Object.entries(effect.body)) {
    if (value !== null && typeof value !== 'object') append(kind.byNatural, `${field}:${value}`, stored);
  }
}

export function effectsByKey(store: Store, kind: string, key: string): Effect[] {
  return visible(store.kinds.get(kind)?.byKey.get(key));
}

/** `natural` is `field:value`, a top-level field whose value is a string, number or boolean. */
export function effectsByNatural(store: Store, kind: string, natural: string): Effect[] {
  return visible(store.kinds.get(kind)?.byNatural.get(natural));
}

function visible(stored: Stored[] = []): Effect[] {
  const nowMs = performance.now();
  return stored.filter(({ visibleFromMs }) => visibleFromMs <= nowMs).map(({ effect }) => effect);
}

function kindStore(store: Store, kind: string): KindStore {
  let found = store.kinds.get(kind);
  if (!found) {
    found = { byKey: new Map(), byNatural: new Map(), inProgress: new Map() };
    store.kinds.set(kind, found);
  }
  return found;
}

function append(index: Map<string, Stored[]>, at: string, stored: Stored): void {
  const list = index.get(at);
  if (list) list.push(stored);
  else index.set(at, [stored]);
}
