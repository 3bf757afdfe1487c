import { setTimeout as sleep } from 'node:timers/promises';
import { type Counts, releaseClient } from '../../examples/release-service/index.ts';
import type { Effect } from '../checker/index.ts';
import { CountersignError } from '../errors.ts';

/** The supervisor starts a dead provider again within seconds. */
const TRIES = 20;
const AGAIN_MS = 500;

/** A provider's list of its keys may be long: it is not asked for again within this time. */
const FRESH_MS = 1_000;

/** Asks dev's provider what it has committed under keys. The asking throws PROVIDER_UNAVAILABLE when nobody answers. */
export function effectsAtProvider(url: string): (keys: readonly string[]) => Promise<Effect[]> {
  const provider = releaseClient(url);
  let seen: { at: number; counts: Promise<Counts> } | null = null;
  const counts = (): Promise<Counts> => {
    if (seen === null || performance.now() - seen.at > FRESH_MS) {
      seen = { at: performance.now(), counts: answered(() => provider.counts()) };
    }
    return seen.counts;
  };
  return async (keys) => {
    const { byKey } = await counts();
    const known = keys.flatMap((key) => {
      const kind = byKey[key]?.kind;
      return kind === undefined ? [] : [{ key, kind }];
    });
    const found = await Promise.all(known.map(({ key, kind }) => answered(() => provider.find(kind, key))));
    return found.flatMap(({ effects }) => effects.map(({ key, body }) => ({ key, body })));
  };
}

async function answered<T>(ask: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask();
    } catch (cause) {
      if (tries === TRIES) {
        throw new CountersignError(
          'PROVIDER_UNAVAILABLE',
          'The provider does not say what it has committed, so there is no verdict; is the fleet still running?',
          { cause },
        );
      }
      await sleep(AGAIN_MS);
    }
  }
}
