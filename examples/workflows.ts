/**
 * The example fleet: an agent that deploys releases and one that pays refunds, each after a person's yes.
 *
 *   countersign worker --workflows examples/workflows.ts
 *
 * RELEASE_SERVICE_URL names the outside world (`examples/release-service`). With OPENAI_API_KEY the agents think with
 * OpenAI (OPENAI_BASE_URL: any compatible endpoint; OPENAI_MODEL: which model), without it with a scripted model.
 */
import { Agent } from '@openai/agents';
import { action, createLog, idempotent, lookup, neverSent, refused, workflow } from 'countersign';
import { z } from 'zod';
import { ReleaseServiceError, releaseClient } from './release-service/index.ts';
import { scriptedModelProvider } from './scripted-model.ts';

const provider = releaseClient(process.env.RELEASE_SERVICE_URL ?? 'http://127.0.0.1:7400');
const usesOpenAI = Boolean(process.env.OPENAI_API_KEY);
const model = process.env.OPENAI_MODEL ?? 'gpt-5-mini';
createLog('workflows').info(
  usesOpenAI
    ? { model, endpoint: process.env.OPENAI_BASE_URL ?? 'OpenAI' }
    : { model: 'scripted', why: 'OPENAI_API_KEY is not set' },
  usesOpenAI ? `agents think with ${model}` : 'agents think with the scripted model',
);
const thinking = usesOpenAI ? {} : { modelProvider: scriptedModelProvider };

/** The service stands on the same machine: what takes longer than this is lost, not late. */
const pace = { sendWithin: '2s', callTimeout: '4s' } as const;

const deploy = action({
  name: 'deploy_release',
  description: 'Deploy a release to an environment',
  parameters: z.object({ release: z.string(), environment: z.enum(['staging', 'production']) }),
  execute: (args, { operationKey, signal }) => send('releases', args, operationKey, signal),
  recovery: lookup(
    async ({ operationKey, signal }) =>
      (await provider.find('releases', operationKey, { signal })).effects[0],
    { settlesWithin: '1s' },
  ),
  target: ({ environment }) => environment,
  review: ({ release, environment }) => ({
    summary: `Deploy ${release} to ${environment}`,
    undo: 'deploy the previous release again',
  }),
  approval: { policy: 'prod-deploys', expiresIn: '24h' },
  ...pace,
});

const refund = action({
  name: 'refund_order',
  description: 'Refund an order, in cents',
  parameters: z.object({
    order: z.string(),
    amountCents: z.number().int().positive(),
    currency: z.enum(['EUR', 'USD']),
  }),
  execute: (args, { operationKey, signal }) => send('refunds', args, operationKey, signal),
  recovery: idempotent({ keyLifetime: '24h' }),
  target: ({ order }) => order,
  review: ({ order, amountCents, currency }) => ({
    summary: `Refund ${(amountCents / 100).toFixed(2)} ${currency} for order ${order}`,
  }),
  // Small change needs nobody.
  approval: ({ amountCents }) => (amountCents <= 500 ? null : { policy: 'refunds', expiresIn: '24h' }),
  ...pace,
});

/** Sends one effect and says what is *proven* when it fails; everything else proves nothing and is left to recovery. */
async function send(
  kind: string,
  body: Record<string, unknown>,
  operationKey: string,
  signal: AbortSignal,
): Promise<unknown> {
  try {
    return await provider.create(kind, body, { idempotencyKey: operationKey, signal });
  } catch (error) {
    if (error instanceof ReleaseServiceError && [400, 404, 422].includes(error.status)) {
      throw refused(error.message, error.body);
    }
    if (error instanceof TypeError && codeOf(error.cause) === 'ECONNREFUSED') {
      throw neverSent('the release service is not running');
    }
    throw error;
  }
}

function codeOf(cause: unknown): unknown {
  return typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined;
}

const release = workflow({
  name: 'release',
  version: '1',
  agent: () =>
    new Agent({
      name: 'Release manager',
      model,
      instructions:
        'Deploy what you are asked to, with one call of deploy_release; then report what came of it.',
      tools: [deploy],
    }),
  ...thinking,
});

const refunds = workflow({
  name: 'refund',
  version: '1',
  agent: () =>
    new Agent({
      name: 'Refunds',
      model,
      instructions:
        'Refund what you are asked to, with one call of refund_order; then report what came of it.',
      tools: [refund],
    }),
  ...thinking,
});

export default [release, refunds];
