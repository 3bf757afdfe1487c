/** Who Postgres runs as when we are root (it refuses root), and what that user can reach. */
import type { Stats } from 'node:fs';
import { readFile, realpath, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { failed, isErrno, USE_A_REAL_SERVER } from './failure.ts';

/** A user to run a program as. Null in its place means: as ourselves, nothing to switch. */
export type Identity = { uid: number; gid: number };

/** Best first: the packaged user, else the one every Unix has. */
const CANDIDATE_USERS = ['postgres', 'nobody'];

const READ = 0o4;
const ENTER = 0o1;

/**
 * The user to run Postgres as: the owner of an existing data directory, else `postgres`, else `nobody`.
 * Null unless we are root.
 *
 * @param dataDir the data directory, which need not exist yet.
 * @throws EMBEDDED_POSTGRES_FAILED no_unprivileged_user, wrong_owner.
 */
export async function serverIdentity(dataDir: string): Promise<Identity | null> {
  const uid = process.getuid?.();
  if (uid === undefined) return null;
  const owner = await ownerOf(dataDir);
  if (uid !== 0) {
    if (owner === null || owner.uid === uid) return null;
    const what = `${dataDir} belongs to uid ${owner.uid}, and this process runs as ${uid}`;
    throw failed('wrong_owner', what, 'run as the user that made it, or choose another `dir`');
  }
  if (owner !== null && owner.uid !== 0) return owner;

  const passwd = await readFile('/etc/passwd', 'utf8').catch(() => '');
  for (const name of CANDIDATE_USERS) {
    const found = findUser(passwd, name);
    if (found !== null) return found;
  }
  const what = `it refuses to run as root, and /etc/passwd has no ${CANDIDATE_USERS.join(' or ')}`;
  throw failed(
    'no_unprivileged_user',
    what,
    `run as another user, add user postgres, or ${USE_A_REAL_SERVER}`,
  );
}

function findUser(passwd: string, name: string): Identity | null {
  const line = passwd.split('\n').find((entry) => entry.startsWith(`${name}:`));
  const [, , uid, gid] = line?.split(':') ?? [];
  if (uid === undefined || gid === undefined) return null;
  // macOS writes nobody as -2, which is 4294967294 to the kernel.
  const identity = { uid: Number(uid) >>> 0, gid: Number(gid) >>> 0 };
  return identity.uid === 0 ? null : identity;
}

async function ownerOf(path: string): Promise<Identity | null> {
  try {
    const { uid, gid } = await stat(path);
    return { uid, gid };
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return null;
    throw error;
  }
}

/**
 * True if `identity` may enter every folder on the way to `path`, and read and enter (or execute) `path` itself
 * when `alsoRead` is set. Judged by mode bits: exact without ACLs, and with them Postgres' own error follows.
 */
export async function canReach(path: string, identity: Identity, alsoRead: boolean): Promise<boolean> {
  let current = await realpath(path);
  let needed = alsoRead ? READ | ENTER : ENTER;
  for (;;) {
    if (!allows(await stat(current), identity, needed)) return false;
    const parent = dirname(current);
    if (parent === current) return true;
    current = parent;
    needed = ENTER;
  }
}

function allows(entry: Stats, identity: Identity, needed: number): boolean {
  const shift = entry.uid === identity.uid ? 6 : entry.gid === identity.gid ? 3 : 0;
  return ((entry.mode >> shift) & needed) === needed;
}
