/** Makes the cluster of a `dir`: a data directory, its password, and the databases in it. */
import { randomBytes } from 'node:crypto';
import {
  appendFile,
  chown,
  mkdir,
  open,
  readFile,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Binaries } from './binaries.ts';
import { failed, failedProgram, isErrno } from './failure.ts';
import type { Place } from './place.ts';
import { runProgram } from './program.ts';
import { type ServerFlags, serverArgs } from './server-flags.ts';
import { stageFor, sweepStages } from './stage.ts';

export const SUPERUSER = 'countersign';
/** initdb makes it; Postgres' tools connect to it to manage the others. */
const MAINTENANCE_DATABASE = 'postgres';

export async function clusterExists(place: Place): Promise<boolean> {
  try {
    await stat(join(place.dataDir, 'PG_VERSION'));
    return true;
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return false;
    throw error;
  }
}

/**
 * Makes a cluster with `database` in it, in a folder of its own, and publishes it as dir/cluster in one step.
 * If another starter published first, its cluster stands and ours is removed.
 */
export async function createCluster(
  binaries: Binaries,
  place: Place,
  options: { durable: boolean; database: string },
): Promise<void> {
  await sweepStages(place.home);
  const stage = stageFor(join(place.home, 'cluster'));
  try {
    await fillStage(binaries, place, stage, options);
    await publish(place, stage);
  } finally {
    await rm(stage, { recursive: true, force: true });
  }
  if (await clusterExists(place)) return;
  const what = `${place.cluster} exists, but it holds no Postgres cluster`;
  throw failed(
    'incomplete_cluster',
    what,
    `remove ${place.cluster} to start afresh, or restore what it held`,
  );
}

async function fillStage(
  binaries: Binaries,
  place: Place,
  stage: string,
  options: { durable: boolean; database: string },
): Promise<void> {
  const { identity } = place;
  const dataDir = join(stage, 'data');
  const passwordFile = join(stage, 'password');
  await mkdir(stage, { mode: 0o711 });
  await mkdir(dataDir, { mode: 0o700 });
  await writeFile(passwordFile, `${randomBytes(24).toString('base64url')}\n`, { mode: 0o600 });
  if (identity !== null) {
    for (const path of [stage, dataDir, passwordFile]) await chown(path, identity.uid, identity.gid);
  }
  const args = [
    ...['--pgdata', dataDir, '--username', SUPERUSER, '--pwfile', passwordFile, '--auth', 'scram-sha-256'],
    // The built-in locale sorts the same on every machine and needs none installed.
    ...['--encoding', 'UTF8', '--locale-provider', 'builtin', '--builtin-locale', 'C.UTF-8', '--locale', 'C'],
    '--no-instructions',
    ...(options.durable ? [] : ['--no-sync']),
  ];
  const { code, output } = await runProgram(binaries.initdb, args, { identity });
  if (code !== 0) throw failedProgram({ program: 'initdb', text: output, dir: place.dir });

  await writeFile(join(stage, 'databases'), `${MAINTENANCE_DATABASE}\n`);
  const staged = { ...place, cluster: stage, dataDir };
  if ((await ensureDatabase(binaries, staged, options)) === 'held') {
    throw failed('did_not_start', `another process runs on ${dataDir}`, 'start again');
  }
}

/**
 * Creates `database` if this launcher has not yet. Needs the server down: it uses single-user mode, so that this
 * folder needs no Postgres client. `held` means that somebody else runs on the data directory now.
 */
export async function ensureDatabase(
  binaries: Binaries,
  place: Place,
  options: { durable: boolean; database: string; recycledPid?: number | null },
): Promise<'present' | 'held'> {
  const { database, durable, recycledPid = null } = options;
  if (await hasDatabase(place, database)) return 'present';
  const flags: ServerFlags = { durable };
  const args = ['--single', '-D', await realpath(place.dataDir), ...serverArgs(flags), MAINTENANCE_DATABASE];
  // The name was checked against DATABASE_NAME; a statement ends at the newline in this mode.
  const stdin = `CREATE DATABASE "${database}"\n`;
  const { code, output } = await runProgram(binaries.postgres, args, {
    identity: place.identity,
    stdin,
    recycledPid,
  });
  if (isHeld(output)) return 'held';
  // Single-user mode exits with 0 after a failed statement too.
  const made = code === 0 && (!/\bERROR: /.test(output) || /database ".*" already exists/.test(output));
  if (!made) throw failedProgram({ program: 'postgres --single', text: output, dir: place.dir });
  await appendFile(join(place.cluster, 'databases'), `${database}\n`);
  return 'present';
}

/** True if this launcher made `database`; one made with SQL is not known here. */
export async function hasDatabase(place: Place, database: string): Promise<boolean> {
  const text = await readFile(join(place.cluster, 'databases'), 'utf8');
  return text.split('\n').includes(database);
}

/** Postgres refused because another server, or a killed server's last children, still use the data directory. */
export function isHeld(output: string): boolean {
  return /lock file ".*" (already exists|is empty)|pre-existing shared memory block/.test(output);
}

export async function readPassword(place: Place): Promise<string> {
  return (await readFile(join(place.cluster, 'password'), 'utf8')).trim();
}

async function publish(place: Place, stage: string): Promise<void> {
  try {
    if (place.relocated) await publishByLink(place, stage);
    else await rename(stage, place.cluster);
    await syncFolder(dirname(place.cluster));
  } catch (error) {
    // The name is taken. Whether by a whole cluster is checked afterwards. Windows says EPERM.
    const taken = ['ENOTEMPTY', 'EEXIST', 'ENOTDIR', ...(process.platform === 'win32' ? ['EPERM'] : [])];
    if (!isErrno(error, ...taken)) throw error;
  }
}

async function publishByLink(place: Place, stage: string): Promise<void> {
  const final = join(place.home, `cluster-${randomBytes(6).toString('hex')}`);
  await rename(stage, final);
  try {
    await symlink(final, place.cluster);
  } catch (error) {
    await rm(final, { recursive: true, force: true });
    throw error;
  }
}

/** Makes the rename itself survive a power loss; Windows has no such call for folders. */
async function syncFolder(folder: string): Promise<void> {
  if (process.platform === 'win32') return;
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
