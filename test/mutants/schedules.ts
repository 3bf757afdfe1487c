/**
 * The shortest schedules in which each rule of the protocol is what stands between the fleet and a violation. Each is
 * right under the clean protocol; the expectation says what "right" is.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { callFunction } from '../../src/postgres/index.ts';
import {
  cancel,
  claim,
  decideBy,
  finish,
  journal,
  pause,
  pausedRun,
  startRun,
  sweep,
} from '../support/sql-run.ts';
import { EVIDENCE_SCHEDULES } from './evidence-schedules.ts';
import {
  approved,
  callIntend,
  claimedRun,
  done,
  expire,
  first,
  type Schedule,
  takeOver,
  without,
} from './moves.ts';

export const SCHEDULES = {
  ...EVIDENCE_SCHEDULES,

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

  async 'a run is asked to stop and its last worker dies'(stage) {
    const run = await startRun(stage.admin, stage.worker, stage.tenant);
    await claim(stage.admin, run, { maxAttempts: 1 });
    await cancel(stage.admin, run);
    await expire(stage, run);
    await claim(stage.admin, run, { worker: stage.other, maxAttempts: 1 });
    return { ...without, ends: ['cancelled'], givenUp: true };
  },
} as const satisfies Record<string, Schedule>;

export type ScheduleName = keyof typeof SCHEDULES;
