import { openResumeQueue } from './resume-queue.ts';

/**
 * Makes or upgrades BullMQ's own schema (`bullmq`) in a database that will carry the queue, so that no process has to
 * do it at its first job. Safe to call from many processes at once: BullMQ migrates under an advisory lock.
 */
export async function prepareQueue(options: { postgresUrl: string }): Promise<void> {
  let trouble: Error | null = null;
  const queue = openResumeQueue({
    redisUrl: null,
    postgresUrl: options.postgresUrl,
    onError: (error) => {
      trouble ??= error;
    },
  });
  try {
    await queue.depth();
    if (trouble !== null) {
      throw trouble;
    }
  } finally {
    await queue.close();
  }
}
