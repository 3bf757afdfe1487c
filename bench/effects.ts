/**
 * The provider of the bench: a list in the worker's memory, the same for both sides. It is handed over when the round
 * is over; the parent checks that every run is in it once.
 */
export type Effect = { ref: string; atMs: number };

let effects: Effect[] = [];

export function recordEffect(ref: string): void {
  effects.push({ ref, atMs: monotonicMs() });
}

export function takeEffects(): Effect[] {
  const taken = effects;
  effects = [];
  return taken;
}

/** One clock for all processes of a machine, unlike performance.now(). */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
