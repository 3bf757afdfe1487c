/** Countersign's relay as a process of its own. */
import { createLog, type Running, runRelay } from '../src/index.ts';
import { answerCalls } from './answer.ts';

export type RelayAddress = { databaseUrl: string; redisUrl: string | null };

const log = createLog('relay', process.env.LOG_LEVEL ?? 'error');
let relay: Running | null = null;

async function stop(): Promise<void> {
  await relay?.stop();
  relay = null;
}

answerCalls(
  {
    async start({ databaseUrl, redisUrl }: RelayAddress): Promise<void> {
      relay ??= await runRelay({ databaseUrl, redisUrl, log });
    },
    stop,
  },
  stop,
);
