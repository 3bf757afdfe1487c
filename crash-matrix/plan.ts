/** Which schedules there are: everything that a clean run reached, times everything that can go wrong there. */
import type { TraceLine } from '../src/failpoints.ts';
import { ROLES, type Role } from './role-process.ts';
import { INJECTED, type Injected, type Schedule } from './schedule.ts';

/** A point of a scenario, as its clean run passed it. */
export type Point = { scenario: string; role: Role; operation: string; occurrence: number; idle: boolean };

/** The first, the second and the last time an operation was reached; once for one that never found anything to do. */
export function pointsOf(scenario: string, trace: readonly TraceLine[]): Point[] {
  const reached = new Map<string, number>();
  for (const { role, operation, occurrence } of trace) {
    const key = `${role} ${operation}`;
    reached.set(key, Math.max(reached.get(key) ?? 0, occurrence));
  }
  return [...reached].flatMap(([key, last]) => {
    const [role = '', operation = ''] = key.split(' ');
    const point = { scenario, role: role as Role, operation };
    const times = last === 0 ? [1] : [...new Set([1, Math.min(2, last), last])];
    return times.map((occurrence) => ({ ...point, occurrence, idle: last === 0 }));
  });
}

/** Their number depends on time alone. */
const BY_THE_CLOCK = new Set(['renew_holds', 'lease.renew']);

/**
 * The points of a scenario that another one has not been at before it in the same situation. What a role's two traces
 * have in common at their beginning is the same story to that role.
 *
 * @param roles whose story the two scenarios share; what depends on the clock alone is then shared as well.
 */
export function newPoints(
  scenario: string,
  trace: readonly TraceLine[],
  like: { trace: readonly TraceLine[]; roles: readonly Role[] },
): Point[] {
  const shared = new Set<string>();
  for (const role of like.roles) {
    const [mine = [], theirs = []] = [trace, like.trace].map((lines) =>
      lines.filter((line) => line.role === role && line.occurrence > 0 && !BY_THE_CLOCK.has(line.operation)),
    );
    const different = mine.findIndex(
      ({ operation, occurrence }, index) =>
        theirs[index]?.operation !== operation || theirs[index]?.occurrence !== occurrence,
    );
    for (const { operation, occurrence } of different === -1 ? mine : mine.slice(0, different)) {
      shared.add(`${role} ${operation} ${occurrence}`);
    }
  }
  return pointsOf(scenario, trace).filter(({ role, operation, occurrence, idle }) => {
    const isShared = idle || BY_THE_CLOCK.has(operation) || shared.has(`${role} ${operation} ${occurrence}`);
    return !(like.roles.includes(role) && isShared);
  });
}

/** What may happen at a point. A pass without work has no answer that could be lost or late. */
function faultsAt({ role, idle }: Point): readonly Injected[] {
  return INJECTED.filter(
    (fault) => (role === 'worker' || fault !== 'deliver_again') && (!idle || !fault.endsWith('_after')),
  );
}

/** Every point times every fault, in an order that a seed shuffles: a part of it is then a sample of all of it. */
export function planOf(points: readonly Point[], seed: number): Schedule[] {
  const all = points.flatMap((point) =>
    faultsAt(point).map((fault) => ({
      scenario: point.scenario,
      role: point.role,
      operation: point.operation,
      occurrence: point.occurrence,
      fault,
    })),
  );
  return shuffled(all, seed);
}

/** For `npm test`: every operation once, and every fault this often. */
const EACH_FAULT = 3;

/** A small part of the plan that leaves out no operation and no fault. */
export function reduced(plan: readonly Schedule[]): Schedule[] {
  const operations = new Set<string>();
  const faults = new Map<string, number>();
  return plan.filter(({ role, operation, fault }) => {
    const key = `${role} ${operation}`;
    const often = faults.get(fault) ?? 0;
    // A frozen process costs seconds: as often as the other faults, and no more.
    const isNew = !operations.has(key) && (fault !== 'stop' || often < EACH_FAULT);
    if (!isNew && often >= EACH_FAULT) {
      return false;
    }
    operations.add(key);
    faults.set(fault, often + 1);
    return true;
  });
}

function shuffled<T>(items: readonly T[], seed: number): T[] {
  const random = randomFrom(seed);
  const result = [...items];
  for (let i = result.length - 1; i > 0; i -= 1) {
    const j = Math.floor(random() * (i + 1));
    [result[i], result[j]] = [result[j] as T, result[i] as T];
  }
  return result;
}

/** Mulberry32: numbers from 0 to 1, the same for the same seed on every machine. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** For the table: operations in the order of the roles, then of the flow. */
export function operationsOf(points: readonly Point[]): { role: Role; operation: string }[] {
  const seen = new Set<string>();
  const unique = points.filter(({ role, operation }) => {
    const key = `${role} ${operation}`;
    return !seen.has(key) && seen.add(key);
  });
  return unique
    .map(({ role, operation }) => ({ role, operation }))
    .sort((a, b) => ROLES.indexOf(a.role) - ROLES.indexOf(b.role));
}
