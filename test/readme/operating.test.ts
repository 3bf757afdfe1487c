/** What README.md tells an operator is done as it is written there. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSettings } from '../../src/config.ts';
import { lookup, verifyNotification } from '../../src/index.ts';
import { METRICS } from '../../src/metrics/index.ts';
import { notificationWebhook, notifyOnce, sinkOf } from '../../src/notifications/index.ts';
import { openDatabase } from '../../src/postgres/index.ts';
import { cli } from '../cli/run-cli.ts';
import { crew, named } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';

const readme = readFileSync(path.join(import.meta.dirname, '../../README.md'), 'utf8');
const section = (title: string) => readme.split(`\n### ${title}\n`)[1]?.split(/\n##+ /)[0] ?? '';
const operating = section('When a person is needed');
const numbers = section('Numbers');
/** The commands of a section, without their remarks. */
const commands = (text: string) =>
  [...text.matchAll(/^npx countersign (.+)$/gm)].map((match) => (match[1] ?? '').replace(/\s+#.*$/, ''));

let provider: Provider;
let fleet: Fleet;
let receiver: Receiver;
let mended = false;

beforeAll(async () => {
  provider = await startProvider();
  receiver = await startReceiver();
  const pay = payAction(provider, {
    sendWithin: '200ms',
    callTimeout: '300ms',
    recovery: lookup(async () => ({ found: 'cannot_say' }), { lookups: 1 }) as never,
  });
  const payer = crew(
    () => named('payer', { tools: [pay] }),
    (_agent, turn) => (turn === 0 ? [{ name: 'pay', arguments: { to: 'acme', amount: 1 } }] : 'over'),
  );
  const broken = crew(
    () => named('broken'),
    () => {
      if (!mended) throw new Error('the provider is away');
      return 'over';
    },
  );
  fleet = await createFleet([payer, { ...broken, name: 'broken' }], { name: 'readme', backend: 'embedded' });
  await fleet.relay();
  await fleet.worker({ maxAttempts: 2 });
  await fleet.reconciler();
});
afterAll(async () => {
  await fleet?.close();
  await receiver?.close();
  await provider?.stop();
});

/** Splits as a shell does, as far as the README needs it. */
const words = (line: string) =>
  [...line.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2] ?? '');

describe('README.md, when a person is needed', () => {
  it('names every kind of notification that the schema knows', async () => {
    const [row] = await fleet.rows<{ def: string }>(
      "select pg_get_constraintdef(oid) as def from pg_constraint where conname = 'a notification is of a known kind'",
    );
    const kinds = [...(row?.def ?? '').matchAll(/'([a-z_]+)'/g)].map((match) => match[1]);
    const told = [...operating.matchAll(/^\| `([a-z_]+)` \|/gm)].map((match) => match[1]);
    expect(told.sort()).toEqual(kinds.sort());
  });

  it('gives commands that do it, in their order, for an action without proof and for a dead letter', async () => {
    const runId = await fleet.start({ workflow: 'agents' });
    await fleet.until(runId, 'awaiting_approval');
    await provider.client.fault({ fault: { type: 'commit_then_drop' }, next: 1 });
    await fleet.decideAll(runId, 'approve');
    const waits = () =>
      fleet.rows<{ id: string }>(
        "select id from countersign.actions where run_id = $1 and state = 'outcome_unknown' and reconcile_after is null",
        [runId],
      );
    await expect.poll(waits, { timeout: 15_000 }).toHaveLength(1);
    const [{ id: action } = { id: '' }] = await waits();
    const given = await fleet.start({ workflow: 'broken' });
    await fleet.until(given, 'dead_lettered');
    mended = true;
    const [{ id: letter } = { id: '' }] = await fleet.rows<{ id: string }>(
      'select id from countersign.dead_letters where run_id = $1',
      [given],
    );

    const said = [];
    for (const line of commands(operating)) {
      const args = words(line).map((word) => ({ RUN: runId, ACTION: action, ID: letter })[word] ?? word);
      const result = await cli(args, {
        DATABASE_URL: fleet.url,
        COUNTERSIGN_TENANT: 'acme',
        COUNTERSIGN_REVIEW_KEYS: fleet.keySpec.review,
      });
      expect(result, line).toMatchObject({ code: 0 });
      said.push(result.stdout);
      if (line.startsWith('actions ask')) await expect.poll(waits, { timeout: 15_000 }).toHaveLength(1);
    }
    expect(said).toHaveLength(6);
    expect(said[0]).toMatch(/action_waits_for_person.*LOOKUPS_SPENT/);
    expect(said[0]).toMatch(/run_dead_lettered.*MODEL_FAILED/);
    expect(said[1]).toMatch(/a named person must look/);
    expect(said[2]).toMatch(/a named person \(LOOKUPS_SPENT\)/);
    await fleet.until(runId, 'completed');
    await fleet.until(given, 'completed');
    expect(await effects(provider)).toEqual({ acme: 1 });
  });

  it('says what is posted: the fields, the header, the check, and the variables that make it so', async () => {
    const variables = Object.fromEntries(
      [...operating.matchAll(/^export (\w+)=/gm)].map(([, name = '']) => [
        name,
        name.endsWith('URL') ? receiver.url : 'a secret of enough characters',
      ]),
    );
    const sink = sinkOf(readSettings(variables)) ?? notificationWebhook({ url: '', secret: null });
    const relay = openDatabase({ url: fleet.url, role: 'countersign_relay', max: 1 });
    const log = { warn: () => undefined } as never;
    await expect
      .poll(async () => {
        // The fleet's own relay delivers to its log, and may be first.
        await fleet.rows('update countersign.notifications set delivered_at = null, claimed_until = null');
        await notifyOnce(relay, sink, log, { limit: 100 });
        return receiver.posted.length;
      })
      .toBeGreaterThan(0);
    await relay.close();
    const [posted] = receiver.posted;
    const fields = /^The body is `\{ (.+) \}`/m.exec(operating)?.[1]?.split(', ');
    expect(Object.keys(JSON.parse(posted?.body ?? '{}')).sort()).toEqual(fields?.sort());
    expect(operating).toContain('Countersign-Signature: t=SECONDS,v1=HMAC-SHA256');
    expect(operating).toContain('`verifyNotification(secret, body, header)`');
    const header = String(posted?.headers['countersign-signature']);
    expect(verifyNotification('a secret of enough characters', posted?.body ?? '', header)).toBe(true);
  });
});

describe('README.md, numbers', () => {
  it('makes a token that the api’s configuration takes, and raises alarms on metrics that exist', async () => {
    const [line = ''] = commands(numbers);
    const made = await cli([...words(line), '--json'], {});
    const { entry } = made.json<{ entry: { roles: string[] } }>();
    const settings = readSettings({ COUNTERSIGN_API_TOKENS: JSON.stringify([entry]) });
    expect(settings.apiTokens[0]?.roles).toEqual(['metrics']);
    const exist = METRICS.flatMap(({ name, type, label }) => {
      const full = `countersign_${name}${type === 'counter' ? '_total' : ''}`;
      return [full, ...(label?.values ?? []).map((value) => `${full}{${label?.name}="${value}"}`)];
    });
    const alarms = [...numbers.matchAll(/`(countersign_[^`]+)`/g)].map((match) => match[1] ?? '');
    expect(alarms.length).toBeGreaterThan(5);
    expect(alarms.filter((name) => !exist.includes(name))).toEqual([]);
  });
});
