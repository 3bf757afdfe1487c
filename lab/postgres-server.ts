/** A durable Postgres for one command: the embedded one, in a folder that is gone afterwards. */
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
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
  const dir = await mkdtemp(join(tmpdir(), `countersign-${name}-${process.pid}-`));
  cleanup.defer(() => rm(dir, { recursive: true, force: true }));
  const server = await startWith(dir, settings);
  // As root the data may lie under /var/lib, with a symlink to it in `dir` (src/embedded).
  const cluster = await realpath(join(dir, 'cluster'));
  if (dirname(cluster) !== (await realpath(dir))) {
    cleanup.defer(() => rm(cluster, { recursive: true, force: true }));
  }
  const release = killAtExit(server.pid);
  cleanup.defer(async () => {
    await server.stop();
    release();
  });
  return server;
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
