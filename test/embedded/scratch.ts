/** Folders and servers of the embedded-Postgres tests, all gone after each test whatever happened in it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterEach } from 'vitest';
import { type EmbeddedPostgresOptions, startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { launch } from '../../src/embedded/launch.ts';
import type { EmbeddedPostgres } from '../../src/embedded/options.ts';

const cleanups: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Named so that the global setup of the next run removes it if this process is killed. */
export async function freshDir(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), `countersign-test-${process.pid}-`));
  cleanups.push(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** Starts with durable: false unless told otherwise, and stops the server after the test. */
export async function start(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  return adopt(await startEmbeddedPostgres({ durable: false, ...options }));
}

/** The same with a platform package that lies elsewhere. */
export async function startFrom(packageDir: string, dir: string): Promise<EmbeddedPostgres> {
  return adopt(await launch(packageDir, { dir, port: null, durable: false, database: 'countersign' }));
}

function adopt(server: EmbeddedPostgres): EmbeddedPostgres {
  cleanups.push(server.attached ? () => endServer(server.pid) : () => server.stop());
  return server;
}

/** Fast shutdown of a server that no handle owns any more; resolves when the process is gone. */
export async function endServer(pid: number): Promise<void> {
  signal(pid, 'SIGINT');
  while (isAlive(pid)) await sleep(10);
}

export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // already gone
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

export async function query(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  // A server killed under the client would otherwise throw out of nowhere.
  client.on('error', () => undefined);
  await client.connect();
  try {
    const result = await client.query<Record<string, unknown>>(sql);
    return result.rows;
  } finally {
    await client.end();
  }
}

/** Runs starter.ts: a process of its own that starts the server of `dir`, and prints the handle as JSON. */
export function spawnStarter(dir: string, then: 'exit' | 'wait'): ChildProcess {
  const script = fileURLToPath(new URL('./starter.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', script, dir, then], {
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true, // a process group of its own, as a shell gives each command
  });
  cleanups.push(async () => {
    child.kill('SIGKILL');
  });
  return child;
}

export type StarterReport = { url: string; pid: number; attached: boolean };

/** The report of a starter that exits by itself. */
export async function reportOf(child: ChildProcess): Promise<StarterReport> {
  if (child.stdout === null) throw new TypeError('stdout is a pipe');
  const exited = once(child, 'exit');
  const printed = await text(child.stdout);
  const [code] = (await exited) as [number | null];
  if (code !== 0) throw new Error(`starter exited with ${code}`);
  return adoptReport(printed);
}

/** The report of a starter that goes on running. */
export async function firstReportOf(child: ChildProcess): Promise<StarterReport> {
  if (child.stdout === null) throw new TypeError('stdout is a pipe');
  const [chunk] = (await once(child.stdout, 'data')) as [Buffer];
  return adoptReport(chunk.toString());
}

function adoptReport(json: string): StarterReport {
  const report = JSON.parse(json) as StarterReport;
  cleanups.push(() => endServer(report.pid));
  return report;
}

/** Listens on a loopback port until the test ends. */
export async function occupyPort(): Promise<number> {
  const server: Server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanups.push(async () => {
    server.close();
    await once(server, 'close');
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('a TCP server has an address');
  return address.port;
}
