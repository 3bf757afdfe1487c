/** A notification arrives at least once, under one id, whatever becomes of the relay or the receiver. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  createLog,
  type NotificationSink,
  notificationLog,
  notificationWebhook,
  runRelay,
  verifyNotification,
} from '../../src/index.ts';
import { describeError } from '../../src/log.ts';
import { notifyOnce } from '../../src/notifications/index.ts';
import { callFunction, type Database, openDatabase } from '../../src/postgres/index.ts';
import { cleanEnv, cli } from '../cli/run-cli.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { approvedRun, pausedRun, type SqlRun } from '../support/sql-run.ts';
import { openSqlStage, type SqlStage } from '../support/sql-stage.ts';

const SECRET = 'a secret of enough characters';
const silent = createLog('notify', 'silent');
let stage: SqlStage;
let db: Database;
let receiver: Receiver;
const children: ChildProcess[] = [];

beforeAll(async () => {
  stage = await openSqlStage('delivery');
  db = openDatabase({ url: stage.url, role: 'countersign_relay', max: 1 });
});
beforeEach(async () => {
  receiver = await startReceiver();
  await stage.admin.pool.query('update countersign.notifications set delivered_at = clock_timestamp()');
});
afterEach(async () => {
  for (const child of children.splice(0)) {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await once(child, 'close');
    }
  }
  await receiver.close();
});
afterAll(async () => {
  await db?.close();
  await stage?.close();
});

/** A quarantine, and the request for the decision that came before it. */
async function alerted(tenant = 'acme'): Promise<SqlRun> {
  const run = await approvedRun(stage.admin, stage.worker, [{}], tenant);
  await callFunction(stage.admin, 'quarantine_run', [tenant, run.id, run.epoch, 'SEAL_BROKEN']);
  return run;
}

const webhook = () => notificationWebhook({ url: receiver.url, secret: SECRET });
const pass = (sink: NotificationSink = webhook(), more: { deadlineMs?: number } = {}) =>
  notifyOnce(db, sink, silent, { limit: 10, retryMs: 1, ...more });
const waiting = async () =>
  (
    await stage.admin.pool.query<{ id: string; tries: number }>(
      'select id, tries from countersign.notifications where delivered_at is null order by created_at',
    )
  ).rows;

describe('a receiver', () => {
  it('is told ids and codes, alerts first, signed over the bytes it was sent', async () => {
    const run = await alerted();
    await pass();
    expect(receiver.posted.map(({ kind }) => kind).sort()).toEqual(['approval_requested', 'security_alert']);
    const [alert] = receiver.posted.filter(({ kind }) => kind === 'security_alert');
    expect(JSON.parse(alert?.body ?? '')).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      kind: 'security_alert',
      tenant: 'acme',
      run: run.id,
      action: null,
      approval: null,
      code: 'SEAL_BROKEN',
      at: expect.stringMatching(/^20.*Z$/),
    });
    expect(alert?.headers).toMatchObject({
      'content-type': 'application/json',
      'countersign-notification': alert?.id,
    });
    const header = String(alert?.headers['countersign-signature']);
    const body = alert?.body ?? '';
    expect(verifyNotification(SECRET, body, header)).toBe(true);
    expect(verifyNotification('another secret', body, header)).toBe(false);
    expect(verifyNotification(SECRET, `${body} `, header)).toBe(false);
    expect(verifyNotification(SECRET, body, undefined)).toBe(false);
    expect(verifyNotification(SECRET, body, header, { nowMs: Date.now() + 600_000 })).toBe(false);
    expect(await waiting()).toEqual([]);
  });

  it('hears of alerts before requests, when there is more than one pass can carry', async () => {
    await pausedRun(stage.admin, stage.worker, [{}, {}]);
    await alerted();
    await notifyOnce(db, webhook(), silent, { limit: 1 });
    expect(receiver.posted.map(({ kind }) => kind)).toEqual(['security_alert']);
  });

  it('that answers 500, a redirect or nothing is told again later, under the same id', async () => {
    await alerted();
    await stage.admin.pool.query(
      "update countersign.notifications set delivered_at = clock_timestamp() where kind = 'approval_requested'",
    );
    receiver.answers.push(500, 302, 'hang');
    const [{ id } = { id: '' }] = await waiting();
    for (let tries = 1; tries <= 3; tries += 1) {
      expect(await pass(webhook(), { deadlineMs: 300 })).toMatchObject({ delivered: 0, failed: 1 });
      expect(await waiting()).toEqual([{ id, tries }]);
      await sleep(20);
    }
    expect(await pass()).toMatchObject({ delivered: 1 });
    expect(await waiting()).toEqual([]);
    expect(receiver.posted.map((posted) => posted.id)).toEqual([id, id, id, id]);
    expect(await pass()).toMatchObject({ claimed: 0 });
  });

  it('that is gone is tried with growing waits up to a bound, and no alert is ever given up', async () => {
    await alerted();
    const refuses: NotificationSink = () => Promise.reject(new Error('no'));
    for (let tries = 0; tries < 12; tries += 1) {
      await stage.admin.pool.query('update countersign.notifications set available_at = clock_timestamp()');
      await notifyOnce(db, refuses, silent, { limit: 10 });
    }
    const { rows } = await stage.admin.pool.query<{ s: number }>(
      `select extract(epoch from available_at - clock_timestamp())::integer as s from countersign.notifications
       where delivered_at is null`,
    );
    expect(rows).toHaveLength(2);
    for (const { s } of rows) {
      expect(s).toBeGreaterThan(290);
      expect(s).toBeLessThanOrEqual(360);
    }
  });

  it('is told of the runs of every tenant, each by its own name', async () => {
    const mine = await alerted();
    const theirs = await alerted('umbrella');
    await pass();
    const told = receiver.posted.map(({ body }) => JSON.parse(body) as { tenant: string; run: string });
    for (const run of [mine, theirs]) {
      expect(new Set(told.filter((one) => one.run === run.id).map(({ tenant }) => tenant))).toEqual(
        new Set([run.tenant]),
      );
    }
  });
});

describe('without a receiver', () => {
  it('alerts are warnings in the log, and requests information', async () => {
    const run = await alerted();
    const lines: Record<string, unknown>[] = [];
    const log = pino(
      { level: 'info' },
      new Writable({
        write(chunk, _encoding, done) {
          lines.push(JSON.parse(String(chunk)) as Record<string, unknown>);
          done();
        },
      }),
    );
    await pass(notificationLog(log));
    expect(lines).toHaveLength(2);
    expect(lines).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ level: 40, kind: 'security_alert', code: 'SEAL_BROKEN', run: run.id }),
        expect.objectContaining({ level: 30, kind: 'approval_requested', run: run.id }),
      ]),
    );
  });
});

describe('the relay process', () => {
  it('publishes announcements while a receiver hangs', async () => {
    await alerted();
    const hangs: NotificationSink = (_notification, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    const relay = await runRelay({
      databaseUrl: stage.url,
      redisUrl: null,
      log: silent,
      notify: hangs,
      notifyIdleMs: 10,
    });
    try {
      await expect
        .poll(
          async () =>
            (
              await stage.admin.pool.query(
                'select 1 from countersign.notifications where delivered_at is null and claimed_until is not null',
              )
            ).rowCount,
          { timeout: 10_000 },
        )
        .toBe(2);
      await pausedRun(stage.admin, stage.worker, [{}]);
      // Within less than the deadline of the delivery that hangs.
      await expect
        .poll(
          async () =>
            (
              await stage.admin.pool.query(
                'select 1 from countersign.outbox where sent_at is null and dead_at is null',
              )
            ).rowCount,
          { timeout: 4_000, interval: 20 },
        )
        .toBe(0);
    } finally {
      await relay.stop();
    }
  });

  it.each([
    ['before it posts', { operation: 'notify', fault: 'kill_before' }, 1],
    ['after it posted', { operation: 'notify', fault: 'kill_after' }, 2],
    ['before it marks', { operation: 'mark_notifications_delivered', fault: 'kill_before' }, 2],
    ['after it marked', { operation: 'mark_notifications_delivered', fault: 'kill_after' }, 1],
  ])(
    'killed %s, leaves nothing undelivered, and a second delivery has the first one’s id',
    async (_when, fault, times) => {
      await alerted();
      await stage.admin.pool.query(
        "update countersign.notifications set delivered_at = clock_timestamp() where kind = 'approval_requested'",
      );
      const [{ id } = { id: '' }] = await waiting();
      const victim = relayProcess({ COUNTERSIGN_FAULT: JSON.stringify({ ...fault, occurrence: 1 }) });
      await once(victim, 'close');
      expect(victim.signalCode).toBe('SIGKILL');
      // A dead relay's claim lapses by itself after 30 s; this is only the waiting.
      await stage.admin.pool.query(
        "update countersign.notifications set claimed_until = clock_timestamp() - interval '1 s' where claimed_until is not null",
      );
      const next = relayProcess({});
      await expect.poll(waiting, { timeout: 20_000 }).toEqual([]);
      next.kill('SIGTERM');
      await once(next, 'close');
      expect(receiver.posted.map((posted) => posted.id)).toEqual(Array.from({ length: times }, () => id));
      for (const { body, headers } of receiver.posted) {
        expect(verifyNotification(SECRET, body, String(headers['countersign-signature']))).toBe(true);
      }
    },
  );

  it('names no receiver in its log, whatever goes wrong with it', async () => {
    await alerted();
    receiver.answers.push(500, 500);
    const logged: string[] = [];
    const log = pino(
      { level: 'debug', serializers: { err: describeError } },
      new Writable({
        write(chunk, _encoding, done) {
          logged.push(String(chunk));
          done();
        },
      }),
    );
    await notifyOnce(db, webhook(), log, { limit: 10, retryMs: 1 });
    await receiver.close();
    await sleep(20);
    await notifyOnce(db, webhook(), log, { limit: 10 });
    expect(logged).toHaveLength(4);
    expect(logged.join('')).toContain('HTTP_500');
    expect(logged.join('')).not.toMatch(/secret|127\.0\.0\.1/);
    receiver = await startReceiver();
  });
});

describe('the operator', () => {
  it('lists what waits for its receiver', async () => {
    const run = await alerted('lister');
    const listed = await cli(['notifications', '--alerts', '--undelivered'], {
      DATABASE_URL: stage.url,
      COUNTERSIGN_TENANT: 'lister',
    });
    expect(listed).toMatchObject({ code: 0 });
    expect(listed.stdout).toMatch(new RegExp(`security_alert.*SEAL_BROKEN.*waits \\(0 tries\\).*${run.id}`));
    expect(listed.stdout).not.toContain('approval_requested');
  });
});

function relayProcess(more: Record<string, string>): ChildProcess {
  const main = path.join(import.meta.dirname, '../../dist/workers/relay.js');
  const child = spawn(process.execPath, [main], {
    env: cleanEnv({
      DATABASE_URL: stage.url,
      COUNTERSIGN_NOTIFY_URL: receiver.url,
      COUNTERSIGN_NOTIFY_SECRET: SECRET,
      COUNTERSIGN_EXIT_WITH_PARENT: '1',
      LOG_LEVEL: 'silent',
      ...more,
    }),
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  children.push(child);
  return child;
}
