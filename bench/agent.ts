/** What both sides run: the same agent, model, tool and effect. Only what stands around them differs. */
import { Agent, tool } from '@openai/agents';
import { z } from 'zod';
import { providerOf, scriptedModel } from '../lab/scripted-model.ts';
import { action, idempotent, type Workflow, workflow } from '../src/index.ts';
import { recordEffect } from './effects.ts';

/** Brings the serialised state of a paused run to about 3.9 kB, as measured and reported by each bench. */
const PADDING = `Policy: ${'staging first, then production, one region at a time, watch the error budget. '.repeat(2)}`;

/** The prompt of one run; the scripted model takes the tool's argument from it, so that no two runs are alike. */
export function promptFor(ref: string): string {
  return `Deploy ${ref} to production.\n${PADDING}`;
}

const deployTool = {
  name: 'deploy_release',
  description: 'Deploy a release',
  parameters: z.object({ release: z.string(), environment: z.enum(['staging', 'production']) }),
};

/** Answers at once. */
const model = scriptedModel(
  (prompt) => ({
    tool: deployTool.name,
    arguments: { release: /^Deploy (\S+)/.exec(prompt)?.[1] ?? '', environment: 'production' },
  }),
  'done',
);

/** The effect costs nothing: a provider on this machine would be what is measured. */
function deploy({ release }: { release: string }): string {
  recordEffect(release);
  return 'deployed';
}

export const provider = providerOf(model);

/** Countersign's side. */
export function safeWorkflow(): Workflow {
  const guarded = action({
    ...deployTool,
    execute: deploy,
    recovery: idempotent({ keyLifetime: '24h' }),
    review: ({ release }) => ({ summary: `Deploy ${release}` }),
    approval: { policy: 'bench' },
  });
  return workflow({
    name: 'bench',
    version: '1',
    agent: () => new Agent({ name: 'Release', tools: [guarded] }),
    modelProvider: () => provider,
  });
}

/** The side of somebody who uses the SDK as its documentation shows. */
export function unsafeAgent(): Agent {
  return new Agent({
    name: 'Release',
    tools: [tool({ ...deployTool, needsApproval: true, execute: async (args) => deploy(args) })],
  });
}
