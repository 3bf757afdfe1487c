/** The one tool of the lab, as plain data: what the SDK's tool() and Countersign's action() are both given. */
import { z } from 'zod';
import { scriptedModel } from './scripted-model.ts';

export const deployTool = {
  name: 'deploy_release',
  description: 'Deploy a release',
  parameters: z.object({ release: z.string(), environment: z.enum(['staging', 'production']) }),
};

export const deployModel = scriptedModel(
  () => ({ tool: deployTool.name, arguments: { release: 'v42', environment: 'production' } }),
  'done',
);

export const deployPrompt = 'Deploy v42 to production';
