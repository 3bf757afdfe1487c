/** Is the memory of the processes flat? Of those that are spared from killing, and so live as long as the soak. */
import type { Lane } from '../crash-matrix/lane.ts';
import { ROLES, type Role } from '../crash-matrix/role-process.ts';

export type Memory = {
  role: Role;
  pid: number;
  /** MiB, in order of time. */
  samples: number[];
  flat: boolean;
};

const MIB = 1_048_576;
/** A heap that breathes is not a leak. */
const BREATH_MIB = 40;

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
        known.samples.push(Math.round((await member.call<number>('memory')) / MIB));
      }),
    );
  }

  result(): Memory[] {
    return [...this.#samples].map(([pid, { role, samples }]) => ({
      role,
      pid,
      samples,
      flat: isFlat(samples),
    }));
  }
}

/** The last quarter is no higher than the second one, but for a heap's breath: the first quarter is warming up. */
function isFlat(samples: readonly number[]): boolean {
  const quarter = Math.floor(samples.length / 4);
  if (quarter === 0) {
    return true;
  }
  const early = average(samples.slice(quarter, 2 * quarter));
  const late = average(samples.slice(-quarter));
  return late <= early + BREATH_MIB;
}

function average(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
