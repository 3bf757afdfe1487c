/** Which processes of this machine belong to a folder: by their command line, their environment, or their cwd. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** `pid command` of every process that names `folder` in its command line or environment; this one left out. */
export function processesOf(folder: string): string[] {
  if (process.platform !== 'linux') {
    const lines = execFileSync('ps', ['-axo', 'pid=,command='], { encoding: 'utf8' }).split('\n');
    return lines.map((line) => line.trim()).filter((line) => line.includes(folder));
  }
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((pid) => {
      const command = read(`/proc/${pid}/cmdline`);
      // A zombie has neither.
      return command.includes(folder) || read(`/proc/${pid}/environ`).includes(folder)
        ? [`${pid} ${command.replaceAll('\0', ' ')}`]
        : [];
    });
}

function read(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}

/** Waits for something to be so. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  timeoutMs = 30_000,
): Promise<void> {
  const end = Date.now() + timeoutMs;
  while (!(await holds())) {
    if (Date.now() > end) {
      throw new Error(`waited ${timeoutMs} ms for ${what}`);
    }
    await sleep(50);
  }
}
