/** Schedules about what is known of an attempt, and who says it. See schedules.ts. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  askAgain,
  cancel,
  decideBy,
  finish,
  intend,
  openSession,
  release,
  settle,
} from '../support/sql-run.ts';
import {
  absent,
  again,
  approved,
  brief,
  done,
  first,
  judge,
  type Schedule,
  sendInVain,
  takeOver,
} from './moves.ts';

export const EVIDENCE_SCHEDULES = {
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

  async 'a provider forgets a key while the request waits to be sent'(stage) {
    const lifetime = {
      recovery: 'idempotent' as const,
      keyLifetimeMs: 400,
      sendWithinMs: 300,
      callTimeoutMs: 1,
    };
    const run = await approved(stage, lifetime);
    await intend(stage.admin, run, first(run));
    stage.commit(first(run));
    await sleep(320);
    await takeOver(stage, run);
    if ((await intend(stage.admin, run, first(run))).outcome === 'dispatched') {
      // Sent at the end of its window, which is past the key's lifetime.
      await sleep(280);
      stage.commit(first(run));
    }
    return { ...done, ended: false, ends: ['running'] };
  },

  async 'two people looked for the same attempt'(stage) {
    const run = await approved(stage, { ...brief, recovery: 'manual' });
    const action = first(run);
    await sendInVain(stage, run, action, 1);
    // Alice and Bob both look for attempt 1, and there is nothing.
    await judge(stage, action, 1, 'absent', 'bob');
    await again(stage, run);
    const { attempt } = await intend(stage.admin, run, action);
    stage.commit(action);
    await settle(stage.admin, run, action, { attempt: attempt ?? 0, outcome: 'unknown', epoch: run.epoch });
    await sleep(20);
    await judge(stage, action, 1, 'absent', 'alice');
    await again(stage, run);
    await stage.perform(run, action);
    await judge(stage, action, 2, 'succeeded', 'alice');
    await again(stage, run);
    await finish(stage.admin, run);
    return { ...done, judged: new Set([action.id]) };
  },

  async 'a person looks while the request is under way'(stage) {
    const run = await approved(stage, { recovery: 'manual' });
    const action = first(run);
    await sendInVain(stage, run, action, 1);
    await judge(stage, action, 1, 'absent', 'bob');
    await again(stage, run);
    await stage.perform(run, action);
    // The request of attempt 1 arrives, and so does its answer.
    stage.commit(action);
    await settle(stage.admin, run, action, { attempt: 1, outcome: 'succeeded' });
    await again(stage, run);
    await finish(stage.admin, run);
    return done;
  },

  async 'both of two identical actions are approved at once'(stage) {
    const operation = 'o'.repeat(64);
    const [one, two] = [await approved(stage, { operation }), await approved(stage, { operation })];
    await stage.perform(one, first(one));
    await finish(stage.admin, one);
    if ((await stage.perform(two, first(two))) === 'decide_again') {
      await askAgain(stage.admin, two, first(two));
      await decideBy(stage.admin, two, first(two), 'reject');
      await again(stage, two);
    }
    await finish(stage.admin, two);
    return done;
  },
} as const satisfies Record<string, Schedule>;
