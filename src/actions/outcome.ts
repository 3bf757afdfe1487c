/**
 * What `execute` may throw to say that an outcome is *proven*. Any other throw proves nothing, and the action becomes
 * outcome_unknown: a timeout, a dropped connection or a 500 after the provider committed all look alike from here.
 */
export class ProviderRefused extends Error {
  override readonly name = 'ProviderRefused';
  readonly evidence: unknown;

  constructor(message: string, evidence?: unknown) {
    super(message);
    this.evidence = evidence;
  }
}

/** See `neverSent`. */
export class NeverSent extends Error {
  override readonly name = 'NeverSent';
}

/**
 * The provider answered that nothing happened and nothing will (a validation error, insufficient funds). Final; the
 * model is told `message`.
 */
export function refused(message: string, evidence?: unknown): ProviderRefused {
  return new ProviderRefused(message, evidence);
}

/** The request provably never left this machine (connection refused before the first byte). It may be sent again. */
export function neverSent(message: string): NeverSent {
  return new NeverSent(message);
}
