/**
 * What the whole run shares: one Postgres (durable: false), one Redis, and a migrated template database that
 * `createTestDatabase` clones. Tests read the addresses with `inject`.
 *
 * Ctrl-C and a crash of the runner take the servers along. A kill -9 leaves a folder `countersign-test-<pid>-…` and
 * a server in it: the next run removes the folder, and Postgres exits by itself within a minute.
 */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { startRedis } from './redis.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Superuser URL of the maintenance database `postgres`, for CREATE and DROP DATABASE only. */
    postgresUrl: string;
    /** Migrated, and closed to connections: clone it with createTestDatabase. */
    templateDatabase: string;
    /** Null without a Redis; then `redisSkipReason` says what to install. */
    redisUrl: string | null;
    redisSkipReason: string | null;
  }
}

const TEMPLATE = 'countersign_template';
const FOLDER = 'countersign-test-';

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  await removeAbandonedFolders();
  const dir = await mkdtemp(join(tmpdir(), `${FOLDER}${process.pid}-`));
  const postgres = await startEmbeddedPostgres({ dir, durable: false, database: TEMPLATE });
  const release = killAtExit(postgres);
  const stopPostgres = async (): Promise<void> => {
    await postgres.stop();
    release();
    await rm(dir, { recursive: true, force: true });
  };
  try {
    const maintenanceUrl = withDatabase(postgres.url, 'postgres');
    await buildTemplate(postgres.url, maintenanceUrl);
    const redis = await startRedis();
    project.provide('postgresUrl', maintenanceUrl);
    project.provide('templateDatabase', TEMPLATE);
    project.provide('redisUrl', 'url' in redis ? redis.url : null);
    project.provide('redisSkipReason', 'skipped' in redis ? redis.skipped : null);
    return async () => {
      if ('stop' in redis) await redis.stop();
      await stopPostgres();
    };
  } catch (error) {
    await stopPostgres();
    throw error;
  }
}

async function buildTemplate(templateUrl: string, maintenanceUrl: string): Promise<void> {
  // Imported late, so that a broken migration fails here, with the servers cleaned up.
  const { migrate } = await import('../../src/postgres/migrate.ts');
  await migrate({ url: templateUrl });
  const client = new pg.Client({ connectionString: maintenanceUrl });
  await client.connect();
  try {
    // One connection left open in a template makes every clone of it fail.
    await client.query(`ALTER DATABASE ${TEMPLATE} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false`);
  } finally {
    await client.end();
  }
}

function withDatabase(url: string, database: string): string {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  return changed.href;
}

/** Immediate shutdown: the cluster is thrown away. Returns the function that calls it off. */
function killAtExit({ pid }: EmbeddedPostgres): () => void {
  const kill = (): void => {
    try {
      process.kill(pid, 'SIGQUIT');
    } catch {
      // already gone
    }
  };
  process.once('exit', kill);
  return () => {
    process.off('exit', kill);
  };
}

async function removeAbandonedFolders(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    if (!name.startsWith(FOLDER)) continue;
    const pid = Number.parseInt(name.slice(FOLDER.length), 10);
    if (!(pid > 0) || isAlive(pid)) continue;
    // Another user's leftovers are theirs to remove.
    await rm(join(tmpdir(), name), { recursive: true, force: true }).catch(() => undefined);
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
