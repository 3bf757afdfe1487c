import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ReleaseClient } from '../../examples/release-service/client.ts';
import { ReleaseServiceError, releaseClient } from '../../examples/release-service/client.ts';
import type { ReleaseService } from '../../examples/release-service/server.ts';
import { startReleaseService } from '../../examples/release-service/server.ts';
import type { LogEntry } from '../../examples/release-service/types.ts';

const BODY = { release: 'v7', environment: 'staging' };

let service: ReleaseService;
let client: ReleaseClient;

beforeAll(async () => {
  service = await startReleaseService();
  client = releaseClient(service.url);
});
beforeEach(() => client.reset());
afterAll(() => service.close());

/** What an event of this kind was logged with, the latest one. */
async function lastLogged(event: string): Promise<LogEntry> {
  const found = (await client.log()).findLast((entry) => entry.event === event);
  if (!found) throw new Error(`no '${event}' in the log`);
  return found;
}

describe('faults', () => {
  const create = (key = 'k1') => client.create('releases', BODY, { idempotencyKey: key });

  test('delay_answer: the effect exists long before its answer, and a repeat gets the receipt', async () => {
    await client.fault({ fault: { type: 'delay_answer', ms: 150 } });
    const late = create();
    await client.waitFor('committed');
    expect(await client.find('releases', 'k1')).toMatchObject({ found: true });
    const repeat = await create();
    expect((await client.log()).filter(({ event }) => event === 'answered')).toHaveLength(1);
    expect(await late).toEqual(repeat);
    const [committed, answered] = [await lastLogged('committed'), await lastLogged('answered')];
    expect(answered.monotonicMs - committed.monotonicMs).toBeGreaterThanOrEqual(140);
    expect(await client.counts()).toMatchObject({ calls: 2, commits: 1 });
  });

  test('delay_commit: a caller that gives up early does not stop the effect', async () => {
    await client.fault({ fault: { type: 'delay_commit', ms: 150 } });
    const call = client.create('releases', BODY, { idempotencyKey: 'k1', signal: AbortSignal.timeout(40) });
    await expect(call).rejects.toMatchObject({ name: 'TimeoutError' });
    expect(await client.counts()).toMatchObject({ calls: 1, commits: 0 });
    await client.waitFor('undelivered');
    expect(await client.counts()).toMatchObject({ calls: 1, commits: 1 });
    expect(await lastLogged('undelivered')).toMatchObject({ status: 201, effectId: 'releases-1' });
  });

  test('commit_then_drop: the caller sees a lost connection, the effect exists', async () => {
    await client.fault({ fault: { type: 'commit_then_drop' } });
    await expect(create()).rejects.toThrow(TypeError);
    expect(await client.counts()).toMatchObject({ calls: 1, commits: 1 });
    expect((await client.log()).map(({ event }) => event)).toEqual(['received', 'committed', 'dropped']);
    expect(await create()).toMatchObject({ id: 'releases-1' });
    expect(await client.counts()).toMatchObject({ calls: 2, commits: 1 });
  });

  test('drop: the caller sees a lost connection, nothing happened', async () => {
    await client.fault({ fault: { type: 'drop' } });
    await expect(create()).rejects.toThrow(TypeError);
    expect(await client.counts()).toMatchObject({ calls: 1, commits: 0 });
    expect(await client.find('releases', 'k1')).toMatchObject({ found: false });
  });

  test('refuse: the caller gets this status and body, nothing happened, the key stays free', async () => {
    const body = { code: 'card_declined', message: 'no funds' };
    await client.fault({ fault: { type: 'refuse', status: 402, body } });
    const refusal = await create().catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(ReleaseServiceError);
    expect(refusal).toMatchObject({ status: 402, code: 'card_declined', message: 'no funds', body });
    expect(await lastLogged('refused')).toMatchObject({ key: 'k1', status: 402 });
    expect(await client.counts()).toMatchObject({ calls: 1, commits: 0 });
    await create();
    expect(await client.counts()).toMatchObject({ calls: 2, commits: 1 });
  });

  test('a refusal whose body names no code has the code of its status', async () => {
    await client.fault({ fault: { type: 'refuse', status: 429, body: 'slow down' } });
    await expect(create()).rejects.toMatchObject({ status: 429, code: 'http_429' });
  });

  test('wrong_answer: the caller is told 500, the effect exists', async () => {
    await client.fault({ fault: { type: 'wrong_answer' } });
    await expect(create()).rejects.toMatchObject({ status: 500, code: 'internal' });
    expect(await client.counts()).toMatchObject({ calls: 1, commits: 1 });
    expect(await client.find('releases', 'k1')).toMatchObject({ found: true });
  });

  test('lag_lookup: look-ups say absent until the lag is over, repeats are still deduped', async () => {
    await client.fault({ fault: { type: 'lag_lookup', ms: 200 } });
    const receipt = await create();
    expect(await client.find('releases', 'k1')).toMatchObject({ found: false });
    expect(await client.findBy('releases', 'release', 'v7')).toMatchObject({ found: false });
    expect(await create()).toEqual(receipt);
    const committed = await lastLogged('committed');
    await expect.poll(async () => (await client.find('releases', 'k1')).found).toBe(true);
    const lookup = await lastLogged('lookup');
    expect(lookup.monotonicMs - committed.monotonicMs).toBeGreaterThanOrEqual(199);
  });

  test('forget_keys: the same key commits a second time', async () => {
    const first = await create();
    await client.fault({ fault: { type: 'forget_keys' } });
    const second = await create();
    expect(second.id).not.toBe(first.id);
    expect((await client.counts()).byKey.k1).toMatchObject({ calls: 2, commits: 2 });
    expect(await create()).toEqual(second);
  });

  test('a fault hits one call unless told otherwise', async () => {
    await client.fault({ fault: { type: 'refuse', status: 503 } });
    await expect(create('a')).rejects.toMatchObject({ status: 503 });
    await create('a');
    await client.fault({ next: 2, fault: { type: 'refuse', status: 503 } });
    await expect(create('b')).rejects.toMatchObject({ status: 503 });
    expect(await client.faults()).toEqual([{ next: 1, fault: { type: 'refuse', status: 503 } }]);
    await expect(create('b')).rejects.toMatchObject({ status: 503 });
    await create('b');
    expect(await client.faults()).toEqual([]);
  });

  test('next 0 lasts until the faults are cleared', async () => {
    await client.fault({ next: 0, fault: { type: 'drop' } });
    for (let call = 0; call < 3; call += 1) await expect(create()).rejects.toThrow(TypeError);
    expect(await client.faults()).toEqual([{ next: 0, fault: { type: 'drop' } }]);
    await client.clearFaults();
    await create();
    expect(await client.counts()).toMatchObject({ calls: 4, commits: 1 });
  });

  test('a fault for one kind leaves the others alone', async () => {
    await client.fault({ kind: 'refunds', fault: { type: 'drop' } });
    await create();
    await expect(client.create('refunds', BODY, { idempotencyKey: 'k2' })).rejects.toThrow(TypeError);
  });

  test('faults of the same stage queue up, faults of different stages combine in one call', async () => {
    await client.fault({ fault: { type: 'refuse', status: 503 } });
    await client.fault({ fault: { type: 'refuse', status: 429 } });
    await client.fault({ fault: { type: 'lag_lookup', ms: 60_000 } });
    await client.fault({ fault: { type: 'commit_then_drop' } });
    await expect(create()).rejects.toMatchObject({ status: 503 });
    await expect(create()).rejects.toMatchObject({ status: 429 });
    await expect(create()).rejects.toThrow(TypeError);
    expect(await client.find('releases', 'k1')).toMatchObject({ found: false });
    expect(await client.counts()).toMatchObject({ calls: 3, commits: 1 });
  });

  test('a replayed call has no commit to wait for', async () => {
    const receipt = await create();
    await client.fault({ fault: { type: 'wait_for_gate', gate: 'g', when: 'before_commit' } });
    expect(await create()).toEqual(receipt);
    expect(await client.faults()).toEqual([]);
  });

  test('a replayed call can lose its answer too, and still commits nothing', async () => {
    await create();
    await client.fault({ fault: { type: 'commit_then_drop' } });
    await expect(create()).rejects.toThrow(TypeError);
    expect(await client.counts()).toMatchObject({ calls: 2, commits: 1 });
  });
});

describe('gates', () => {
  const create = (key: string) => client.create('releases', BODY, { idempotencyKey: key });

  test('after_commit holds the answer of a committed effect until the gate opens', async () => {
    await client.fault({ fault: { type: 'wait_for_gate', gate: 'g', when: 'after_commit' } });
    const call = create('k1');
    await client.waitFor('held', { key: 'k1' });
    expect((await client.log()).map(({ event }) => event)).toEqual(['received', 'committed', 'held']);
    expect(await lastLogged('held')).toMatchObject({ gate: 'g' });
    expect(await client.openGate('g')).toBe(1);
    expect(await call).toMatchObject({ id: 'releases-1' });
  });

  test('a gate holds every call before it and lets all of them go', async () => {
    await client.fault({ next: 3, fault: { type: 'wait_for_gate', gate: 'g', when: 'before_commit' } });
    const calls = ['a', 'b', 'c'].map(create);
    await client.waitFor('held', { count: 3 });
    expect(await client.counts()).toMatchObject({ calls: 3, commits: 0 });
    expect(await client.openGate('g')).toBe(3);
    await Promise.all(calls);
    expect(await client.counts()).toMatchObject({ calls: 3, commits: 3 });
  });

  test('an open gate holds nobody, and can be held again', async () => {
    await client.fault({ next: 0, fault: { type: 'wait_for_gate', gate: 'g', when: 'before_commit' } });
    expect(await client.openGate('g')).toBe(0);
    await create('a');
    await client.holdGate('g');
    const call = create('b');
    await client.waitFor('held', { key: 'b' });
    const released = await fetch(`${service.url}/gates/g/release`, { method: 'POST' });
    expect(await released.json()).toEqual({ gate: 'g', held: false, released: 1 });
    await call;
  });
});

describe('waiting', () => {
  test('answers as soon as the count is reached, per kind, per key or in all', async () => {
    const all = client.waitFor('committed', { count: 3 });
    const refunds = client.waitFor('committed', { kind: 'refunds', count: 1 });
    const key = client.waitFor('committed', { key: 'b' });
    await client.create('releases', BODY, { idempotencyKey: 'a' });
    await client.create('releases', BODY, { idempotencyKey: 'b' });
    expect(await key).toBe(1);
    await client.create('refunds', BODY, { idempotencyKey: 'c' });
    expect(await Promise.all([all, refunds])).toEqual([3, 1]);
    expect(await client.waitFor('committed', { count: 2 })).toBe(3);
  });

  test('a wait that never comes true is refused with wait_timeout', async () => {
    const wait = client.waitFor('committed', { timeoutMs: 30 });
    await expect(wait).rejects.toMatchObject({ status: 504, code: 'wait_timeout' });
  });

  test('a reset ends waits and takes the socket of calls under way, which then never commit', async () => {
    await client.fault({ next: 0, fault: { type: 'wait_for_gate', gate: 'g', when: 'before_commit' } });
    await client.setMode('emails', { dedupe: false });
    // Expectations are attached first: the rejections come while the reset is being answered.
    const call = client.create('releases', BODY, { idempotencyKey: 'k1' });
    const callLost = expect(call).rejects.toThrow(TypeError);
    await client.waitFor('held');
    const wait = client.waitFor('answered', { timeoutMs: 60_000 });
    const waitEnded = expect(wait).rejects.toMatchObject({ code: 'wait_ended' });
    await client.find('releases', 'k1');
    await client.reset();
    await Promise.all([callLost, waitEnded]);
    expect(await client.log()).toEqual([]);
    expect(await client.faults()).toEqual([]);
    expect(await client.counts()).toEqual({ calls: 0, commits: 0, byKey: {}, byKind: {} });
    await expect(client.create('emails', BODY)).rejects.toMatchObject({ code: 'key_missing' });
  });
});
