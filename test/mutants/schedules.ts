/**
 * The shortest schedules in which each rule of the protocol is what stands between the fleet and a violation. Each is
 * right under the clean protocol; the expectation says what "right" is.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Expected } from '../../src/checker/index.ts';
import { callFunction } from '../../src/postgres/index.ts';
import {
  approvedRun,
  cancel,
  claim,
  decideBy,
  finish,
  intend,
  journal,
  openSession,
  pause,
  pausedRun,
  release,
  type SqlAction,
  type SqlRun,
  settle,
  startRun,
  sweep,
} from '../support/sql-run.ts';
import type { Stage } from './stage.ts';

export type Schedule = (stage: Stage) => Promise<Expected>;

const done: Expected = { ended: true, ends: ['completed'], effects: { a: 1 } };
const without: Expected = { ended: true, ends: ['completed'], effects: {} };
/** Deadlines that have passed when the next statement is sent. */
const brief = { sendWithinMs: 1, callTimeoutMs: 1, settlesWithinMs: 1 };

const first = (run: SqlRun): SqlAction => {
  const [action] = run.actions;
  if (action === undefined) throw new Error('the run has no action');
  return action;
};

/** The holder goes silent, its hold passes, and the other worker takes the run over. Returns the stale epoch. */
async function takeOver(stage: Stage, run: SqlRun): Promise<number> {
  const stale = run.epoch;
  await stage.admin.pool.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 second' where id = $1",
    [run.id],
  );
  await claim(stage.admin, run, { worker: stage.other });
  return stale;
}

const approved = (stage: Stage, options = {}) =>
  approvedRun(stage.admin, stage.worker, [options], stage.tenant);

/** A run in its first segment, held. */
async function claimedRun(stage: Stage): Promise<SqlRun> {
  const run = await startRun(stage.admin, stage.worker, stage.tenant);
  await claim(stage.admin, run);
  return run;
}

export const SCHEDULES = {
  async 'a stale worker sends'(stage) {
    const run = await approved(stage);
    const stale = await takeOver(stage, run);
    await stage.perform(run, first(run), stale);
    await stage.perform(run, first(run));
    await finish(stage.admin, run);
    return done;
  },

  async 'a stale worker pauses'(stage) {
    const run = await claimedRun(stage);
    await journal(stage.admin, run, [{}]);
    const stale = await takeOver(stage, run);
    await pause(stage.admin, run, [], stale);
    return { ...without, ends: ['running'] };
  },

  async 'a stale worker finishes'(stage) {
    const run = await approved(stage);
    const stale = await takeOver(stage, run);
    await finish(stage.admin, run, stale);
    await stage.perform(run, first(run));
    await finish(stage.admin, run);
    return done;
  },

  async 'a stale worker stores a response'(stage) {
    const run = await claimedRun(stage);
    const stale = await takeOver(stage, run);
    await journal(stage.admin, run, [{}], stale);
    return { ...without, ends: ['running'] };
  },

  async 'two deliveries at once'(stage) {
    const run = await startRun(stage.admin, stage.worker, stage.tenant);
    await claim(stage.admin, run);
    await claim(stage.admin, { ...run }, { worker: stage.other });
    return { ...without, ends: ['running'] };
  },

  async 'a gated action is called before anybody was asked'(stage) {
    const run = await claimedRun(stage);
    await journal(stage.admin, run, [{}]);
    await stage.perform(run, first(run));
    await finish(stage.admin, run);
    return without;
  },

  async 'an approval is used after its last moment'(stage) {
    const run = await approved(stage, { executeWithinMs: 1 });
    await sleep(100);
    await stage.perform(run, first(run));
    await finish(stage.admin, run);
    return without;
  },

  async 'a decision comes too late'(stage) {
    const run = await pausedRun(stage.admin, stage.worker, [{ expiresInMs: 1 }], stage.tenant);
    await sleep(100);
    await decideBy(stage.admin, run, first(run));
    return { ...without, ends: ['ready'] };
  },

  async 'two people decide'(stage) {
    const run = await pausedRun(stage.admin, stage.worker, [{}], stage.tenant);
    await decideBy(stage.admin, run, first(run), 'approve', 'alice');
    await decideBy(stage.admin, run, first(run), 'reject', 'bob');
    return { ...without, ended: false, ends: ['ready'] };
  },

  async 'one of two people approves'(stage) {
    const run = await pausedRun(stage.admin, stage.worker, [{ quorum: 2 }], stage.tenant);
    await decideBy(stage.admin, run, first(run), 'approve', 'alice');
    return { ...without, ended: false, ends: ['awaiting_approval'] };
  },

  async 'a run is asked to stop and its worker goes on'(stage) {
    const run = await approved(stage);
    await cancel(stage.admin, run);
    await stage.perform(run, first(run));
    return { ...without, ended: false, ends: ['running'] };
  },

  async 'the call is not the one that was reviewed'(stage) {
    const run = await approved(stage);
    const action = first(run);
    const forged = { ...action, digest: 'f'.repeat(64) };
    const { outcome } = await callIntend(stage, run, action, forged.digest);
    if (outcome === 'dispatched') {
      stage.commit(forged);
    }
    return { ...without, ended: false, ends: ['quarantined'], alarm: true };
  },

  async 'evidence about an earlier attempt comes late'(stage) {
    const run = await approved(stage, brief);
    const action = first(run);
    await intend(stage.admin, run, action);
    await sleep(20);
    await absent(stage, run, action, 1);
    await again(stage, run);
    await intend(stage.admin, run, action);
    await settle(stage.admin, run, action, { attempt: 1, outcome: 'never_sent' });
    stage.commit(action);
    await again(stage, run);
    await stage.perform(run, action);
    await settle(stage.admin, run, action, { attempt: 2, outcome: 'succeeded' });
    await again(stage, run);
    await finish(stage.admin, run);
    return done;
  },

  async 'a look-up is answered while the request is under way'(stage) {
    const run = await approved(stage);
    const action = first(run);
    await intend(stage.admin, run, action);
    await absent(stage, run, action, 1);
    await takeOver(stage, run);
    await stage.perform(run, action);
    stage.commit(action);
    await settle(stage.admin, run, action, { attempt: 1, outcome: 'succeeded' });
    await again(stage, run);
    await stage.perform(run, action);
    await finish(stage.admin, run);
    return done;
  },

  async 'an action is proven absent and sent again'(stage) {
    const run = await approved(stage, brief);
    await intend(stage.admin, run, first(run));
    await sleep(20);
    await absent(stage, run, first(run), 1);
    await again(stage, run);
    await stage.perform(run, first(run));
    await finish(stage.admin, run);
    return done;
  },

  async 'a worker loses its hold during the call'(stage) {
    const run = await approved(stage, { recovery: 'manual' });
    const stale = run.epoch;
    const { attempt } = await intend(stage.admin, run, first(run));
    stage.commit(first(run));
    await takeOver(stage, run);
    await settle(stage.admin, run, first(run), { attempt: attempt ?? 0, outcome: 'succeeded', epoch: stale });
    await stage.perform(run, first(run));
    await finish(stage.admin, run);
    return done;
  },

  async 'two runs ask for the same operation at once'(stage) {
    const operation = 'o'.repeat(64);
    const [one, two] = [await approved(stage, { operation }), await approved(stage, { operation })];
    const [slow, quick] = [await openSession(stage.url, 'none'), await openSession(stage.url, 'none')];
    try {
      await slow.query('begin');
      const intents = [await intend(slow, one, first(one)), intend(quick, two, first(two))] as const;
      await sleep(200);
      await slow.query('commit');
      for (const [run, intent] of [
        [one, intents[0]],
        [two, await intents[1]],
      ] as const) {
        if (intent.outcome === 'dispatched') {
          stage.commit(first(run));
        }
      }
    } finally {
      await Promise.all([slow.end(), quick.end()]);
    }
    return { ...done, ended: false, ends: ['running'] };
  },

  async 'a worker dies and nobody says so'(stage) {
    const run = await startRun(stage.admin, stage.worker, stage.tenant);
    await stage.relay(run);
    await claim(stage.admin, run, { ttlMs: 1 });
    await sleep(20);
    await sweep(stage.admin, run);
    for (const wake of await stage.relay(run)) {
      await claim(stage.admin, run, { worker: stage.other, wake });
    }
    return { ...without, ends: ['running'] };
  },

  async 'a run becomes ready'(stage) {
    await startRun(stage.admin, stage.worker, stage.tenant);
    return { ...without, ends: ['ready'] };
  },

  async 'a segment is carried twice'(stage) {
    const run = await claimedRun(stage);
    await journal(stage.admin, run, [{ gated: false }]);
    await stage.perform(run, first(run));
    await expire(stage, run);
    const taken = await claim(stage.admin, run, { worker: stage.other });
    const known = taken.outcome === 'claimed' ? taken.run.calls : [];
    if (known.length === 0) {
      await journal(stage.admin, run, [{ gated: false }]);
    }
    for (const action of run.actions) {
      await stage.perform(run, action);
    }
    await finish(stage.admin, run);
    return done;
  },

  async 'a replay asks something else after an effect'(stage) {
    const run = await claimedRun(stage);
    await journal(stage.admin, run, [{ gated: false }]);
    await stage.perform(run, first(run));
    await takeOver(stage, run);
    const [row] = await callFunction<{ supersede_journal: string[] }>(stage.admin, 'supersede_journal', [
      run.tenant,
      run.id,
      run.epoch,
      '',
      0,
    ]);
    if ((row?.supersede_journal.length ?? 0) > 0) {
      await journal(stage.admin, run, [{ gated: false }]);
      await stage.perform(run, run.actions.at(-1) ?? first(run));
    }
    await finish(stage.admin, run);
    return done;
  },

  async 'a run ends with an outcome that nobody knows'(stage) {
    const run = await approved(stage);
    await intend(stage.admin, run, first(run));
    stage.commit(first(run));
    if (!(await finish(stage.admin, run))) {
      await settle(stage.admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
      await again(stage, run);
      await finish(stage.admin, run);
    }
    return done;
  },

  async 'a receipt comes for what was called absent'(stage) {
    const run = await approved(stage, brief);
    await intend(stage.admin, run, first(run));
    await sleep(20);
    await absent(stage, run, first(run), 1);
    await cancel(stage.admin, run);
    await release(stage.admin, run);
    stage.commit(first(run));
    await settle(stage.admin, run, first(run), { attempt: 1, outcome: 'succeeded' });
    return { ...done, ends: ['cancelled'], contradiction: true };
  },

  async 'a provider forgets a key'(stage) {
    const lifetime = {
      recovery: 'idempotent' as const,
      keyLifetimeMs: 50,
      sendWithinMs: 1,
      callTimeoutMs: 1,
    };
    const run = await approved(stage, lifetime);
    await intend(stage.admin, run, first(run));
    stage.commit(first(run));
    await sleep(100);
    await takeOver(stage, run);
    if ((await intend(stage.admin, run, first(run))).outcome === 'dispatched') {
      stage.commit(first(run));
    }
    return { ...done, ended: false, ends: ['running'] };
  },
} as const satisfies Record<string, Schedule>;

export type ScheduleName = keyof typeof SCHEDULES;

async function expire(stage: Stage, run: SqlRun): Promise<void> {
  await stage.admin.pool.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 second' where id = $1",
    [run.id],
  );
}

/** A look-up that began now and found nothing. */
async function absent(stage: Stage, run: SqlRun, action: SqlAction, attempt: number): Promise<void> {
  const { rows } = await stage.admin.pool.query<{ now: Date }>('select clock_timestamp() as now');
  await settle(stage.admin, run, action, {
    attempt,
    outcome: 'absent',
    source: 'lookup',
    askedAt: rows[0]?.now ?? null,
  });
}

/** The run is carried on: by the next delivery if it was let go, by whoever takes it over if it was not. */
async function again(stage: Stage, run: SqlRun): Promise<void> {
  await expireIfRunning(stage, run);
  const { rows } = await stage.admin.pool.query<{ wake: number }>(
    'select wake from countersign.runs where id = $1',
    [run.id],
  );
  run.wake = rows[0]?.wake ?? run.wake;
  await claim(stage.admin, run, { worker: stage.other });
}

async function expireIfRunning(stage: Stage, run: SqlRun): Promise<void> {
  await stage.admin.pool.query(
    "update countersign.runs set held_until = clock_timestamp() - interval '1 second' where id = $1 and status = 'running'",
    [run.id],
  );
}

async function callIntend(stage: Stage, run: SqlRun, action: SqlAction, effectiveDigest: string) {
  const [row] = await callFunction<{ outcome: string }>(stage.admin, 'intend_action', [
    run.tenant,
    run.id,
    run.epoch,
    action.id,
    action.tool,
    action.digest,
    effectiveDigest,
  ]);
  return { outcome: row?.outcome };
}
