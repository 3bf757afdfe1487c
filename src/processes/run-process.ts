import { type Config, readConfig } from '../config.ts';
import { isCountersignError } from '../errors.ts';
import { exitCodeOf } from '../exit-code.ts';
import { playRole } from '../failpoints.ts';
import { createLog, type Log } from '../log.ts';
import { runUntilStopped } from './lifetime.ts';
import type { Running } from './loop.ts';

/** A line of the Procfile. */
export type ProcessName = 'api' | 'relay' | 'worker' | 'reconciler';

export type StartedProcess = Running & { readonly url?: string };

/** What a process says on stdout, as one JSON line, when it is up. */
export type ReadyLine = { event: 'ready'; process: ProcessName; pid: number; url?: string };

/**
 * The whole life of a file in `workers/`: configuration, start, one ready line on stdout, stop on a signal, exit.
 * Never returns. Exit codes as the command line's: 0 stopped, 1 refused or failed, 3 unavailable.
 */
export async function runProcess(
  name: ProcessName,
  start: (config: Config, log: Log) => Promise<StartedProcess>,
): Promise<never> {
  playRole(name);
  let log = createLog(name, 'info');
  try {
    const config = await readConfig();
    log = createLog(name, config.logLevel);
    await runUntilStopped({
      start: () => start(config, log),
      onReady: (running) => process.stdout.write(`${JSON.stringify(readyLine(name, running))}\n`),
      log,
      exitWithParent: config.exitWithParent,
    });
    process.exit(0);
  } catch (error) {
    log.fatal({ err: error }, isCountersignError(error) ? error.message : 'did not start');
    process.exit(exitCodeOf(error));
  }
}

export function readyLine(name: ProcessName, running: StartedProcess): ReadyLine {
  return {
    event: 'ready',
    process: name,
    pid: process.pid,
    ...(running.url === undefined ? {} : { url: running.url }),
  };
}
