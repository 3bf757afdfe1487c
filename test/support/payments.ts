/** Actions whose effects the provider counts, told apart by who is paid. */
import { z } from 'zod';
import { type ActionOptions, action, type LookupAnswer, lookup } from '../../src/index.ts';
import type { Provider } from './provider.ts';

/** Payees are lower-case letters and dashes: each is a kind of its own at the provider. */
export const payment = z.object({ to: z.string(), amount: z.number() });
export type Payment = z.output<typeof payment>;

type Settings = Partial<ActionOptions<typeof payment, 'lookup'>>;

/** A gated payment that can be looked up by our key. `approval: null` makes it run without a decision. */
export function payAction(provider: Provider, settings: Settings = {}) {
  return action({
    name: 'pay',
    description: 'Pay somebody',
    parameters: payment,
    execute: (args, { operationKey, signal }) =>
      provider.client.create(`pay-${args.to}`, args, { idempotencyKey: operationKey, signal }),
    recovery: lookup(
      async ({ operationKey, args }): Promise<LookupAnswer> => {
        const { effects } = await provider.client.find(`pay-${args.to}`, operationKey);
        return effects[0] === undefined ? { found: false } : { found: true, receipt: effects[0] };
      },
      { settlesWithin: '200ms' },
    ),
    target: ({ to }) => to,
    review: ({ to, amount }) => ({ summary: `Pay ${amount} to ${to}` }),
    approval: { policy: 'payments' },
    ...settings,
  });
}

/** Commits by payee; payees who were never paid are absent. */
export async function effects(provider: Provider): Promise<Record<string, number>> {
  const { byKind } = await provider.client.counts();
  return Object.fromEntries(
    Object.entries(byKind)
      .filter(([, { commits }]) => commits > 0)
      .map(([kind, { commits }]) => [kind.replace(/^pay-/, ''), commits]),
  );
}

/** Requests that reached the provider, whether or not they took effect. */
export async function dispatches(provider: Provider): Promise<number> {
  return (await provider.client.counts()).calls;
}
