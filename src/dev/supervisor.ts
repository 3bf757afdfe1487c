import { setTimeout as sleep } from 'node:timers/promises';
import { type Child, type ChildSpec, startChild } from './child.ts';

/** A child that lived at least this long starts again at once; one that dies young waits, longer each time. */
const HEALTHY_MS = 5_000;
const MAX_WAIT_MS = 10_000;
/** Longer than a worker drains. */
const GRACE_MS = 15_000;

export type SupervisorOptions = {
  /** Told what happens, and every line of the children. */
  note: (name: string, line: string) => void;
  /** Start again whatever dies. Off in the demo, where the others must do without. */
  restart: boolean;
  /** Told after a child has another pid. */
  onChange?: () => void;
};

/** Owns the processes of a local fleet: starts them, starts them again, and leaves none running. */
export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #children = new Map<string, Child>();
  readonly #stopping = new AbortController();

  constructor(options: SupervisorOptions) {
    this.#options = options;
  }

  /**
   * Starts a process and waits until it says that it is ready; one that does not is ended.
   *
   * @returns what it said. @throws PROCESS_NOT_STARTED
   */
  async start(spec: ChildSpec): Promise<Record<string, unknown>> {
    // What failed because everything is being stopped must not be tried once more.
    this.#stopping.signal.throwIfAborted();
    const child = this.#spawn(spec);
    try {
      const said = await child.ready;
      void this.#watch(spec, child);
      return said;
    } catch (error) {
      child.kill();
      await child.ended;
      throw error;
    }
  }

  /** Process ids by name, of those that live. */
  pids(): Record<string, number> {
    const living = [...this.#children.values()].filter((child) => child.isAlive());
    return Object.fromEntries(living.map((child) => [child.name, child.pid]));
  }

  /** Stops everything, the workers' drain included; resolves when nothing is left. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all([...this.#children.values()].map((child) => child.stop(GRACE_MS)));
  }

  /** Ends everything at once. */
  kill(): void {
    this.#stopping.abort();
    for (const child of this.#children.values()) {
      child.kill();
    }
  }

  #spawn(spec: ChildSpec): Child {
    const child = startChild(spec, this.#options.note);
    this.#children.set(spec.name, child);
    return child;
  }

  /** Never rejects: it is nobody's to await. */
  async #watch(spec: ChildSpec, first: Child): Promise<void> {
    const { note, restart, onChange } = this.#options;
    const { signal } = this.#stopping;
    let child = first;
    let waitMs = 0;
    for (;;) {
      const since = performance.now();
      const how = await child.ended;
      if (signal.aborted) {
        return;
      }
      const again = restart ? '; starting another' : '';
      note(spec.name, `pid ${child.pid} ${how}${again}`);
      if (!restart) {
        return;
      }
      waitMs = performance.now() - since >= HEALTHY_MS ? 0 : Math.min(MAX_WAIT_MS, Math.max(500, waitMs * 2));
      await sleep(waitMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) {
        return;
      }
      child = this.#spawn(spec);
      const ready = await child.ready.then(
        () => true,
        () => false,
      );
      if (ready) {
        note(spec.name, `is back, as pid ${child.pid}`);
        onChange?.();
      }
    }
  }
}
