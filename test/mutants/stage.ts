/**
 * A stage for one schedule: a database whose protocol may be mutated, a provider that is a list, and workers that are
 * honest. What the protocol tells them they do; what it lets them do wrongly shows at the provider and in the rows.
 */
import { randomUUID } from 'node:crypto';
import { check, type Effect, type Expected, readFacts, type Violation } from '../../src/checker/index.ts';
import { callFunction, type Database, openDatabase } from '../../src/postgres/index.ts';
import { explain } from '../../src/runs/index.ts';
import { createTestDatabase } from '../support/database.ts';
import { announceWorker, intend, type SqlAction, type SqlRun, settle } from '../support/sql-run.ts';

/** One replacement in the source of a protocol function, or one statement against the tables. */
export type Mutation = { inside: string; from: string; to: string } | { statement: string };

export class Stage {
  readonly tenant = `t-${randomUUID()}`;
  readonly admin: Database;
  readonly worker: string;
  readonly other: string;
  readonly url: string;
  readonly #drop: () => Promise<void>;
  readonly #effects: Effect[] = [];

  private constructor(
    admin: Database,
    url: string,
    workers: { worker: string; other: string },
    drop: () => Promise<void>,
  ) {
    this.admin = admin;
    this.url = url;
    this.worker = workers.worker;
    this.other = workers.other;
    this.#drop = drop;
  }

  static async open(mutations: readonly Mutation[] = []): Promise<Stage> {
    const database = await createTestDatabase('mutant');
    const admin = openDatabase({ url: database.url, role: null, max: 4 });
    for (const mutation of mutations) {
      await mutate(admin, mutation);
    }
    const workers = { worker: await announceWorker(admin), other: await announceWorker(admin) };
    return new Stage(admin, database.url, workers, database.drop);
  }

  /** The provider does what it is asked, whoever asks and however often. */
  commit(action: SqlAction, body: Record<string, unknown> = {}): void {
    this.#effects.push({ key: action.id, body: { to: 'a', digest: action.digest, ...body } });
  }

  /** A worker with a prepared action: it calls the provider if the ledger says so, and settles what it got. */
  async perform(run: SqlRun, action: SqlAction, epoch = run.epoch): Promise<string> {
    const { outcome, attempt } = await intend(this.admin, run, action, epoch);
    if (outcome === 'dispatched') {
      this.commit(action);
      await settle(this.admin, run, action, { attempt: attempt ?? 0, outcome: 'succeeded', epoch });
    }
    return outcome;
  }

  /** The relay: everything that was announced is published. Returns the wakes of a run that were. */
  async relay(run: SqlRun): Promise<number[]> {
    const token = randomUUID();
    const rows = await callFunction<{ id: string; run_id: string; wake: number }>(
      this.admin,
      'claim_outbox',
      [100, 10_000, token],
    );
    await callFunction(this.admin, 'mark_outbox_sent', [rows.map(({ id }) => id), token]);
    return rows.filter(({ run_id }) => run_id === run.id).map(({ wake }) => wake);
  }

  /** What the checker finds. */
  async violations(expected: Expected): Promise<Violation[]> {
    await this.admin.pool.query(
      'update countersign.outbox set sent_at = clock_timestamp() where sent_at is null',
    );
    const facts = await readFacts(this.admin, this.tenant);
    const explanations = await Promise.all(
      facts.runs.map(({ id }) => explain(this.admin, { tenant: this.tenant, runId: id })),
    );
    const intended = await this.#intended();
    return check(facts, {
      effects: this.#effects,
      expected,
      explanations,
      // What is sealed on this stage is noise: an action's arguments are its digest.
      opened: ({ id }) => ({ reviewed: intended.get(id) ?? null, effective: intended.get(id) ?? null }),
    });
  }

  async #intended(): Promise<Map<string, { to: string; digest: string }>> {
    const { rows } = await this.admin.pool.query<{ id: string; digest: string }>(
      'select id, effective_digest as digest from countersign.actions where tenant = $1',
      [this.tenant],
    );
    return new Map(rows.map(({ id, digest }) => [id, { to: 'a', digest }]));
  }

  async close(): Promise<void> {
    await this.admin.close();
    await this.#drop();
  }
}

/** @throws when the text to replace is not there exactly once: a mutant that mutates nothing would prove nothing. */
async function mutate(admin: Database, mutation: Mutation): Promise<void> {
  if ('statement' in mutation) {
    await admin.pool.query(mutation.statement);
    return;
  }
  const { inside, from, to } = mutation;
  const { rows } = await admin.pool.query<{ source: string }>(
    "select pg_get_functiondef(oid) as source from pg_proc where proname = $1 and pronamespace = 'countersign'::regnamespace",
    [inside],
  );
  const [found, ...more] = rows;
  if (found === undefined || more.length > 0 || found.source.split(from).length !== 2) {
    throw new Error(`${inside} does not contain exactly once: ${from}`);
  }
  await admin.pool.query(found.source.replace(from, () => to));
}
