/**
 * The model checker, from the first source that works: `spin` and `cc` on PATH; the same after apt-get (root on
 * Debian). Without it the model's checks are skipped by name. In CI (CI=true) that is a failure.
 */
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** apt-get update plus about 1 MB for spin; gcc, where it is missing, is 60 MB more. */
const INSTALL_TIMEOUT_MS = 300_000;
/** Another apt-get (the tests' Redis) may be at work. */
const INSTALL_TRIES = 5;

/** Null when the checker is there, else why its tests are skipped. */
export async function findChecker(): Promise<string | null> {
  const tried: string[] = [];
  if ((await missing()).length === 0 || (await installWithApt(tried))) {
    return null;
  }
  const reason = `no model checker: apt-get install spin gcc (missing: ${(await missing()).join(', ')}; ${tried.join('; ')})`;
  if (process.env.CI === 'true') {
    throw new Error(`CI=true forbids skipping tests: ${reason}`);
  }
  return reason;
}

async function missing(): Promise<string[]> {
  const needed = ['spin', 'cc'];
  const found = await Promise.all(needed.map(onPath));
  return needed.filter((_name, index) => !found[index]);
}

async function onPath(name: string): Promise<boolean> {
  for (const folder of (process.env.PATH ?? '').split(delimiter).filter((part) => part !== '')) {
    try {
      await access(join(folder, name), constants.X_OK);
      return true;
    } catch {
      // not in this folder
    }
  }
  return false;
}

async function installWithApt(tried: string[]): Promise<boolean> {
  if (process.getuid?.() !== 0 || !(await onPath('apt-get'))) {
    tried.push('apt-get needs root on Debian or Ubuntu');
    return false;
  }
  const options = {
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    timeout: INSTALL_TIMEOUT_MS,
  };
  for (let tries = 1; ; tries += 1) {
    try {
      await run('apt-get', ['-qq', 'update'], options);
      await run(
        'apt-get',
        ['-qq', '-y', '--no-install-recommends', 'install', 'spin', 'gcc', 'libc6-dev'],
        options,
      );
      return (await missing()).length === 0;
    } catch (error) {
      const message = firstLine(error);
      if (!message.includes('lock') || tries === INSTALL_TRIES) {
        tried.push(`apt-get failed: ${message}`);
        return false;
      }
      await sleep(5_000);
    }
  }
}

function firstLine(error: unknown): string {
  const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
  return (stderr.trim() || String(error)).split('\n')[0] ?? '';
}
