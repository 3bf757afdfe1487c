/** Evidence that names a run which a restart has replaced: the action is the new run's, and its key is the same. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { callFunction, type Database } from '../../src/postgres/index.ts';
import { facts } from '../support/run-facts.ts';
import {
  approvalOf,
  approvedRun,
  claim,
  decideBy,
  intend,
  type SqlRun,
  settle,
  showApprovals,
} from '../support/sql-run.ts';
import { first, openSqlStage, provenAbsent, type SqlStage } from '../support/sql-stage.ts';

let stage: SqlStage;
let admin: Database;
let worker: string;

beforeAll(async () => {
  stage = await openSqlStage('restarted');
  ({ admin, worker } = stage);
});

afterAll(() => stage.close());

/** Restarts a run from its checkpoint; its one action waits for a decision again. */
async function restartedRun(run: SqlRun): Promise<SqlRun> {
  const next = {
    ...run,
    id: crypto.randomUUID(),
    epoch: 0,
    actions: [{ ...first(run), approvalId: crypto.randomUUID() }],
  };
  await callFunction(admin, 'restart_run', [
    run.tenant,
    run.id,
    1,
    next.id,
    '1',
    Buffer.from('sealed'),
    JSON.stringify([approvalOf(first(next))]),
    'olga',
    'a better prompt',
  ]);
  await showApprovals(admin, next);
  return next;
}

it('a receipt that names the run which a restart has replaced still finds its action', async () => {
  const run = await provenAbsent(stage);
  const newRun = crypto.randomUUID();
  const [restarted] = await callFunction<{ outcome: string }>(admin, 'restart_run', [
    run.tenant,
    run.id,
    1,
    newRun,
    '1',
    Buffer.from('sealed'),
    '[]',
    'olga',
    'a better prompt',
  ]);
  expect(restarted?.outcome).toBe('restarted');
  const late = await settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
  expect(late.outcome).toBe('settled');
  const after = await facts(admin, { ...run, id: newRun });
  expect(after.actions[0]).toMatchObject({ state: 'succeeded' });
  expect(after.kinds).toContain('contradiction');
});

it.each(['one after the other', 'in one statement'])(
  'a receipt that names the replaced run, and what the new one says of its own attempt, %s',
  async (how) => {
    const run = await approvedRun(admin, worker, [{ recovery: 'idempotent' }]);
    await intend(admin, run, first(run));
    await settle(admin, run, first(run), { attempt: 1, outcome: 'never_sent', epoch: run.epoch });
    const next = await restartedRun(run);
    expect((await decideBy(admin, next, first(next))).outcome).toBe('approved');
    await claim(admin, next);
    expect(await intend(admin, next, first(next))).toMatchObject({ outcome: 'dispatched', attempt: 2 });
    const late = () => settle(admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
    const own = () =>
      settle(admin, next, first(next), { attempt: 2, outcome: 'never_sent', epoch: next.epoch });
    if (how === 'in one statement') {
      await Promise.all([late(), own()]);
    } else {
      await own();
      await late();
    }
    expect((await facts(admin, next)).actions[0]).toMatchObject({
      state: 'succeeded',
      approval: 'consumed',
    });
  },
);
