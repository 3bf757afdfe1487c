import { chmod, mkdtemp, readdir, readlink, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { isAlive } from '../fleet-file.ts';

const PREFIX = 'countersign-demo-';

/** A home for one demo, named after its process; homes that killed demos left behind are cleared away first. */
export async function makeDemoHome(): Promise<string> {
  for (const name of await readdir(tmpdir())) {
    const owner = name.startsWith(PREFIX) ? Number.parseInt(name.slice(PREFIX.length), 10) : 0;
    if (owner > 0 && !isAlive(owner)) {
      // A Postgres that still runs there notices within a minute and exits. Another user's leftovers are theirs.
      await removeDemoHome(path.join(tmpdir(), name)).catch(() => undefined);
    }
  }
  const home = await mkdtemp(path.join(tmpdir(), `${PREFIX}${process.pid}-`));
  // Entry, not reading: started by root, Postgres runs as somebody else, and its folder is in here.
  await chmod(home, 0o711);
  return home;
}

export async function removeDemoHome(home: string): Promise<void> {
  // Started by root where the Postgres user cannot go, the cluster lies elsewhere and this is a link to it.
  const elsewhere = await readlink(path.join(home, 'postgres', 'cluster')).catch(() => null);
  if (elsewhere !== null) {
    await rm(elsewhere, { recursive: true, force: true });
  }
  await rm(home, { recursive: true, force: true });
}
