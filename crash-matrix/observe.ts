/** How the checker sees a lane's world: effects where they happened, and what `explain` says. */
import type { Effect, Facts } from '../src/checker/index.ts';
import { type Explanation, explain } from '../src/runs/index.ts';
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
