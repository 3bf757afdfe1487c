/** A resume worker: carries runs from their last checkpoint to the next. Run as many as you like, anywhere. */
import { workerKeys, workflowsFile } from '../src/config.ts';
import { runProcess, runResumeWorker } from '../src/processes/index.ts';
import { loadWorkflows } from '../src/workflows/index.ts';

await runProcess('worker', async (config, log) =>
  runResumeWorker({
    databaseUrl: config.databaseUrl,
    redisUrl: config.redisUrl,
    queue: config.queue,
    keys: workerKeys(config),
    workflows: await loadWorkflows(workflowsFile(config, process.argv[2])),
    concurrency: config.concurrency,
    ttlMs: config.holdTtlMs,
    log,
  }),
);
