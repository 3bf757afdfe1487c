/** One schedule: a scenario, and one thing that goes wrong in it. */
import type { Fault } from '../src/failpoints.ts';
import { ROLES, type Role } from './role-process.ts';

/** What the driver does at the point, beside what the gate can do by itself. */
export const INJECTED = [
  'kill_before',
  'kill_after',
  'error_before',
  'error_after',
  'delay_after',
  'deliver_again',
  'stop',
] as const;
export type Injected = (typeof INJECTED)[number];

export type Schedule = {
  scenario: string;
  role: Role;
  operation: string;
  occurrence: number;
  /** `none`: nothing goes wrong. */
  fault: Injected | 'none';
};

/** What the gate is told. */
export function gateFault(fault: Schedule['fault']): Fault {
  return fault === 'deliver_again' ? 'none' : fault;
}

/** `lookup:worker:claim_runs:2:kill_after`, which `--only` takes. */
export function nameOf({ scenario, role, operation, occurrence, fault }: Schedule): string {
  return [scenario, role, operation.replaceAll(':', '~'), occurrence, fault].join(':');
}

/** @throws for text that `nameOf` never wrote. */
export function scheduleNamed(name: string): Schedule {
  const [scenario, role, operation, occurrence, fault] = name.split(':');
  const known =
    scenario !== undefined &&
    operation !== undefined &&
    ROLES.includes(role as Role) &&
    Number.isInteger(Number(occurrence)) &&
    [...INJECTED, 'none'].includes(fault as Injected);
  if (!known) {
    throw new Error(`"${name}" is not a schedule; one reads scenario:role:operation:occurrence:fault`);
  }
  return {
    scenario,
    role: role as Role,
    operation: operation.replaceAll('~', ':'),
    occurrence: Number(occurrence),
    fault: fault as Schedule['fault'],
  };
}
