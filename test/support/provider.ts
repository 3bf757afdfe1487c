/** The outside world as a real OS process: `dist/examples/release-service/main.js` on a free port. */
import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { ReleaseClient } from '../../examples/release-service/client.ts';
import { releaseClient } from '../../examples/release-service/client.ts';

/** Generous: a busy two-core machine may take seconds to start a process. */
const START_TIMEOUT_MS = 15_000;
const STOP_TIMEOUT_MS = 5_000;
const STDERR_LIMIT = 4_000;

export type Provider = { url: string; client: ReleaseClient; pid: number; stop(): Promise<void> };

/**
 * Starts the provider process; it ends by itself when this process does. Kill `pid` for a provider outage; with
 * the same `port` and `journalFile` a second start is the same provider, come back with its memory.
 */
export async function startProvider(
  options: { port?: number; journalFile?: string } = {},
): Promise<Provider> {
  const args = [mainFile(), '--port', String(options.port ?? 0), '--exit-with-parent'];
  if (options.journalFile !== undefined) args.push('--journal', options.journalFile);
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  const url = await listeningUrl(child);
  const { pid } = child;
  if (pid === undefined) throw new Error('the provider process has no pid');
  return { url, client: releaseClient(url), pid, stop: () => stopProcess(child) };
}

function mainFile(): string {
  let folder = import.meta.dirname;
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  const file = join(folder, 'dist/examples/release-service/main.js');
  if (!existsSync(file)) throw new Error(`${file} is missing: run \`npm run build\` first`);
  return file;
}

function listeningUrl(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let complaint = '';
    const fail = (reason: string): void => {
      clearTimeout(timer);
      child.kill('SIGKILL');
      reject(new Error(`the provider did not start: ${reason} ${complaint}`));
    };
    const timer = setTimeout(() => fail('timeout'), START_TIMEOUT_MS);
    child.once('error', (error) => fail(error.message));
    child.once('exit', (code, signal) => fail(`exit ${code ?? signal}`));
    child.stderr?.on('data', (chunk: Buffer) => {
      if (complaint.length < STDERR_LIMIT) complaint += chunk.toString();
    });
    if (!child.stdout) return fail('no stdout');
    createInterface({ input: child.stdout }).once('line', (line) => {
      clearTimeout(timer);
      child.removeAllListeners('exit');
      const { url } = JSON.parse(line) as { url: string };
      resolve(url);
    });
  });
}

async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
  child.kill('SIGTERM');
  await exited;
  clearTimeout(timer);
}
