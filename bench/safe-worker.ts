/** Countersign's resume worker, as a user would run it, plus the bench's tally. */
import { answerCalls } from '../lab/answer.ts';
import { createLog, KeyRing, type ResumeWorker, runResumeWorker } from '../src/index.ts';
import { safeWorkflow } from './agent.ts';
import { takeEffects } from './effects.ts';
import { profiling } from './profiling.ts';
import { tellProgress } from './progress.ts';

export type SafeWorkerOptions = {
  databaseUrl: string;
  redisUrl: string | null;
  keys: ReturnType<typeof KeyRing.generate>;
  concurrency: number;
};

let worker: ResumeWorker | null = null;

answerCalls(
  {
    async start({ databaseUrl, redisUrl, keys, concurrency }: SafeWorkerOptions): Promise<void> {
      worker = await runResumeWorker({
        databaseUrl,
        redisUrl,
        concurrency,
        keys: KeyRing.parse(keys),
        workflows: [safeWorkflow()],
        log: createLog('bench worker', process.env.LOG_LEVEL ?? 'error'),
      });
      const { counts } = worker;
      tellProgress(() => counts);
    },
    takeEffects,
    ...profiling,
  },
  async () => worker?.stop(),
);
