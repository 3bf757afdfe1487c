import type { Duration } from '../duration.ts';
import { invalid, REQUEST_MAX_MS, settingMs } from './setting.ts';

/** About an hour of asking, with the reconciler's back-off. */
export const DEFAULT_LOOKUPS = 20;

/**
 * What a look-up found out about one operation key.
 * `different`: the provider knows the key, but with other contents. `cannot_say`: ask again later.
 */
export type LookupAnswer =
  | { found: true; receipt: unknown }
  | { found: false }
  | { found: 'different'; evidence?: unknown }
  | { found: 'cannot_say' };

export type LookupCall = { operationKey: string; signal: AbortSignal };

/** What the tool's author knows about repeating the effect. Each kind carries the promise of design section 2. */
export type Recovery<Args = unknown, Kind extends RecoveryKind = RecoveryKind> = {
  readonly kind: Kind;
  readonly keyLifetimeMs: number | null;
  readonly settlesWithinMs: number | null;
  readonly reissue: 'automatic' | 'by_person';
  /** Look-ups of one attempt without proof before a person is asked; null for the kinds that are never looked up. */
  readonly lookups: number | null;
  readonly find: ((call: LookupCall & { args: Args }) => Promise<unknown>) | null;
};

export type RecoveryKind = 'transactional' | 'idempotent' | 'lookup' | 'manual';

/** The effect is in the ledger's own database; `execute` gets the transaction as `tx`. Exactly once. */
export function transactional(): Recovery<unknown, 'transactional'> {
  return {
    kind: 'transactional',
    keyLifetimeMs: null,
    settlesWithinMs: null,
    reissue: 'by_person',
    lookups: null,
    find: null,
  };
}

/**
 * The provider honours our operation key as its idempotency key.
 *
 * @param options.keyLifetime how long the provider remembers a key (Stripe: 24h). An attempt whose outcome is unknown
 *   is sent again under the same key only if it would end within it; afterwards a person decides.
 */
export function idempotent(options: { keyLifetime: Duration }): Recovery<unknown, 'idempotent'> {
  refuseUnknown(options, ['keyLifetime'], 'idempotent');
  return {
    kind: 'idempotent',
    keyLifetimeMs: settingMs(options?.keyLifetime, null, 'recovery.keyLifetime'),
    settlesWithinMs: null,
    reissue: 'by_person',
    lookups: null,
    find: null,
  };
}

/**
 * The provider can be asked, by our key or a natural key of the arguments.
 *
 * Name the arguments' type, as in `lookup<Payment>(…)`, to have `args` checked.
 *
 * @param find returns a `LookupAnswer`, or the effect itself, or null/undefined for "not there".
 * @param options.settlesWithin the longest time after which an accepted request may still become visible to `find`.
 *   With it, a proven absence is sent again automatically: one effect *if* no request reaches the provider later than
 *   send window + call timeout + settlesWithin. Without it, sending again needs a person.
 * @param options.lookups how often the provider is asked about one attempt without getting proof, an error included,
 *   before a named person must look. Default 20, which with the growing waits between them is about an hour.
 */
export function lookup<Args = Record<string, unknown>>(
  find: (call: LookupCall & { args: Args }) => Promise<unknown>,
  options: { settlesWithin?: Duration; reissue?: 'automatic' | 'by_person'; lookups?: number } = {},
): Recovery<Args, 'lookup'> {
  if (typeof find !== 'function') {
    throw invalid(null, 'recovery', 'lookup() needs a function that asks the provider for the effect.');
  }
  refuseUnknown(options, ['settlesWithin', 'reissue', 'lookups'], 'lookup');
  const settlesWithinMs =
    options.settlesWithin === undefined
      ? null
      : settingMs(options.settlesWithin, null, 'recovery.settlesWithin', REQUEST_MAX_MS);
  if (!['automatic', 'by_person', undefined].includes(options.reissue)) {
    throw invalid(null, 'recovery.reissue', 'must be "automatic" or "by_person".');
  }
  if (options.reissue === 'automatic' && settlesWithinMs === null) {
    throw invalid(
      null,
      'recovery.settlesWithin',
      'is needed for reissue "automatic": without it an absence proves nothing.',
    );
  }
  const lookups = options.lookups ?? DEFAULT_LOOKUPS;
  if (!Number.isInteger(lookups) || lookups < 1 || lookups > 1_000) {
    throw invalid(null, 'recovery.lookups', 'must be a whole number from 1 to 1000.');
  }
  return {
    kind: 'lookup',
    keyLifetimeMs: null,
    settlesWithinMs,
    reissue: options.reissue ?? (settlesWithinMs === null ? 'by_person' : 'automatic'),
    lookups,
    find,
  };
}

/** The provider can neither repeat nor be asked: an unproven outcome waits for a named person with evidence. */
export function manual(): Recovery<unknown, 'manual'> {
  return {
    kind: 'manual',
    keyLifetimeMs: null,
    settlesWithinMs: null,
    reissue: 'by_person',
    lookups: null,
    find: null,
  };
}

/** Reads what `find` returned: our own answer shape, or simply the effect or nothing. */
export function readAnswer(value: unknown): LookupAnswer {
  if (value === null || value === undefined) {
    return { found: false };
  }
  if (typeof value === 'object' && 'found' in value) {
    const { found } = value;
    if (found === true || found === 'different' || found === 'cannot_say' || found === false) {
      return value as LookupAnswer;
    }
    return { found: 'cannot_say' };
  }
  return { found: true, receipt: value };
}

/** A misspelt setting would silently be the default. */
function refuseUnknown(options: object | undefined, known: string[], kind: string): void {
  const unknown = Object.keys(options ?? {}).find((key) => !known.includes(key));
  if (unknown !== undefined) {
    throw invalid(
      null,
      `recovery.${unknown}`,
      `is not a setting of ${kind}(); known are ${known.join(', ')}.`,
    );
  }
}
