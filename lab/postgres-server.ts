/** A durable Postgres for one command: the embedded one, in a folder that is gone afterwards. */
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../src/embedded/index.ts';
import type { Cleanup } from './cleanup.ts';

/** Starts it; the cleanup stops it and removes its data. */
export async function temporaryPostgres(cleanup: Cleanup, name: string): Promise<EmbeddedPostgres> {
  const dir = await mkdtemp(join(tmpdir(), `countersign-${name}-${process.pid}-`));
  cleanup.defer(() => rm(dir, { recursive: true, force: true }));
  const server = await startEmbeddedPostgres({ dir, durable: true });
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
