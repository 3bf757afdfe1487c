import type { Log } from '../log.ts';
import { callFunction, type Database } from '../postgres/index.ts';
import type { Leases } from '../queue/index.ts';

/** One claimed run, as long as this process works on it. */
export type Hold = {
  readonly tenant: string;
  readonly runId: string;
  readonly epoch: number;
  readonly leaseHolder: string;
  /** Fires when the hold is lost or no longer trusted: start nothing more. */
  readonly lost: AbortController;
  /** Monotonic ms until which this process trusts it. */
  trustedUntil: number;
};

type Kept = { tenant: string; run_id: string; epoch: number; renewed: boolean };

/** Part of the ttl that is never trusted: the answer's way back, and clocks that run at different speeds. */
const MARGIN = 0.2;

/** Owns the heartbeat timer of one worker process. */
export class HoldKeeper {
  readonly #holds = new Set<Hold>();
  readonly #options: {
    db: Database;
    leases: Leases;
    log: Log;
    workerId: string;
    ttlMs: number;
    /** Default: after six missed heartbeats the fleet counts this process as gone. */
    aliveMs: number;
  };
  readonly #timer: NodeJS.Timeout;
  #beating: Promise<void> | null = null;

  constructor(options: { db: Database; leases: Leases; log: Log; workerId: string; ttlMs: number }) {
    this.#options = { ...options, aliveMs: options.ttlMs * 2 };
    this.#timer = setInterval(() => {
      // A beat that Postgres keeps waiting is not joined by a second one: each would take a connection more. But one
      // whose connection died without a word must not be the last.
      this.#beating ??= withinMs(this.beatOnce(), options.ttlMs)
        .catch((error: unknown) => options.log.warn({ err: error }, 'heartbeat failed'))
        .finally(() => {
          this.#beating = null;
        });
    }, options.ttlMs / 3);
  }

  get size(): number {
    return this.#holds.size;
  }

  /** @param claimedAt monotonic ms before the claim was asked. */
  add(claim: { tenant: string; runId: string; epoch: number; leaseHolder: string }, claimedAt: number): Hold {
    const hold: Hold = {
      ...claim,
      lost: new AbortController(),
      trustedUntil: claimedAt + this.#options.ttlMs * (1 - MARGIN),
    };
    this.#holds.add(hold);
    return hold;
  }

  remove(hold: Hold): void {
    this.#holds.delete(hold);
  }

  /** May this process still start something under the hold? */
  isTrusted(hold: Hold): boolean {
    return !hold.lost.signal.aborted && performance.now() < hold.trustedUntil;
  }

  holds(): Hold[] {
    return [...this.#holds];
  }

  /**
   * One heartbeat: one statement for all holds. Returns how many are still ours. One whose row was busy is ours and not
   * renewed: it is trusted no longer than before.
   */
  async beatOnce(): Promise<number> {
    const { db, leases, log, workerId, ttlMs, aliveMs } = this.#options;
    const holds = this.holds();
    const asked = performance.now();
    const kept = await callFunction<Kept>(db, 'renew_holds', [
      workerId,
      ttlMs,
      aliveMs,
      holds.map((hold) => hold.tenant),
      holds.map((hold) => hold.runId),
      holds.map((hold) => hold.epoch),
    ]);
    // By epoch: a process that was frozen may hold one run twice, and only its latest claim is good.
    const renewed = new Map(kept.map((row) => [`${row.run_id}/${row.epoch}/${row.tenant}`, row.renewed]));
    for (const hold of holds) {
      const mine = renewed.get(`${hold.runId}/${hold.epoch}/${hold.tenant}`);
      if (mine === true) {
        hold.trustedUntil = asked + ttlMs * (1 - MARGIN);
        await leases.renew(hold.tenant, hold.runId, hold.leaseHolder, ttlMs);
      } else if (mine === undefined && this.#holds.has(hold)) {
        log.warn({ run: hold.runId, epoch: hold.epoch, code: 'LEASE_LOST' }, 'a hold was lost');
        hold.lost.abort(new Error('LEASE_LOST'));
      }
    }
    return kept.length;
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#beating;
  }
}

async function withinMs(beat: Promise<unknown>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('no answer to the heartbeat')), ms);
  });
  beat.catch(() => undefined);
  try {
    await Promise.race([beat, late]);
  } finally {
    clearTimeout(timer);
  }
}
