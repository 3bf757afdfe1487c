/**
 * A database with two workers announced, sessions that end with their test, and what the two-session schedules share.
 */
import type pg from 'pg';
import { expect } from 'vitest';
import { callFunction, type Database, openDatabase } from '../../src/postgres/index.ts';
import { createTestDatabase } from './database.ts';
import { chainFaults } from './run-facts.ts';
import { openSession, waitsForLock } from './sessions.ts';
import {
  type ActionOptions,
  announceWorker,
  approvedRun,
  claim,
  intend,
  type SqlAction,
  type SqlRun,
  settle,
} from './sql-run.ts';

type Role = 'countersign_worker' | 'countersign_api' | 'none';

export type SqlStage = {
  url: string;
  admin: Database;
  worker: string;
  other: string;
  session(role: Role, name?: string): Promise<pg.Client>;
  /** A session whose statements stop at a gate. */
  slow(role: Role): Promise<pg.Client>;
  /** Takes the run over for the other worker, as after a hold that ran out, in a transaction that stays open. */
  takeOverIn(tx: pg.Client, run: SqlRun): Promise<void>;
  /** Runs `late` in a session that has to wait for the first one's open transaction, then commits that. */
  behind<T>(first: pg.Client, second: pg.Client, late: () => Promise<T>): Promise<T>;
  endSessions(): Promise<void>;
  /** Fails when an event chain is broken. */
  close(): Promise<void>;
};

export async function openSqlStage(name: string): Promise<SqlStage> {
  const database = await createTestDatabase(name);
  const admin = openDatabase({ url: database.url, role: null, max: 6 });
  const worker = await announceWorker(admin);
  const other = await announceWorker(admin);
  const sessions: pg.Client[] = [];
  const session = async (role: Role, label = 'quick') => {
    const opened = await openSession(database.url, role, label);
    sessions.push(opened);
    return opened;
  };
  return {
    url: database.url,
    admin,
    worker,
    other,
    session,
    slow: (role) => session(role, 'slow'),
    async takeOverIn(tx, run) {
      await tx.query('begin');
      await tx.query(
        "update countersign.runs set held_until = clock_timestamp() - interval '1 s' where id = $1",
        [run.id],
      );
      await tx.query('select countersign.as_tenant($1)', [run.tenant]);
      const taken = await claim(tx, { ...run }, { worker: other });
      expect(taken.outcome).toBe('claimed');
    },
    async behind(first, second, late) {
      const waiting = late();
      waiting.catch(() => undefined);
      await waitsForLock(admin, second);
      await first.query('commit');
      return waiting;
    },
    async endSessions() {
      await Promise.all(sessions.splice(0).map((opened) => opened.end()));
    },
    async close() {
      expect(await chainFaults(admin)).toEqual([]);
      await admin.close();
      await database.drop();
    },
  };
}

/** An approved action, dispatched once, whose attempt has been proven absent. */
export async function provenAbsent({ admin, worker }: SqlStage, more: ActionOptions = {}): Promise<SqlRun> {
  const run = await approvedRun(admin, worker, [
    { sendWithinMs: 1, callTimeoutMs: 1, settlesWithinMs: 1, ...more },
  ]);
  await intend(admin, run, first(run));
  await settle(admin, run, first(run), { attempt: 1, outcome: 'unknown', epoch: run.epoch });
  await settle(admin, run, first(run), {
    attempt: 1,
    outcome: 'absent',
    source: 'lookup',
    askedAt: new Date(Date.now() + 1_000),
  });
  return run;
}

/** What a reconciler does before it asks: a dispatched action past its deadline becomes unknown. */
export async function loadToReconcile({ admin }: SqlStage, run: SqlRun): Promise<void> {
  await callFunction(admin, 'load_action_to_reconcile', [run.tenant, run.id, first(run).id]);
}

export function first(run: SqlRun): SqlAction {
  return both(run)[0];
}

export function both(run: SqlRun): [SqlAction, SqlAction] {
  const [one, two = one] = run.actions;
  if (one === undefined || two === undefined) throw new Error('the run has no action');
  return [one, two];
}
