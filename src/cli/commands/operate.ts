import type { Command } from 'commander';
import { readConfig } from '../../config.ts';
import { publishDuplicates } from '../../outbox/index.ts';
import { migrate } from '../../postgres/index.ts';
import { assertRedisSafe, openResumeQueue, prepareQueue } from '../../queue/index.ts';
import { leaf } from '../command.ts';
import { globalsOf, print } from '../output.ts';
import { type Session, withSession } from '../session.ts';
import { wholeNumber } from '../values.ts';

/** What an operator does now and then: migrate, deliver. */
export function addOperate(program: Command): void {
  leaf(
    program,
    'migrate',
    'bring the schema up to date; safe to repeat and to run from many machines',
  ).action(async (_options: object, command: Command) => {
    const config = await readConfig();
    const { applied, current } = await migrate({ url: config.databaseUrl });
    if (config.redisUrl === null) {
      await prepareQueue({ postgresUrl: config.databaseUrl });
    }
    const queue = config.redisUrl === null ? 'postgres' : 'redis';
    print(command, {
      json: { applied, current, queue },
      text: [
        applied.length === 0
          ? `The schema is up to date, at migration ${current}.`
          : `Applied ${applied.join(', ')}; the schema is at migration ${current}.`,
        ...(queue === 'postgres' ? ['The queue, in Postgres as REDIS_URL is not set, is prepared too.'] : []),
      ].join('\n'),
    });
  });

  leaf(
    program,
    'deliver RUN',
    'publish extra copies of a run’s current resume job, to see that they are harmless',
  )
    .requiredOption('--duplicate <N>', 'how many copies', wholeNumber(1, 1_000))
    .action(async (runId: string, options: { duplicate: number }, command: Command) => {
      print(
        command,
        await withSession(globalsOf(command), (session) => deliver(session, runId, options.duplicate)),
      );
    });
}

async function deliver({ config, db, tenant }: Session, runId: string, copies: number) {
  const { databaseUrl, redisUrl } = config;
  if (redisUrl !== null) {
    await assertRedisSafe(redisUrl);
  }
  const queue = openResumeQueue({
    redisUrl,
    postgresUrl: databaseUrl,
    name: config.queue,
    onError: () => undefined,
  });
  try {
    const sent = await publishDuplicates(db, queue, { tenant, runId, copies });
    return {
      json: { ...sent, queue: queue.backend },
      text: [
        `Sent ${copies === 1 ? 'one more job' : `${copies} more jobs`} for run ${sent.runId} (wake ${sent.wake}, ${sent.status}) to the ${queue.backend} queue:`,
        ...sent.jobIds.map((id) => `  ${id}`),
        'Whoever takes them finds the run held or moved on, and does nothing.',
      ].join('\n'),
    };
  } finally {
    await queue.close();
  }
}
