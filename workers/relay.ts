/** The relay: publishes what was committed. Any number may run; one is enough. */
import { sinkOf } from '../src/notifications/index.ts';
import { runProcess, runRelay } from '../src/processes/index.ts';

await runProcess('relay', async (config, log) =>
  runRelay({
    databaseUrl: config.databaseUrl,
    redisUrl: config.redisUrl,
    queue: config.queue,
    notify: sinkOf(config),
    log,
  }),
);
