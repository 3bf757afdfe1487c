/** How the checker sees the world: effects where they happened, and what the ledger's sealed columns say. */
import type { JsonValue } from '../src/digests/index.ts';
import { type Explanation, explain } from '../src/runs/index.ts';
import type { KeyRing } from '../src/seal/index.ts';
import type { Effect, World } from './checker.ts';
import type { Facts } from './facts.ts';
import type { Lane } from './lane.ts';
import { PROVIDER_KINDS } from './workflows.ts';

/** Every effect that carries the schedule's mark, at the provider or in the database, whatever its key. */
export async function effectsOf(lane: Lane, mark: string): Promise<Effect[]> {
  const found = await Promise.all(
    PROVIDER_KINDS.map((kind) => lane.provider.client.findBy(kind, 'mark', mark)),
  );
  const { rows } = await lane.admin.pool.query<Effect>(
    "select key, body from public.effects where body ->> 'mark' = $1",
    [mark],
  );
  return [...found.flatMap(({ effects }) => effects.map(({ key, body }) => ({ key, body }))), ...rows];
}

export function explainAll(lane: Lane, facts: Facts): Promise<Explanation[]> {
  return Promise.all(facts.runs.map(({ id }) => explain(lane.reader, { tenant: facts.tenant, runId: id })));
}

/** Opens what a reviewer was shown and what was to run. */
export function openerFor(keys: KeyRing, facts: Facts): NonNullable<World['opened']> {
  return (action) => {
    const approval = facts.approvals.findLast(({ actionId }) => actionId === action.id);
    const shown =
      approval === undefined
        ? null
        : (keys.openJson('review', approval.sealedReview, {
            tenant: facts.tenant,
            table: 'approvals',
            column: 'sealed_review',
            row: approval.id,
          }) as { arguments: JsonValue });
    return {
      reviewed: shown?.arguments ?? null,
      effective:
        action.sealedArguments === null
          ? null
          : keys.openJson('review', action.sealedArguments, {
              tenant: facts.tenant,
              table: 'actions',
              column: 'sealed_arguments',
              row: action.id,
            }),
    };
  };
}
