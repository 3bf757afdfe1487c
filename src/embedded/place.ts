/** Where the files of one `dir` live, also when root's unprivileged Postgres user cannot enter it. */
import { chmod, lstat, mkdir, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { failed, isErrno } from './failure.ts';
import { canReach, type Identity, serverIdentity } from './identity.ts';

export type Place = {
  dir: string;
  /** dir/cluster: a folder, or a symlink into `home` when `relocated`. */
  cluster: string;
  dataDir: string;
  logFile: string;
  /** Where a cluster is staged: `dir`, or a shared folder the Postgres user can enter. */
  home: string;
  relocated: boolean;
  identity: Identity | null;
};

/**
 * Makes `dir` and works out who runs Postgres and where the cluster may live. Changes nothing else, but that
 * root grants entry (not reading) to `dir` itself when only that bit is missing, as after mkdtemp.
 */
export async function preparePlace(dir: string): Promise<Place> {
  const isRoot = process.getuid?.() === 0;
  await mkdir(dir, { recursive: true, mode: isRoot ? 0o711 : 0o700 });
  const cluster = join(dir, 'cluster');
  const dataDir = join(cluster, 'data');
  const identity = await serverIdentity(dataDir);
  const relocated = identity !== null && !(await letIn(dir, identity));
  const home = relocated ? await sharedFolder(identity) : dir;
  return { dir, cluster, dataDir, logFile: join(dir, 'postgres.log'), home, relocated, identity };
}

async function letIn(dir: string, identity: Identity): Promise<boolean> {
  if (await canReach(dir, identity, false)) return true;
  const entry = await stat(dir);
  if (entry.uid !== 0 || !(await canReach(join(dir, '..'), identity, false))) return false;
  await chmod(dir, (entry.mode & 0o7777) | 0o011);
  return canReach(dir, identity, false);
}

/**
 * A folder owned by root that `identity` can enter, for what cannot stay in the checkout. Binaries in it are
 * executed, so a folder that somebody else made or may write to is not trusted.
 */
export async function sharedFolder(identity: Identity): Promise<string> {
  const candidates = ['/var/lib/countersign', join(tmpdir(), 'countersign-root')];
  for (const folder of candidates) {
    try {
      await mkdir(folder, { recursive: true, mode: 0o711 });
      const entry = await lstat(folder);
      const ours = entry.isDirectory() && entry.uid === process.getuid?.() && (entry.mode & 0o022) === 0;
      if (!ours) continue;
      await chmod(folder, 0o711); // mkdir's mode went through the umask
      if (await canReach(folder, identity, false)) return folder;
    } catch (error) {
      if (!isErrno(error)) throw error;
    }
  }
  const what = `uid ${identity.uid}, which runs Postgres for root, can reach none of ${candidates.join(', ')}`;
  throw failed('not_writable', what, 'make /var/lib writable, or run as an ordinary user');
}
