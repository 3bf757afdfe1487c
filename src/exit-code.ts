import { isCountersignError } from './errors.ts';

/** 1 refused or failed, 2 usage, 3 unavailable: the same call may succeed later; 130 interrupted. */
export function exitCodeOf(error: unknown): number {
  if (!isCountersignError(error)) {
    return 1;
  }
  if (error.code === 'USAGE') {
    return 2;
  }
  if (error.code === 'INTERRUPTED') {
    return 130;
  }
  return error.retry ? 3 : 1;
}
