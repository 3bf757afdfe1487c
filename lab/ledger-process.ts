/** Countersign's resume worker as a process of its own, with the same agent as sdk-process.ts. */
import { Agent } from '@openai/agents';
import { releaseClient } from '../examples/release-service/index.ts';
import {
  action,
  createLog,
  KeyRing,
  lookup,
  type ResumeWorker,
  runResumeWorker,
  type Workflow,
  workflow,
} from '../src/index.ts';
import { answerCalls } from './answer.ts';
import { deployModel, deployTool } from './deploy-tool.ts';
import { providerOf } from './scripted-model.ts';

export type LedgerWorkerOptions = {
  databaseUrl: string;
  redisUrl: string | null;
  keys: ReturnType<typeof KeyRing.generate>;
  providerUrl: string;
  kind: string;
};

function releaseWorkflow({ providerUrl, kind }: LedgerWorkerOptions): Workflow {
  const releases = releaseClient(providerUrl);
  const deploy = action({
    ...deployTool,
    execute: (args, { operationKey, signal }) =>
      releases.create(kind, args, { idempotencyKey: operationKey, signal }),
    recovery: lookup(async ({ operationKey }) => (await releases.find(kind, operationKey)).effects[0], {
      settlesWithin: '1s',
    }),
    target: ({ environment }) => environment,
    review: ({ release }) => ({ summary: `Deploy ${release}` }),
    approval: { policy: 'prod-deploys' },
  });
  return workflow({
    name: 'release',
    version: '1',
    agent: () => new Agent({ name: 'Release', tools: [deploy] }),
    modelProvider: () => providerOf(deployModel),
  });
}

let worker: ResumeWorker | null = null;

answerCalls(
  {
    async start(options: LedgerWorkerOptions): Promise<void> {
      const { databaseUrl, redisUrl } = options;
      worker = await runResumeWorker({
        databaseUrl,
        redisUrl,
        keys: KeyRing.parse(options.keys),
        workflows: [releaseWorkflow(options)],
        // One at a time: while this worker is busy, every other delivery goes to the other one.
        concurrency: 1,
        log: createLog('worker', process.env.LOG_LEVEL ?? 'error'),
      });
    },
    counts: () => worker?.counts,
  },
  async () => worker?.stop(),
);
