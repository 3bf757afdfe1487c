import { parseStrictJson, type RefusalReason } from '../../src/digests/index.ts';
import { type CountersignError, isCountersignError } from '../../src/errors.ts';

/** The error that the call throws; fails unless it is one of ours. */
export function errorOf(call: () => unknown): CountersignError {
  try {
    call();
  } catch (error) {
    if (isCountersignError(error)) return error;
    throw error;
  }
  throw new Error('expected a CountersignError, but nothing was thrown');
}

/** The error that refuses the text. */
export function refusalOf(text: string): CountersignError {
  return errorOf(() => parseStrictJson(text));
}

/** Code, reason and path of the refusal, for one comparison. */
export function refused(text: string): unknown {
  const { code, details } = refusalOf(text);
  return { code, ...details };
}

/** What `refused` returns for a refusal. */
export function refusedFor(reason: RefusalReason, path = '$'): unknown {
  return { code: 'ARGUMENTS_REFUSED', reason, path };
}
