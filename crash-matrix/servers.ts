/** The servers under all lanes: one Postgres with a migrated template, and one Redis. */
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Cleanup } from '../lab/cleanup.ts';
import { startEmbeddedPostgres } from '../src/embedded/index.ts';
import { migrate, openDatabase } from '../src/index.ts';
import { startRedis } from '../test/support/redis.ts';
import { bundleRoleProcess } from './bundle.ts';

export type Backend = 'redis' | 'embedded';

export type Servers = {
  /** A migrated database that shares nothing with any other. Returns its URL, as superuser. */
  createDatabase(name: string): Promise<string>;
  dropDatabase(url: string): Promise<void>;
  /** Redis without a database number; null on the embedded backend. */
  redisUrl: string | null;
  /** The module of every process of a fleet. */
  roleProcess: URL;
};

const TEMPLATE = 'matrix_template';

/** Processes are killed here, never the server: it need not be durable. */
export async function startServers(cleanup: Cleanup, backend: Backend): Promise<Servers> {
  const dir = await mkdtemp(join(tmpdir(), `countersign-matrix-${process.pid}-`));
  cleanup.defer(() => rm(dir, { recursive: true, force: true }));
  const postgres = await startEmbeddedPostgres({ dir, durable: false, database: TEMPLATE });
  const cluster = await realpath(join(dir, 'cluster'));
  if (dirname(cluster) !== (await realpath(dir))) {
    cleanup.defer(() => rm(cluster, { recursive: true, force: true }));
  }
  killAtExit(postgres.pid);
  cleanup.defer(() => postgres.stop());
  await migrate({ url: postgres.url });
  const admin = openDatabase({ url: withDatabase(postgres.url, 'postgres'), role: null, max: 1 });
  cleanup.defer(() => admin.close());
  return {
    redisUrl: backend === 'redis' ? await redisFor(cleanup) : null,
    roleProcess: await bundleRoleProcess(cleanup),
    async createDatabase(name) {
      await admin.pool.query(`create database "${name}" template ${TEMPLATE}`);
      return withDatabase(postgres.url, name);
    },
    async dropDatabase(url) {
      await admin.pool.query(`drop database if exists "${new URL(url).pathname.slice(1)}" with (force)`);
    },
  };
}

async function redisFor(cleanup: Cleanup): Promise<string> {
  const redis = await startRedis({ own: true });
  if ('skipped' in redis) {
    throw new Error(redis.skipped);
  }
  cleanup.defer(() => redis.stop());
  return redis.url.replace(/\/\d*$/, '');
}

export function withDatabase(url: string, database: string): string {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  return changed.href;
}

/** The last resort, for an exit that skips the cleanup. */
function killAtExit(pid: number): void {
  process.once('exit', () => {
    try {
      process.kill(pid, 'SIGQUIT');
    } catch {
      // already gone
    }
  });
}
