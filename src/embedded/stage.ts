/** Folders under construction: named after their maker, so that a dead maker's can be told from a live one's. */
import { randomBytes } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isErrno } from './failure.ts';

/** A path beside `target` that no other starter uses; rename it to `target` when it is complete. */
export function stageFor(target: string): string {
  return `${target}.stage-${process.pid}-${randomBytes(4).toString('hex')}`;
}

/** Removes from `folder` the stages of starters that died. A recycled pid only delays that. */
export async function sweepStages(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const pid = Number(/\.stage-(\d+)-[0-9a-f]{8}$/.exec(name)?.[1]);
    if (!(pid > 0) || isAlive(pid)) continue;
    await rm(join(folder, name), { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return isErrno(error, 'EPERM');
  }
}
