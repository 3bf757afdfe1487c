import type { Command } from 'commander';
import {
  type Config,
  readConfig,
  requiredTokens,
  reviewKeys,
  workerKeys,
  workflowsFile,
} from '../../config.ts';
import { runApi } from '../../http/index.ts';
import { createLog, type Log } from '../../log.ts';
import { sinkOf } from '../../notifications/index.ts';
import {
  type ProcessName,
  readyLine,
  runReconciler,
  runRelay,
  runResumeWorker,
  runUntilStopped,
  type StartedProcess,
} from '../../processes/index.ts';
import { loadWorkflows } from '../../workflows/index.ts';
import { leaf } from '../command.ts';
import { print } from '../output.ts';
import { ttl, wholeNumber } from '../values.ts';

type WorkerFlags = { workflows?: string; concurrency?: number; ttl?: number };
const WORKFLOWS = ['--workflows <FILE>', 'exports your workflows; default: COUNTERSIGN_WORKFLOWS'] as const;
const API_PORT = 7300;

/** The lines of the Procfile as commands. Each runs until Ctrl-C or SIGTERM; a second one ends it at once. */
export function addProcesses(program: Command): void {
  leaf(program, 'worker', 'carry runs; start as many as you like, on as many machines as you like')
    .option(...WORKFLOWS)
    .option('--concurrency <N>', 'runs carried at once; default 8', wholeNumber(1, 1_000))
    .option('--ttl <DURATION>', 'how long a hold lasts without a heartbeat; default 30s', ttl)
    .action((flags: WorkerFlags, command: Command) =>
      keepRunning(command, 'worker', async (config, log) =>
        runResumeWorker({
          databaseUrl: config.databaseUrl,
          redisUrl: config.redisUrl,
          queue: config.queue,
          keys: workerKeys(config),
          workflows: await loadWorkflows(workflowsFile(config, flags.workflows)),
          concurrency: flags.concurrency ?? config.concurrency,
          ttlMs: flags.ttl ?? config.holdTtlMs,
          log,
        }),
      ),
    );

  leaf(program, 'relay', 'publish what was committed').action((_flags: object, command: Command) =>
    keepRunning(command, 'relay', async (config, log) =>
      runRelay({
        databaseUrl: config.databaseUrl,
        redisUrl: config.redisUrl,
        queue: config.queue,
        notify: sinkOf(config),
        log,
      }),
    ),
  );

  leaf(program, 'reconciler', 'settle unproven actions by evidence, and sweep')
    .option(...WORKFLOWS)
    .action((flags: { workflows?: string }, command: Command) =>
      keepRunning(command, 'reconciler', async (config, log) =>
        runReconciler({
          databaseUrl: config.databaseUrl,
          keys: workerKeys(config),
          workflows: await loadWorkflows(workflowsFile(config, flags.workflows)),
          patienceMs: config.patienceMs,
          log,
        }),
      ),
    );

  leaf(program, 'api', 'serve the api')
    .option('--port <N>', `default: PORT or ${API_PORT}; 0 for a free one`, wholeNumber(0, 65_535))
    .option('--host <HOST>', 'default: HOST or 127.0.0.1')
    .action((flags: { port?: number; host?: string }, command: Command) =>
      keepRunning(command, 'api', async (config, log) =>
        runApi({
          databaseUrl: config.databaseUrl,
          keys: reviewKeys(config),
          tokens: requiredTokens(config),
          host: flags.host ?? config.host,
          port: flags.port ?? config.port ?? API_PORT,
          log,
        }),
      ),
    );
}

async function keepRunning(
  command: Command,
  name: ProcessName,
  start: (config: Config, log: Log) => Promise<StartedProcess>,
): Promise<void> {
  const config = await readConfig();
  const log = createLog(name, config.logLevel);
  await runUntilStopped({
    start: () => start(config, log),
    onReady: (running) =>
      print(command, {
        json: readyLine(name, running),
        text: `The ${name} is up${running.url === undefined ? '' : ` at ${running.url}`} (pid ${process.pid}). Ctrl-C stops it.`,
      }),
    log,
    exitWithParent: config.exitWithParent,
  });
}
