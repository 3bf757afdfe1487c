import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ReleaseClient } from '../../examples/release-service/client.ts';
import { releaseClient } from '../../examples/release-service/client.ts';
import { createJournal, note, orderedLog, summarise } from '../../examples/release-service/journal.ts';
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

function rawCreate(init: RequestInit & { key?: string; kind?: string } = {}): Promise<Response> {
  const { key, kind = 'releases', ...rest } = init;
  return fetch(`${service.url}/effects/${kind}`, {
    method: 'POST',
    headers: key === undefined ? {} : { 'idempotency-key': key },
    body: JSON.stringify(BODY),
    ...rest,
  });
}

describe('a kind that dedupes', () => {
  test('one call makes one effect and answers 201 with its receipt', async () => {
    const response = await rawCreate({ key: 'k1' });
    expect(response.status).toBe(201);
    expect(response.headers.get('idempotent-replayed')).toBeNull();
    const receipt: unknown = await response.json();
    expect(receipt).toEqual({
      id: 'releases-1',
      kind: 'releases',
      key: 'k1',
      body: BODY,
      committedAt: expect.stringMatching(/^\d{4}-.*Z$/),
    });
    expect(await client.counts()).toEqual({
      calls: 1,
      commits: 1,
      byKey: { k1: { kind: 'releases', calls: 1, commits: 1 } },
      byKind: { releases: { calls: 1, commits: 1 } },
    });
  });

  test('the same key and body again answers 200 with the first receipt and commits nothing', async () => {
    const first = await client.create('releases', BODY, { idempotencyKey: 'k1' });
    // The order of fields is not part of what was asked.
    const reordered = JSON.stringify({ environment: 'staging', release: 'v7' });
    const again = await rawCreate({ key: 'k1', body: reordered });
    expect(again.status).toBe(200);
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect(await again.json()).toEqual(first);
    expect(await client.counts()).toMatchObject({ calls: 2, commits: 1 });
  });

  test('the same key with another body is refused with 422 key_reused', async () => {
    await client.create('releases', BODY, { idempotencyKey: 'k1' });
    const other = client.create('releases', { ...BODY, release: 'v8' }, { idempotencyKey: 'k1' });
    await expect(other).rejects.toMatchObject({
      name: 'ReleaseServiceError',
      status: 422,
      code: 'key_reused',
    });
    expect(await client.counts()).toMatchObject({ calls: 2, commits: 1 });
  });

  test('a key in progress is refused with 409, and answers its receipt once committed', async () => {
    await client.fault({ fault: { type: 'wait_for_gate', gate: 'g', when: 'before_commit' } });
    const first = client.create('releases', BODY, { idempotencyKey: 'k1' });
    await client.waitFor('held', { key: 'k1' });
    const again = client.create('releases', BODY, { idempotencyKey: 'k1' });
    await expect(again).rejects.toMatchObject({ status: 409, code: 'in_progress' });
    const other = client.create('releases', { release: 'v8' }, { idempotencyKey: 'k1' });
    await expect(other).rejects.toMatchObject({ status: 422, code: 'key_reused' });
    await client.openGate('g');
    const receipt = await first;
    expect(await client.create('releases', BODY, { idempotencyKey: 'k1' })).toEqual(receipt);
    expect(await client.counts()).toMatchObject({ calls: 4, commits: 1 });
  });

  test('fifty calls at once under one key commit one effect', async () => {
    await client.fault({ next: 0, fault: { type: 'delay_commit', ms: 30 } });
    const calls = Array.from({ length: 50 }, () =>
      client.create('releases', BODY, { idempotencyKey: 'k1' }).catch((error: unknown) => error),
    );
    for (const result of await Promise.all(calls)) {
      if (result instanceof Error) expect(result).toMatchObject({ status: 409, code: 'in_progress' });
      else expect(result).toMatchObject({ id: 'releases-1' });
    }
    expect(await client.counts()).toMatchObject({ calls: 50, commits: 1 });
  });

  test('one key under two kinds is two effects', async () => {
    await client.create('releases', BODY, { idempotencyKey: 'k1' });
    await client.create('refunds', { amount: 5 }, { idempotencyKey: 'k1' });
    const { byKey, byKind } = await client.counts();
    expect(byKey).toEqual({ k1: { kind: 'releases', calls: 2, commits: 2 } });
    expect(byKind).toMatchObject({ releases: { commits: 1 }, refunds: { commits: 1 } });
  });

  test('a call without a key is refused and is no call', async () => {
    await expect(client.create('releases', BODY)).rejects.toMatchObject({ status: 400, code: 'key_missing' });
    expect(await client.counts()).toMatchObject({ calls: 0, commits: 0 });
  });
});

describe('a kind that does not dedupe', () => {
  beforeEach(() => client.setMode('emails', { dedupe: false }));

  test('every call commits again, whatever the key says', async () => {
    const first = await client.create('emails', BODY, { idempotencyKey: 'k1' });
    const second = await client.create('emails', BODY, { idempotencyKey: 'k1' });
    expect(second.id).not.toBe(first.id);
    expect((await client.counts()).byKey).toEqual({ k1: { kind: 'emails', calls: 2, commits: 2 } });
    expect(await client.find('emails', 'k1')).toEqual({ found: true, effects: [first, second] });
  });

  test('a call needs no key', async () => {
    expect(await client.create('emails', BODY)).toMatchObject({ key: null });
    expect(await client.counts()).toMatchObject({ calls: 1, commits: 1, byKey: {} });
  });

  test('other kinds still dedupe, and so does this one when told to again', async () => {
    await expect(client.create('releases', BODY)).rejects.toMatchObject({ code: 'key_missing' });
    const first = await client.create('emails', BODY, { idempotencyKey: 'k1' });
    await client.setMode('emails', { dedupe: true });
    expect(await client.create('emails', BODY, { idempotencyKey: 'k1' })).toEqual(first);
  });
});

describe('look-up', () => {
  test('finds an effect by its key, in its own kind only', async () => {
    expect(await client.find('releases', 'k1')).toEqual({ found: false, effects: [] });
    const receipt = await client.create('releases', BODY, { idempotencyKey: 'k1' });
    expect(await client.find('releases', 'k1')).toEqual({ found: true, effects: [receipt] });
    expect(await client.find('refunds', 'k1')).toEqual({ found: false, effects: [] });
  });

  test('finds effects by a body field, also when the value holds a colon', async () => {
    const body = { invoice: 'a:b', amount: 12, paid: true };
    const receipt = await client.create('refunds', body, { idempotencyKey: 'k1' });
    const found = { found: true, effects: [receipt] };
    expect(await client.findBy('refunds', 'invoice', 'a:b')).toEqual(found);
    expect(await client.findBy('refunds', 'amount', 12)).toEqual(found);
    expect(await client.findBy('refunds', 'paid', true)).toEqual(found);
    expect(await client.findBy('refunds', 'invoice', 'a')).toEqual({ found: false, effects: [] });
  });

  test('is logged with what was asked and whether it was found, and is no call', async () => {
    await client.find('releases', 'k1');
    expect(await lastLogged('lookup')).toMatchObject({ kind: 'releases', key: 'k1', found: false });
    await client.findBy('releases', 'release', 'v7');
    expect(await lastLogged('lookup')).toMatchObject({ natural: 'release:v7', found: false });
    expect(await client.counts()).toEqual({ calls: 0, commits: 0, byKey: {}, byKind: {} });
  });

  test('does not see a commit that is still before its gate', async () => {
    await client.fault({ fault: { type: 'wait_for_gate', gate: 'g', when: 'before_commit' } });
    const call = client.create('releases', BODY, { idempotencyKey: 'k1' });
    await client.waitFor('held');
    expect(await client.find('releases', 'k1')).toMatchObject({ found: false });
    await client.openGate('g');
    await call;
    expect(await client.find('releases', 'k1')).toMatchObject({ found: true });
  });
});

describe('the log', () => {
  test('tells what happened in order, with both clocks', async () => {
    await client.create('releases', BODY, { idempotencyKey: 'k1' });
    const log = await client.log();
    expect(log).toMatchObject([
      { seq: 1, event: 'received', kind: 'releases', key: 'k1' },
      { seq: 2, event: 'committed', kind: 'releases', key: 'k1', effectId: 'releases-1' },
      { seq: 3, event: 'answered', kind: 'releases', key: 'k1', status: 201, replayed: false },
    ]);
    const times = log.map(({ monotonicMs }) => monotonicMs);
    expect(times).toEqual([...times].sort((a, b) => a - b));
    for (const { at } of log) expect(Math.abs(Date.now() - Date.parse(at))).toBeLessThan(10_000);
  });

  test('forgets its oldest entries beyond the limit, while the counts stay right', () => {
    const journal = createJournal(() => {}, 5);
    for (let n = 1; n <= 12; n += 1) note(journal, 'received', { kind: 'releases', key: `k${n}` });
    expect(orderedLog(journal).map(({ seq }) => seq)).toEqual([8, 9, 10, 11, 12]);
    expect(summarise(journal).calls).toBe(12);
    expect(summarise(journal).byKey.k1).toEqual({ kind: 'releases', calls: 1, commits: 0 });
  });
});

describe('bad input', () => {
  const key = 'k1';
  const deep = `{"a":${'['.repeat(5_000)}${']'.repeat(5_000)}}`;
  test.each<[string, () => Promise<Response>, number, string]>([
    ['a body that is not JSON', () => rawCreate({ key, body: '{' }), 400, 'body_not_json'],
    [
      'a body that is not UTF-8',
      () => rawCreate({ key, body: Buffer.from([34, 255, 34]) }),
      400,
      'body_not_json',
    ],
    ['a body that is an array', () => rawCreate({ key, body: '[1]' }), 400, 'body_not_object'],
    ['a body nested too deep', () => rawCreate({ key, body: deep }), 400, 'body_too_deep'],
    ['a key that is too long', () => rawCreate({ key: 'k'.repeat(256) }), 400, 'key_invalid'],
    ['a kind with other letters', () => rawCreate({ key, kind: 'Releases1' }), 400, 'kind_invalid'],
    ['a look-up of nothing', () => fetch(`${service.url}/effects/releases`), 400, 'lookup_invalid'],
    ['a wait for no known event', () => fetch(`${service.url}/wait?event=x`), 400, 'event_invalid'],
    ['a path not served', () => fetch(`${service.url}/nothing`), 404, 'not_found'],
    ['a method not served', () => fetch(`${service.url}/counts`, { method: 'PUT' }), 404, 'not_found'],
  ])('%s is refused with its code', async (_, send, status, code) => {
    const response = await send();
    expect(response.status).toBe(status);
    expect(await response.json()).toEqual({ code, message: expect.any(String) });
    expect(await client.counts()).toMatchObject({ calls: 0, commits: 0 });
  });

  test.each([65 * 1024, 3 * 1024 * 1024])('a body of %i bytes is refused with 413', async (bytes) => {
    const response = await rawCreate({ key, body: JSON.stringify({ text: 'x'.repeat(bytes) }) });
    expect(response.status).toBe(413);
    expect(await response.json()).toMatchObject({ code: 'body_too_large' });
    expect(await client.counts()).toMatchObject({ calls: 0 });
  });

  test('a body just under 64 KiB is taken', async () => {
    await client.create('emails', { text: 'x'.repeat(64 * 1024 - 11) }, { idempotencyKey: key });
  });

  test.each([
    { fault: { type: 'explode' } },
    { fault: { type: 'delay_answer' } },
    { fault: { type: 'delay_answer', ms: -1 } },
    { fault: { type: 'drop', ms: 5 } },
    { fault: { type: 'refuse', status: 200 } },
    { fault: { type: 'wait_for_gate', gate: 'g', when: 'sometime' } },
    { fault: { type: 'wait_for_gate', gate: 'No Gate', when: 'before_commit' } },
    { fault: { type: 'drop' }, next: 1.5 },
    { fault: { type: 'drop' }, kind: 'K' },
    { fault: { type: 'drop' }, often: true },
    {},
  ])('the fault request %j is refused and changes nothing', async (request) => {
    const response = await fetch(`${service.url}/faults`, { method: 'POST', body: JSON.stringify(request) });
    expect(response.status).toBe(400);
    expect(await client.faults()).toEqual([]);
  });
});
