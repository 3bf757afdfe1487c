import { CountersignError } from '../errors.ts';
import { type Database, readAsTenant } from '../postgres/index.ts';
import { isUuid } from '../uuid.ts';

export type DeadLetter = {
  id: string;
  /** `run`: its attempts were spent or a retry is pointless. `outbox`: its announcement was refused by the queue. */
  kind: 'run' | 'outbox';
  runId: string;
  workflow: string;
  version: string;
  class: string;
  code: string;
  /** Which round of attempts ended here; every replay starts the next. */
  round: number;
  createdAt: Date;
  closedAs: string | null;
  replayedBy: string | null;
  replayReason: string | null;
};

export type DeadLetterFilter = {
  class?: string | undefined;
  code?: string | undefined;
  workflow?: string | undefined;
  /** Default false: only what is still open. */
  closed?: boolean | undefined;
  /** At most 1000; default 50. */
  limit?: number | undefined;
  /** Goes on after this id: lists are ordered by (created, id). */
  after?: string | undefined;
};

/** parameters: id or null, class, code, workflow, closed, limit, after. Oldest first. Zero rows: nothing of this tenant's. */
const LIST = `
  with letters as (
    select d.id, 'run' as kind, d.run_id, d.class, d.code, d.round, d.created_at, d.closed_as, d.replayed_by, d.replay_reason
    from countersign.dead_letters d
    union all
    select o.id, 'outbox', o.run_id, 'poison', coalesce(o.dead_reason, 'PUBLISH_REFUSED'), 1, o.dead_at, null, o.replayed_by, null
    from countersign.outbox o where o.dead_at is not null)
  select l.id, l.kind, l.run_id as "runId", r.workflow, r.version, l.class, l.code, l.round, l.created_at as "createdAt",
    l.closed_as as "closedAs", l.replayed_by as "replayedBy", l.replay_reason as "replayReason"
  from letters l join countersign.runs r on r.id = l.run_id
  where ($1::uuid is null or l.id = $1) and ($2::text is null or l.class = $2) and ($3::text is null or l.code = $3)
    and ($4::text is null or r.workflow = $4) and ($5 or l.closed_as is null)
    and ($7::uuid is null or (l.created_at, l.id) > (select a.created_at, a.id from letters a where a.id = $7))
  order by l.created_at, l.id limit $6`;

export async function listDeadLetters(
  db: Database,
  tenant: string,
  filter: DeadLetterFilter = {},
): Promise<DeadLetter[]> {
  if (filter.after !== undefined && !isUuid(filter.after)) {
    return [];
  }
  return query(db, tenant, [
    null,
    filter.class ?? null,
    filter.code ?? null,
    filter.workflow ?? null,
    filter.closed ?? false,
    Math.min(filter.limit ?? 50, 1_000),
    filter.after ?? null,
  ]);
}

/** @throws DEAD_LETTER_NOT_FOUND */
export async function showDeadLetter(db: Database, tenant: string, id: string): Promise<DeadLetter> {
  const [letter] = isUuid(id) ? await query(db, tenant, [id, null, null, null, true, 1, null]) : [];
  if (letter === undefined) {
    throw deadLetterNotFound(id);
  }
  return letter;
}

export function deadLetterNotFound(id: string): CountersignError {
  return new CountersignError(
    'DEAD_LETTER_NOT_FOUND',
    'No such dead letter; "countersign dlq list" lists yours.',
    {
      details: { deadLetterId: id.slice(0, 64) },
    },
  );
}

function query(db: Database, tenant: string, values: unknown[]): Promise<DeadLetter[]> {
  return readAsTenant(db, tenant, async (tx) => (await tx.query(LIST, values)).rows as DeadLetter[]);
}
