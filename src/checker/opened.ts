import type { JsonValue } from '../digests/index.ts';
import type { KeyRing } from '../seal/index.ts';
import type { World } from './check.ts';
import type { Facts } from './facts.ts';

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
