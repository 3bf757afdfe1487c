import { Agent, tool } from '@openai/agents';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { showRun } from '../../src/runs/index.ts';
import type { Turn } from '../fixtures/scripted.ts';
import { crew, modelOf } from '../support/crew.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { dispatches, effects, payAction } from '../support/payments.ts';
import { type Provider, startProvider } from '../support/provider.ts';

let provider: Provider;
let fleet: Fleet;
let script: (turn: number, results: string[]) => Turn;
let offered = true;
let looked = 0;
let amount = 0;
const model = modelOf((_agent, turn, results) => script(turn, results));

beforeAll(async () => {
  provider = await startProvider();
  const free = payAction(provider, { name: 'pay_freely', approval: null });
  const look = tool({
    name: 'look',
    description: 'Look something up',
    parameters: z.object({ what: z.string() }),
    execute: ({ what }) => {
      looked += 1;
      return `${what} seen ${looked} time(s)`;
    },
  });
  // A tool that comes and goes changes what the model is asked.
  const extra = tool({
    name: 'extra',
    description: 'Nothing',
    parameters: z.object({}),
    isEnabled: () => offered,
    execute: () => '',
  });
  fleet = await createFleet(
    [
      crew(
        () =>
          new Agent({
            name: 'payer',
            tools: [free, look, extra],
            instructions: () => `It is ${performance.now()}.`,
          }),
        model,
      ),
    ],
    { name: 'journal', backend: 'redis' },
  );
  await fleet.relay();
  await fleet.worker({ maxAttempts: 3, retryDelayMs: 20 });
});

beforeEach(async () => {
  await provider.client.reset();
  offered = true;
  looked = 0;
  model.calls = 0;
  amount += 1;
});

afterAll(async () => {
  await fleet?.close();
  await provider?.stop();
});

/** Fails its first `times` calls: the segment is then run again from the start. */
function failing(times: number): () => void {
  let left = times;
  return () => {
    if (left > 0) {
      left -= 1;
      throw new Error('503');
    }
  };
}

/** Requests and tokens. */
async function costOf(runId: string) {
  const { usage, wasted } = await showRun(fleet.api, fleet.keys, { tenant: 'acme', runId });
  return {
    usage: [usage.requests, usage.totalTokens],
    wasted: [wasted.requests, wasted.totalTokens],
  };
}

describe('a redelivered segment', () => {
  it('is answered from the journal: no stored response is paid for twice, no effect and no reading is repeated', async () => {
    const fail = failing(2);
    script = (turn) => {
      switch (turn) {
        case 0:
          return [{ name: 'look', arguments: { what: 'balance' } }];
        case 1:
          return [{ name: 'pay_freely', arguments: { to: 'acme', amount } }];
        default:
          fail();
          return 'done';
      }
    };
    const run = await fleet.start({ workflow: 'agents' });
    await fleet.until(run, 'completed');
    expect(model.calls).toBe(2 + 3);
    expect(looked).toBe(1);
    expect(await dispatches(provider)).toBe(1);
    expect(await effects(provider)).toEqual({ acme: 1 });
    expect(await costOf(run)).toEqual({ usage: [3, 45], wasted: [2, 0] });
    const [row] = await fleet.rows<{ usage: { requests: number } }>(
      'select usage from countersign.runs where id = $1',
      [run],
    );
    expect(row?.usage.requests).toBe(3);
  });

  it('that asks its model something else goes on live when nothing was sent yet, and keeps the old answer for the record', async () => {
    const fail = failing(1);
    script = (turn) => {
      if (turn === 0) {
        return [{ name: 'look', arguments: { what: 'balance' } }];
      }
      offered = false;
      fail();
      return 'done';
    };
    const run = await fleet.start({ workflow: 'agents' });
    await fleet.until(run, 'completed');
    const journal = await fleet.rows<{ superseded: boolean }>(
      'select superseded_at is not null as superseded from countersign.model_calls where run_id = $1 order by created_at',
      [run],
    );
    expect(journal.map(({ superseded }) => superseded)).toEqual([true, false, false]);
    // The superseded answer, and the call that failed.
    expect(await costOf(run)).toEqual({ usage: [2, 30], wasted: [2, 15] });
  });

  it('that asks its model something else after an effect was sent stops, and nothing is guessed or repeated', async () => {
    const fail = failing(1);
    script = (turn) => {
      if (turn === 0) {
        return [{ name: 'pay_freely', arguments: { to: 'acme', amount } }];
      }
      offered = false;
      fail();
      return 'done';
    };
    const run = await fleet.start({ workflow: 'agents' });
    await fleet.until(run, 'dead_lettered');
    const [letter] = await fleet.rows<{ class: string; code: string }>(
      'select class, code from countersign.dead_letters where run_id = $1',
      [run],
    );
    expect(letter).toEqual({ class: 'diverged', code: 'REPLAY_DIVERGED' });
    expect(await costOf(run)).toEqual({ usage: [1, 15], wasted: [1, 0] });
    expect(await effects(provider)).toEqual({ acme: 1 });
  });
});
