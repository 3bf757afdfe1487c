/** A durable Postgres for one command: the embedded one, in a folder that is gone afterwards. */
import { mkdtempSync } from 'node:fs';
import { realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../src/embedded/index.ts';
import { openDatabase } from '../src/index.ts';
import type { Cleanup } from './cleanup.ts';

/**
 * Starts it; the cleanup stops it and removes its data.
 *
 * @param settings server settings beside the launcher's own, such as shared_preload_libraries.
 */
export async function temporaryPostgres(
  cleanup: Cleanup,
  name: string,
  settings: Readonly<Record<string, string>> = {},
): Promise<EmbeddedPostgres> {
  const dir = mkdtempSync(join(tmpdir(), `countersign-${name}-${process.pid}-`));
  cleanup.defer(() => rm(dir, { recursive: true, force: true }));
  const starting = startWith(dir, settings);
  let release = (): void => undefined;
  cleanup.defer(async () => {
    const server = await starting.catch(() => null);
    await server?.stop();
    release();
    await removeCluster(dir);
  });
  const server = await starting;
  release = killAtExit(server.pid);
  return server;
}

/** As root the data may lie under /var/lib, with a symlink to it in `dir` (src/embedded). */
async function removeCluster(dir: string): Promise<void> {
  const cluster = await realpath(join(dir, 'cluster')).catch(() => null);
  if (cluster !== null) {
    await rm(cluster, { recursive: true, force: true });
  }
}

async function startWith(dir: string, settings: Readonly<Record<string, string>>): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ dir, durable: true });
  if (Object.keys(settings).length === 0) {
    return server;
  }
  const admin = openDatabase({ url: server.url, role: null, max: 1 });
  for (const [setting, value] of Object.entries(settings)) {
    await admin.pool.query(`alter system set ${setting} = '${value}'`);
  }
  await admin.close();
  await server.stop();
  return startEmbeddedPostgres({ dir, durable: true });
}

/**
 * The last resort, for an exit that skips the cleanup: the data is thrown away, so no clean shutdown is needed.
 * Returns the function that calls it off.
 */
function killAtExit(pid: number): () => void {
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
