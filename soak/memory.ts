/** Is the memory of the processes flat? Of those that are spared from killing, and so live as long as the soak. */
import type { Lane } from '../crash-matrix/lane.ts';
import { ROLES, type Role } from '../crash-matrix/role-process.ts';

export type Memory = {
  role: Role;
  pid: number;
  /** MiB that were still reachable after a full collection, in order of time. */
  samples: number[];
  /** From the second quarter of the soak to the last one, in MiB; null when it was too short to tell. */
  growth: number | null;
  flat: boolean;
};

const MIB = 1_048_576;
/** Fewer tell nothing: the first quarter is warming up, and each of the others needs a few. */
const MIN_SAMPLES = 24;
/** Runs under way differ from moment to moment. */
const ALLOWED_MIB = 8;

export class MemoryWatch {
  readonly #lane: Lane;
  readonly #samples = new Map<number, { role: Role; samples: number[] }>();

  constructor(lane: Lane) {
    this.#lane = lane;
  }

  /** One sample of the oldest process of each role. */
  async sample(): Promise<void> {
    await Promise.all(
      ROLES.map(async (role) => {
        const [member] = this.#lane.fleet.all(role);
        if (member === undefined) {
          return;
        }
        const known = this.#samples.get(member.pid) ?? { role, samples: [] };
        this.#samples.set(member.pid, known);
        known.samples.push(Math.round(((await member.call<number>('memory')) / MIB) * 10) / 10);
      }),
    );
  }

  result(): Memory[] {
    return [...this.#samples].map(([pid, { role, samples }]) => {
      const growth = growthOf(samples);
      return { role, pid, samples, growth, flat: growth === null || growth <= ALLOWED_MIB };
    });
  }
}

/** The median of the last quarter less that of the second one: one high sample is a full inbox, not a leak. */
export function growthOf(samples: readonly number[]): number | null {
  if (samples.length < MIN_SAMPLES) {
    return null;
  }
  const quarter = Math.floor(samples.length / 4);
  const early = median(samples.slice(quarter, 2 * quarter));
  const late = median(samples.slice(-quarter));
  return Math.round((late - early) * 10) / 10;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
