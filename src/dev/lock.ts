import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { CountersignError } from '../errors.ts';
import { isAlive } from '../fleet-file.ts';

/**
 * Makes this process the only supervisor of a home. The lock of one that died is taken over.
 *
 * @returns the function that gives it back. @throws DEV_ALREADY_RUNNING
 */
export async function lockHome(home: string): Promise<() => Promise<void>> {
  await mkdir(home, { recursive: true, mode: 0o711 });
  const file = path.join(home, 'dev.lock');
  for (;;) {
    try {
      await writeFile(file, `${process.pid}\n`, { flag: 'wx', mode: 0o600 });
      return () => rm(file, { force: true });
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) {
        throw notWritable(home, error);
      }
    }
    const pid = Number.parseInt(await readFile(file, 'utf8').catch(() => ''), 10);
    if (pid > 0 && isAlive(pid)) {
      throw new CountersignError(
        'DEV_ALREADY_RUNNING',
        `A dev fleet already runs in ${home} (pid ${pid}); use it, or stop it first. If that process is something else, remove ${file}.`,
        { details: { pid, home } },
      );
    }
    await rm(file, { force: true });
  }
}

function notWritable(home: string, cause: unknown): CountersignError {
  return new CountersignError(
    'CONFIG_INVALID',
    `COUNTERSIGN_HOME (${home}) cannot be written; name another folder.`,
    {
      details: { field: 'COUNTERSIGN_HOME' },
      cause,
    },
  );
}
