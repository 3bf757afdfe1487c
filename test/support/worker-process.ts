/**
 * A worker, relay or reconciler as a real OS process, from `dist/test/fixtures/worker-main.js`: to be killed, frozen and
 * thawed. It ends by itself when this process does.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { DeliveryCounts } from '../../src/runs/index.ts';
import type { WorkerMainConfig } from '../fixtures/worker-main.ts';

/** Generous: a busy two-core machine may take seconds to start a process. */
const START_MS = 60_000;
const HALT_MS = 60_000;

export type WorkerProcess = {
  pid: number;
  /** Resolves when the process stands where it was told to halt. */
  halted(timeoutMs?: number): Promise<void>;
  /** Lets it go on from there. */
  go(): void;
  /** SIGKILL unless another is named. Resolves at once for SIGSTOP and SIGCONT, else when the process has ended. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** SIGTERM; resolves with what became of its deliveries. */
  stop(): Promise<Partial<DeliveryCounts>>;
  /** Null while it runs. */
  exit(): { code: number | null; signal: NodeJS.Signals | null } | null;
};

type Line = { event: 'ready' | 'halted' | 'stopped'; counts?: Partial<DeliveryCounts> };

export async function startWorkerProcess(config: WorkerMainConfig): Promise<WorkerProcess> {
  const child = spawn(process.execPath, [mainFile(), JSON.stringify(config)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const { pid } = child;
  if (pid === undefined) throw new Error('the process has no pid');
  const killAtExit = () => void child.kill('SIGKILL');
  process.once('exit', killAtExit);
  const exited = new Promise<void>((resolve) =>
    // Not 'exit': its last lines are still to be read then.
    child.once('close', () => {
      process.off('exit', killAtExit);
      resolve();
    }),
  );
  const line = reader(child, exited);
  await line('ready', START_MS);
  return {
    pid,
    halted: async (timeoutMs = HALT_MS) => void (await line('halted', timeoutMs)),
    go: () => void child.stdin?.write('go\n'),
    async kill(signal = 'SIGKILL') {
      child.kill(signal);
      if (signal !== 'SIGSTOP' && signal !== 'SIGCONT') await exited;
    },
    async stop() {
      child.kill('SIGTERM');
      const { counts } = await line('stopped', HALT_MS);
      await exited;
      return counts ?? {};
    },
    exit: () =>
      child.exitCode === null && child.signalCode === null
        ? null
        : { code: child.exitCode, signal: child.signalCode },
  };
}

/** Waits for a line of one kind; lines that came earlier count. */
function reader(child: ChildProcess, exited: Promise<void>) {
  if (child.stdout === null) throw new Error('the process has no stdout');
  const lines: Line[] = [];
  let ended = false;
  child.once('close', () => {
    ended = true;
  });
  let wake = () => {};
  createInterface({ input: child.stdout }).on('line', (text) => {
    lines.push(JSON.parse(text) as Line);
    wake();
  });
  return async (event: Line['event'], timeoutMs: number): Promise<Line> => {
    const end = Date.now() + timeoutMs;
    for (;;) {
      const found = lines.find((line) => line.event === event);
      if (found !== undefined) return found;
      if (ended) {
        throw new Error(`the process ended (${child.exitCode ?? child.signalCode}) before it was ${event}`);
      }
      if (Date.now() > end) throw new Error(`the process was not ${event} within ${timeoutMs} ms`);
      await Promise.race([
        new Promise<void>((resolve) => {
          wake = resolve;
          setTimeout(resolve, 50);
        }),
        exited,
      ]);
    }
  };
}

function mainFile(): string {
  let folder = import.meta.dirname;
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  const file = join(folder, 'dist/test/fixtures/worker-main.js');
  if (!existsSync(file)) throw new Error(`${file} is missing: run \`npm run build\` first`);
  return file;
}
