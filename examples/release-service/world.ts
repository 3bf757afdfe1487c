/** One world from reset to reset. A call belongs to the world it arrived in and never commits in the next. */
import type { FaultList } from './faults.ts';
import type { Holds } from './holds.ts';
import { createHolds, endHolds } from './holds.ts';
import type { Journal } from './journal.ts';
import { createJournal, endWaits } from './journal.ts';
import type { Store } from './store.ts';
import { createStore } from './store.ts';

export type World = {
  store: Store;
  journal: Journal;
  faults: FaultList;
  holds: Holds;
  /** Kinds not named here dedupe. */
  dedupe: Map<string, boolean>;
  ended: boolean;
};

export function createWorld(persist: Journal['persist'] = () => {}): World {
  return {
    store: createStore(),
    journal: createJournal(persist),
    faults: [],
    holds: createHolds(),
    dedupe: new Map(),
    ended: false,
  };
}

export function dedupes(world: World, kind: string): boolean {
  return world.dedupe.get(kind) ?? true;
}

/** Waits end. Calls still under way are let go, find `ended` set, and give up without committing or being logged. */
export function endWorld(world: World): void {
  world.ended = true;
  endHolds(world.holds);
  endWaits(world.journal);
}
