/** What happened, in order; how often; and who is waiting for it to happen. */
import type { Counts, Effect, LogEntry, LogEvent, LogFacts, WaitFilter } from './types.ts';

/** Enough for any test and the bench; beyond it the oldest entries go, the counts stay right. */
const LOG_LIMIT = 200_000;

type Tally = Record<LogEvent, number>;
/** `ended`: the world was reset, or the asker went away. */
export type WaitResult = 'reached' | 'timeout' | 'ended';
type Waiter = WaitFilter & { event: LogEvent; count: number; finish: (result: WaitResult) => void };

export type Journal = {
  /** A ring: entry `seq` lives at `(seq - 1) % limit`. */
  ring: LogEntry[];
  limit: number;
  lastSeq: number;
  total: Tally;
  byKind: Map<string, Tally>;
  byKey: Map<string, { kind: string; tally: Tally }>;
  waiters: Set<Waiter>;
  /** Called with each new entry, and with the effect when it is a commit, before anything else goes on. */
  persist: (entry: LogEntry, effect?: Effect) => void;
};

export function createJournal(persist: Journal['persist'], limit = LOG_LIMIT): Journal {
  return {
    ring: [],
    limit,
    lastSeq: 0,
    total: newTally(),
    byKind: new Map(),
    byKey: new Map(),
    waiters: new Set(),
    persist,
  };
}

/** Records an event that happens now. */
export function note(journal: Journal, event: LogEvent, facts: LogFacts, effect?: Effect): void {
  const entry: LogEntry = {
    seq: journal.lastSeq + 1,
    event,
    ...facts,
    monotonicMs: Math.round(performance.now() * 1000) / 1000,
    at: new Date().toISOString(),
  };
  journal.persist(entry, effect);
  restoreEntry(journal, entry);
}

/** Counts an entry and puts it in the ring; also used when a journal file is read back. */
export function restoreEntry(journal: Journal, entry: LogEntry): void {
  journal.lastSeq += 1;
  journal.ring[(journal.lastSeq - 1) % journal.limit] = entry;
  journal.total[entry.event] += 1;
  emplace(journal.byKind, entry.kind, newTally)[entry.event] += 1;
  if (typeof entry.key === 'string') {
    const first = () => ({ kind: entry.kind, tally: newTally() });
    emplace(journal.byKey, entry.key, first).tally[entry.event] += 1;
  }
  for (const waiter of journal.waiters) {
    if (waiter.event === entry.event && countOf(journal, waiter.event, waiter) >= waiter.count) {
      waiter.finish('reached');
    }
  }
}

/** How many such events since the last reset. `key` alone decides when both are given. */
export function countOf(journal: Journal, event: LogEvent, filter: WaitFilter): number {
  if (filter.key !== undefined) return journal.byKey.get(filter.key)?.tally[event] ?? 0;
  if (filter.kind !== undefined) return journal.byKind.get(filter.kind)?.[event] ?? 0;
  return journal.total[event];
}

/** Waits until `count` such events were logged since the last reset. */
export function waitForCount(
  journal: Journal,
  options: WaitFilter & { event: LogEvent; count: number; timeoutMs: number },
): { result: Promise<WaitResult>; cancel: () => void } {
  if (countOf(journal, options.event, options) >= options.count) {
    return { result: Promise.resolve('reached'), cancel: () => {} };
  }
  const { promise, resolve } = settleable<WaitResult>();
  const finish = (result: WaitResult): void => {
    clearTimeout(timer);
    journal.waiters.delete(waiter);
    resolve(result);
  };
  const waiter: Waiter = { ...options, finish };
  const timer = setTimeout(() => finish('timeout'), options.timeoutMs);
  journal.waiters.add(waiter);
  return { result: promise, cancel: () => finish('ended') };
}

/** Ends every wait, for a reset or a shutdown. */
export function endWaits(journal: Journal): void {
  for (const waiter of [...journal.waiters]) waiter.finish('ended');
}

function settleable<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** The entries still in the ring, oldest first. */
export function orderedLog(journal: Journal): LogEntry[] {
  const oldest = journal.lastSeq % journal.limit;
  return journal.lastSeq <= journal.limit
    ? journal.ring.slice()
    : [...journal.ring.slice(oldest), ...journal.ring.slice(0, oldest)];
}

export function summarise(journal: Journal): Counts {
  const figures = (tally: Tally): { calls: number; commits: number } => ({
    calls: tally.received,
    commits: tally.committed,
  });
  return {
    ...figures(journal.total),
    // A key that was only looked up was never called and is not listed.
    byKey: Object.fromEntries(
      [...journal.byKey]
        .filter(([, { tally }]) => tally.received > 0)
        .map(([key, { kind, tally }]) => [key, { kind, ...figures(tally) }]),
    ),
    byKind: Object.fromEntries(
      [...journal.byKind]
        .filter(([, tally]) => tally.received > 0)
        .map(([kind, tally]) => [kind, figures(tally)]),
    ),
  };
}

function emplace<T>(map: Map<string, T>, key: string, create: () => T): T {
  const found = map.get(key);
  if (found !== undefined) return found;
  const created = create();
  map.set(key, created);
  return created;
}

function newTally(): Tally {
  return {
    received: 0,
    held: 0,
    committed: 0,
    answered: 0,
    undelivered: 0,
    dropped: 0,
    refused: 0,
    lookup: 0,
  };
}
