import { Agent } from '@openai/agents';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { releaseClient } from '../../examples/release-service/client.ts';
import { action, lookup, workflow } from '../../src/index.ts';
import { resultsIn, scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';
import { type Provider, startProvider } from '../support/provider.ts';

describe.each(['redis', 'embedded'] as const)('the main job on %s', (backend) => {
  let provider: Provider;
  let fleet: Fleet;
  let rejections: string[] = [];

  beforeAll(async () => {
    provider = await startProvider();
    const releases = releaseClient(provider.url);
    const deploy = action({
      name: 'deploy_release',
      description: 'Deploy a release',
      parameters: z.object({ release: z.string(), environment: z.enum(['staging', 'production']) }),
      execute: (args, { operationKey, signal }) =>
        releases.create('releases', args, { idempotencyKey: operationKey, signal }),
      recovery: lookup(
        async ({ operationKey }) => (await releases.find('releases', operationKey)).effects[0],
        { settlesWithin: '1s' },
      ),
      target: ({ environment }) => environment,
      review: ({ release }) => ({ summary: `Deploy ${release}`, undo: 'roll back' }),
      approval: { policy: 'prod-deploys', expiresIn: '24h' },
    });
    const model = scriptedModel((turn, request) => {
      if (turn === 0) {
        return [{ name: 'deploy_release', arguments: { release: 'v1', environment: 'production' } }];
      }
      rejections = resultsIn(request);
      return 'deployed';
    });
    const release = workflow({
      name: 'release',
      version: '3',
      agent: () => new Agent({ name: 'Release', tools: [deploy] }),
      modelProvider: scriptedProvider(model),
    });
    fleet = await createFleet([release], { name: `main ${backend}`, backend });
    await fleet.relay();
    await fleet.worker();
  });

  afterAll(async () => {
    await fleet?.close();
    await provider?.stop();
  });

  it('pauses before the effect, and an approval carries it to exactly one effect', async () => {
    const run = await fleet.start({ workflow: 'release' });
    await fleet.until(run, 'awaiting_approval');
    expect((await provider.client.counts()).calls).toBe(0);
    expect(await fleet.decideAll(run, 'approve')).toBe(1);
    await fleet.until(run, 'completed');
    expect(await fleet.output(run)).toBe('deployed');
    expect(await provider.client.counts()).toMatchObject({ calls: 1, commits: 1 });
    const events = await fleet.rows<{ kind: string }>(
      'select kind from countersign.events where run_id = $1 order by n',
      [run],
    );
    expect(events.map(({ kind }) => kind)).toEqual([
      'run_started',
      'run_ready',
      'run_claimed',
      'action_prepared',
      'checkpoint_stored',
      'approval_requested',
      'run_awaiting_approval',
      'decision_approved',
      'run_ready',
      'run_claimed',
      'action_dispatched',
      'action_succeeded',
      'run_completed',
    ]);
  });

  it('a rejection reaches the model in the reviewer’s words, with no effect', async () => {
    const before = (await provider.client.counts()).calls;
    const run = await fleet.start({ workflow: 'release' });
    await fleet.until(run, 'awaiting_approval');
    await fleet.decideAll(run, 'reject', 'not on a Friday');
    await fleet.until(run, 'completed');
    expect(rejections).toEqual(['not on a Friday']);
    expect((await provider.client.counts()).calls).toBe(before);
  });
});
