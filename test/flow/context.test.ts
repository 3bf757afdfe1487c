import { Writable } from 'node:stream';
import { tool } from '@openai/agents';
import { Redis } from 'ioredis';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { describeError } from '../../src/log.ts';
import { type WorkflowOptions, workflow } from '../../src/workflows/index.ts';
import { scriptedProvider } from '../fixtures/scripted.ts';
import { modelOf, named, type Script } from '../support/crew.ts';
import { type Backend, createFleet, type Fleet } from '../support/fleet.ts';
import { dumpTables, openEverything, sealedColumns } from '../support/opened.ts';
import { effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

const ONE = 'sk-ONE-4f1c9b';
const TWO = 'sk-TWO-77e0aa';

let provider: Provider;
let fleet: Fleet | undefined;

beforeAll(async () => {
  provider = await startProvider();
});
beforeEach(() => provider.client.reset());
afterEach(async () => {
  await fleet?.close();
  fleet = undefined;
});
afterAll(() => provider?.stop());

/** What a process would write to its log at the finest level. */
function captureLog() {
  const lines: string[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString());
      done();
    },
  });
  return {
    log: pino({ level: 'trace', serializers: { err: describeError } }, sink),
    text: () => lines.join(''),
  };
}

/** Every command that reaches the shared Redis. */
async function watchRedis(url: string) {
  const commands: string[] = [];
  const redis = new Redis(url);
  const monitor = await redis.monitor();
  monitor.on('monitor', (_time: string, args: string[]) => commands.push(args.join(' ')));
  return {
    text: () => commands.join('\n'),
    async dump(): Promise<string> {
      const keys = await redis.keys('*');
      const values = await Promise.all(
        keys.map(async (key) => {
          const type = await redis.type(key);
          if (type === 'hash') return JSON.stringify(await redis.hgetall(key));
          if (type === 'stream') return JSON.stringify(await redis.xrange(key, '-', '+'));
          return type === 'string' ? String(await redis.get(key)) : type;
        }),
      );
      return [...keys, ...values].join('\n');
    },
    stop() {
      monitor.disconnect();
      redis.disconnect();
    },
  };
}

class Vault {
  apiKey = ONE;
}

describe.each(['redis', 'embedded'] satisfies Backend[])(
  'credentials in the context (S04) on %s',
  (backend) => {
    it('fresh ones reach the tools, and neither the old nor the new one is stored, queued or logged', async () => {
      const vault = new Vault();
      const seen: string[] = [];
      const keyOf = (context: unknown) => (context as { vault: Vault }).vault.apiKey;
      const inspect = tool({
        name: 'inspect',
        description: 'Uses the credential',
        parameters: z.object({}),
        execute: (_args, context) => {
          seen.push(`plain ${keyOf(context?.context)}`);
          return 'inspected';
        },
      });
      const pay = payAction(provider, {
        execute: (args, { operationKey, signal, context }) => {
          seen.push(`action ${keyOf(context)}`);
          return provider.client.create(`pay-${args.to}`, args, { idempotencyKey: operationKey, signal });
        },
      });
      let failures = 1;
      const script: Script = (agent, turn) => {
        if (failures > 0) {
          failures -= 1;
          throw new Error(`401: the key ${vault.apiKey} is wrong`);
        }
        if (agent === 'outer') return turn === 0 ? [{ name: 'inner', arguments: { input: 'go' } }] : 'done';
        return turn === 0
          ? [
              { name: 'inspect', arguments: {} },
              { name: 'pay', arguments: { to: 'a', amount: 1 } },
            ]
          : ([[{ name: 'inspect', arguments: {} }], 'inner done'][turn - 1] ?? '');
      };
      const made = workflow({
        name: 'agents',
        version: '1',
        agent: () => {
          const inner = named('inner', { tools: [inspect, pay] });
          return named('outer', { tools: [inner.asTool({ toolName: 'inner', toolDescription: 'inner' })] });
        },
        context: z.strictObject({ account: z.string() }),
        provide: ({ account }) => ({
          account,
          vault,
          secrets: new Map([['apiKey', vault.apiKey]]),
          size: 10n,
        }),
        modelProvider: scriptedProvider(modelOf(script)),
      });
      const started = await createFleet([made], { name: 'context', backend });
      fleet = started;
      const { log, text } = captureLog();
      const redis = started.redisUrl === null ? null : await watchRedis(started.redisUrl);
      try {
        await started.relay();
        const first = await started.worker({ log });
        const run = await started.start({ workflow: 'agents', context: { account: 'A-1' }, session: 's-1' });
        await started.until(run, 'awaiting_approval');
        await first.stop();
        vault.apiKey = TWO;
        await started.decideAll(run, 'approve');
        await started.until(run, ['ready', 'parked']);
        const queued = `${await dumpTables(started)}${await redis?.dump()}`;
        await started.worker({ log });
        await started.until(run, 'completed');
        expect(seen).toEqual([`plain ${ONE}`, `action ${TWO}`, `plain ${TWO}`]);
        expect(await effects(provider)).toEqual({ a: 1 });
        const opened = await openEverything(started);
        // The words are a reviewer's; everything else that is ever sealed must have been looked at.
        expect([...new Set(opened.map(({ where }) => where)), 'approvals.sealed_words'].sort()).toEqual(
          (await sealedColumns(started)).sort(),
        );
        const places = {
          opened: opened.map((each) => each.text).join('\n'),
          queued,
          tables: await dumpTables(started),
          redis: redis?.text() ?? '',
          redisLeft: (await redis?.dump()) ?? '',
          log: text(),
        };
        expect(places.log).toContain('MODEL_FAILED');
        const leaks = Object.entries(places).filter(([, found]) => /sk-(ONE|TWO)/.test(found));
        expect(leaks.map(([place]) => place)).toEqual([]);
      } finally {
        redis?.stop();
      }
    });
  },
);

describe('an error that is not ours', () => {
  // OPEN (src/log.ts, describeError): the record's `at` is the stack's second line, which is the message's own second line.
  it('is logged without a line of its message, however many it has', () => {
    const { log, text } = captureLog();
    log.warn(
      { err: new Error(`401\nthe key ${ONE} is wrong`, { cause: new Error(`see\n${TWO}`) }) },
      'failed',
    );
    expect(text()).not.toMatch(/sk-(ONE|TWO)/);
  });
});

describe('identifiers of a context', () => {
  let asked = 0;
  const counting = modelOf(() => {
    asked += 1;
    return 'done';
  });

  async function launch(settings: Partial<WorkflowOptions<z.ZodObject>>): Promise<Fleet> {
    asked = 0;
    const made = workflow({
      name: 'agents',
      version: '1',
      agent: () => named('payer'),
      modelProvider: scriptedProvider(counting),
      ...settings,
    });
    fleet = await createFleet([made], { name: 'context', backend: 'redis' });
    await Promise.all([fleet.relay(), fleet.worker()]);
    return fleet;
  }

  it.each([
    ['a BigInt', { n: 1n }],
    ['a Map', { n: new Map() }],
    ['a Set', { n: new Set() }],
    ['a Date', { n: new Date(0) }],
    ['a class instance', { n: new Vault() }],
    ['a function', { n: () => 1 }],
    ['undefined', { n: undefined }],
    ['NaN', { n: Number.NaN }],
    ['a toJSON method', { n: { toJSON: () => 'x' } }],
    ['a lone surrogate', { n: '\ud800' }],
    ['a cycle', cyclic()],
  ])('%s is refused when the run starts, before anything is paid for', async (_name, context) => {
    const { start, rows } = await launch({});
    await expect(start({ workflow: 'agents', context })).rejects.toMatchObject({ code: 'NOT_PLAIN_JSON' });
    expect(await rows('select 1 from countersign.runs')).toEqual([]);
    expect(asked).toBe(0);
  });

  it('what the workflow’s schema does not name ends the run before the model is asked', async () => {
    const { start, until, rows } = await launch({ context: z.object({ account: z.string() }) });
    const run = await start({ workflow: 'agents', context: { account: 'A', apiKey: ONE } });
    await until(run, 'failed');
    expect(await rows('select reason from countersign.runs')).toEqual([{ reason: 'CONTEXT_INVALID' }]);
    expect(asked).toBe(0);
  });

  it('may be turned into a context that is fetched asynchronously', async () => {
    let seen: unknown;
    const look = tool({
      name: 'look',
      description: 'Looks',
      parameters: z.object({}),
      execute: (_args, context) => {
        seen = (context as { context: { apiKey: string } }).context.apiKey;
        return 'ok';
      },
    });
    const { start, until } = await launch({
      agent: () => named('payer', { tools: [look] }),
      provide: async () => ({ apiKey: ONE }),
      modelProvider: scriptedProvider(
        modelOf((_agent, turn) => (turn === 0 ? [{ name: 'look', arguments: {} }] : 'done')),
      ),
    });
    await until(await start({ workflow: 'agents' }), 'completed');
    expect(seen).toBe(ONE);
  });

  it('may be turned into an object of a class with private state', async () => {
    class Session {
      #token = ONE;
      used = false;
      token(): string {
        return this.#token;
      }
    }
    let seen: unknown;
    const pay = payAction(provider, {
      execute: (_args, { context }) => {
        const session = context as Session;
        session.used = true;
        seen = [session.token(), session instanceof Session];
        return 'paid';
      },
    });
    const { start, until, decideAll } = await launch({
      agent: () => named('payer', { tools: [pay] }),
      provide: () => new Session(),
      modelProvider: scriptedProvider(
        modelOf((_agent, turn) =>
          turn < 2 ? [{ name: 'pay', arguments: { to: 'a', amount: turn } }] : 'done',
        ),
      ),
    });
    const run = await start({ workflow: 'agents' });
    for (let turn = 0; turn < 2; turn += 1) {
      await until(run, 'awaiting_approval');
      await decideAll(run, 'approve');
      await expect.poll(() => seen).toEqual([ONE, true]);
      seen = undefined;
    }
    await until(run, 'completed');
    const states = (await openEverything(fleet as Fleet)).filter(
      ({ where }) => where === 'checkpoints.sealed',
    );
    expect(states.filter(({ text }) => /sk-ONE|"used"/.test(text))).toEqual([]);
  });

  it('a provide that fails is tried again, and the model is not asked before it works', async () => {
    let attempts = 0;
    const { start, until } = await launch({
      provide: () => {
        attempts += 1;
        if (attempts < 3) throw new Error(`vault is down ${ONE}`);
        return {};
      },
    });
    await until(await start({ workflow: 'agents' }), 'completed');
    expect({ attempts, asked }).toEqual({ attempts: 3, asked: 1 });
  });
});

function cyclic(): Record<string, unknown> {
  const context: Record<string, unknown> = {};
  context.self = context;
  return context;
}
