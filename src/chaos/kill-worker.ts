import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { isAlive } from '../fleet-file.ts';

/**
 * Kills one resume worker that `countersign dev` of this machine has started, chosen at random.
 *
 * @param pids by process name, as the fleet file has them. One that is no child of `dev` any more was given to another
 *   program since, and is left alone.
 * @returns its name and pid, or null when none is alive just now.
 */
export function killWorker(pids: Readonly<Record<string, number>>): { name: string; pid: number } | null {
  const supervisor = pids.dev;
  const workers = Object.entries(pids).filter(
    ([name, pid]) => /^worker-\d+$/.test(name) && isAlive(pid) && parentOf(pid) === supervisor,
  );
  const [name, pid] = workers[Math.floor(Math.random() * workers.length)] ?? [];
  if (name === undefined || pid === undefined) {
    return null;
  }
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    return null; // it has just ended by itself
  }
  return { name, pid };
}

function parentOf(pid: number): number | null {
  try {
    if (process.platform === 'linux') {
      // `pid (command) state parent …`; a command may hold spaces and brackets.
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
    }
    return Number(execFileSync('ps', ['-o', 'ppid=', '-p', String(pid)], { encoding: 'utf8' }));
  } catch {
    return null;
  }
}
