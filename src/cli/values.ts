import { InvalidArgumentError } from 'commander';
import { holdTtl } from '../config.ts';
import { type Duration, durationMs } from '../duration.ts';
import { isCountersignError } from '../errors.ts';
import { ROLES, type Role } from '../fleet-file.ts';

/** Parses an option's value. Whatever is refused here is a USAGE error that names the option. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    }
    return value;
  };
}

/** A part of everything: more than 0, at most 1. */
export function share(text: string): number {
  const value = Number(text);
  if (!/^\d*\.?\d+$/.test(text) || !(value > 0 && value <= 1)) {
    throw new InvalidArgumentError('It must be a number above 0 and at most 1, such as 0.3.');
  }
  return value;
}

export function duration(text: string): number {
  try {
    return durationMs(text as Duration, 'It');
  } catch (error) {
    throw new InvalidArgumentError(isCountersignError(error) ? error.message : 'It must be a duration.');
  }
}

/** A worker's hold. */
export function ttl(text: string): number {
  try {
    return holdTtl(text as Duration, 'It');
  } catch (error) {
    throw new InvalidArgumentError(isCountersignError(error) ? error.message : 'It must be a duration.');
  }
}

export function fingerprint(text: string): string {
  if (!/^[0-9a-f]{64}$/.test(text)) {
    throw new InvalidArgumentError('It must be 64 hex digits, as "approvals show" prints them.');
  }
  return text;
}

/** A JSON object; the rest of the check is the library's. */
export function jsonObject(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = null;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InvalidArgumentError('It must be a JSON object, such as \'{"order":"1042"}\'.');
  }
  return value as Record<string, unknown>;
}

export function roles(text: string): Role[] {
  const names = text.split(',').map((name) => name.trim());
  if (!names.every((name): name is Role => (ROLES as readonly string[]).includes(name))) {
    throw new InvalidArgumentError(`It must be one or more of ${ROLES.join(', ')}, with commas.`);
  }
  return names as Role[];
}
