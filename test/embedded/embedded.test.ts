import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { serverIdentity } from '../../src/embedded/identity.ts';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';
import {
  endServer,
  firstReportOf,
  freshDir,
  isAlive,
  occupyPort,
  query,
  reportOf,
  signal,
  spawnStarter,
  start,
} from './scratch.ts';

const failure = (reason: string) => ({ code: 'EMBEDDED_POSTGRES_FAILED', details: { reason } });

describe('start and stop', () => {
  test('a fresh dir gets a server with the named database, and rows outlive a restart', async () => {
    const dir = await freshDir();
    const first = await start({ dir });
    expect(first.attached).toBe(false);
    expect(await query(first.url, 'SELECT current_database() AS db, current_user AS role')).toEqual([
      { db: 'countersign', role: 'countersign' },
    ]);
    await query(first.url, 'CREATE TABLE kept AS SELECT 7 AS n');
    await first.stop();
    await first.stop();
    expect(isAlive(first.pid)).toBe(false);
    await expect(query(first.url, 'SELECT 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });

    const second = await start({ dir });
    expect(await query(second.url, 'SELECT n FROM kept')).toEqual([{ n: 7 }]);
  });

  test('the server asks for the password, listens on loopback only, and does not run as root', async () => {
    const dir = await freshDir();
    const server = await start({ dir });
    const wrong = server.url.replace(/:[^:@]+@/, ':guess@');
    await expect(query(wrong, 'SELECT 1')).rejects.toMatchObject({ code: '28P01' });
    expect((await stat(join(dir, 'cluster/password'))).mode & 0o077).toBe(0);
    expect(await query(server.url, 'SHOW listen_addresses')).toEqual([{ listen_addresses: '127.0.0.1' }]);
    expect((await stat(join(dir, 'cluster/data'))).uid).not.toBe(0);
  });

  test('durable is the default, and durable: false turns fsync off', async () => {
    const dir = await freshDir();
    const unsafe = await start({ dir, durable: false });
    expect(await query(unsafe.url, 'SHOW fsync')).toEqual([{ fsync: 'off' }]);
    await unsafe.stop();
    const safe = await start({ dir, durable: true });
    expect(await query(safe.url, 'SHOW fsync')).toEqual([{ fsync: 'on' }]);
    expect(await query(safe.url, 'SHOW synchronous_commit')).toEqual([{ synchronous_commit: 'on' }]);
  });

  test('a database named later is created at the next start', async () => {
    const dir = await freshDir();
    const first = await start({ dir });
    await first.stop();
    const second = await start({ dir, database: 'other' });
    expect(await query(second.url, 'SELECT current_database() AS db')).toEqual([{ db: 'other' }]);
  });

  test('the log names a failed statement but not the row it failed on', async () => {
    const dir = await freshDir();
    const server = await start({ dir });
    await query(server.url, 'CREATE TABLE t (secret text UNIQUE)');
    const twice = "INSERT INTO t SELECT 'top' || '-' || 'secret' FROM generate_series(1, 2)";
    await expect(query(server.url, twice)).rejects.toMatchObject({ code: '23505' });
    const log = await readFile(join(dir, 'postgres.log'), 'utf8');
    expect(log).toContain('duplicate key');
    expect(log).not.toContain('top-secret');
  });
});

describe('attach', () => {
  test('a second start attaches to the live server, and its stop leaves the server running', async () => {
    const dir = await freshDir();
    const owner = await start({ dir });
    const guest = await start({ dir, port: 1 });
    expect(guest).toMatchObject({ attached: true, pid: owner.pid, port: owner.port, url: owner.url });
    await guest.stop();
    expect(await query(owner.url, 'SELECT 1 AS n')).toEqual([{ n: 1 }]);
  });

  test('attaching with a database the live server does not have is refused', async () => {
    const dir = await freshDir();
    await start({ dir });
    await expect(startEmbeddedPostgres({ dir, database: 'absent' })).rejects.toMatchObject(
      failure('database_missing'),
    );
  });

  test('a starter that ends without stop leaves a server to attach to, and is not kept alive by it', async () => {
    const dir = await freshDir();
    const report = await reportOf(spawnStarter(dir, 'exit'));
    const guest = await start({ dir });
    expect(guest).toMatchObject({ attached: true, pid: report.pid });
  });

  test('Ctrl-C and kill -9 of the starter reach only the starter', async () => {
    const dir = await freshDir();
    for (const name of ['SIGINT', 'SIGKILL'] as const) {
      const starter = spawnStarter(dir, 'wait');
      const report = await firstReportOf(starter);
      const exited = once(starter, 'exit');
      process.kill(-(starter.pid as number), name); // the whole group, as a terminal does
      await exited;
      expect(await query(report.url, 'SELECT 1 AS n')).toEqual([{ n: 1 }]);
    }
  });
});

describe('two starters', () => {
  test('in one process: one server, both handles work', async () => {
    const dir = await freshDir();
    const servers = await Promise.all([start({ dir }), start({ dir }), start({ dir })]);
    expect(new Set(servers.map(({ pid }) => pid)).size).toBe(1);
    expect(servers.filter(({ attached }) => !attached)).toHaveLength(1);
    for (const { url } of servers) expect(await query(url, 'SELECT 1 AS n')).toEqual([{ n: 1 }]);
    expect((await readdir(dir)).sort()).toEqual(['cluster', 'postgres.log']);
  });

  test('in four processes on a fresh dir: one server', async () => {
    const dir = await freshDir();
    const starters = [1, 2, 3, 4].map(() => spawnStarter(dir, 'exit'));
    const reports = await Promise.all(starters.map(reportOf));
    expect(new Set(reports.map(({ pid }) => pid)).size).toBe(1);
    expect(reports.filter(({ attached }) => !attached)).toHaveLength(1);
  });
});

describe('after a crash', () => {
  test('kill -9 of the postmaster loses no acknowledged row, and the next start needs no repair', async () => {
    const dir = await freshDir();
    const first = await start({ dir, durable: true });
    await query(first.url, 'CREATE TABLE acknowledged (n int)');
    for (let n = 1; n <= 20; n += 1) await query(first.url, `INSERT INTO acknowledged VALUES (${n})`);
    signal(first.pid, 'SIGKILL');

    // At once: the stale postmaster.pid is there, and the dead server's children may still be.
    const second = await start({ dir, durable: true });
    expect(second.attached).toBe(false);
    expect(await query(second.url, 'SELECT count(*)::int AS n FROM acknowledged')).toEqual([{ n: 20 }]);
    await first.stop();
    expect(isAlive(second.pid)).toBe(true);
  });

  test('a stale postmaster.pid whose pid now is another process does not block the start', async () => {
    const dir = await freshDir();
    const first = await start({ dir });
    await first.stop();
    const dataDir = join(dir, 'cluster/data');
    const identity = await serverIdentity(dataDir);
    const bystander = spawn('sleep', ['60'], { stdio: 'ignore', ...identity });
    const { port } = first;
    const stale = [bystander.pid, dataDir, 1, port, '', '127.0.0.1', '0 0', 'ready   ', ''];
    await writeFile(join(dataDir, 'postmaster.pid'), stale.join('\n'));
    try {
      const second = await start({ dir });
      expect(second.attached).toBe(false);
      expect(await query(second.url, 'SELECT 1 AS n')).toEqual([{ n: 1 }]);
    } finally {
      bystander.kill('SIGKILL');
    }
  });

  test('what a starter left when it died during initdb is removed, and is never taken for a cluster', async () => {
    const dir = await freshDir();
    const gone = spawn('true');
    await once(gone, 'exit');
    await mkdir(join(dir, `cluster.stage-${gone.pid}-0badc0de`, 'data'), { recursive: true });
    const server = await start({ dir });
    expect(await query(server.url, 'SELECT 1 AS n')).toEqual([{ n: 1 }]);
    expect((await readdir(dir)).sort()).toEqual(['cluster', 'postgres.log']);
  });

  test('a starter waits for a server that is shutting down, then starts its own', async () => {
    const dir = await freshDir();
    const first = await start({ dir });
    const stopping = first.stop();
    // Until the server has heard its signal it is as alive as ever; the question is what comes after.
    const isReady = () =>
      readFile(join(dir, 'cluster/data/postmaster.pid'), 'utf8').then(
        (text) => text.includes('ready'),
        () => false,
      );
    while (await isReady()) await sleep(5);
    const second = await start({ dir });
    await stopping;
    await sleep(50);
    expect(second.pid).not.toBe(first.pid);
    expect(await query(second.url, 'SELECT 1 AS n')).toEqual([{ n: 1 }]);
  });
});

describe('errors name the fix', () => {
  test('a busy port', async () => {
    const dir = await freshDir();
    const port = await occupyPort();
    const started = startEmbeddedPostgres({ dir, port, durable: false });
    await expect(started).rejects.toMatchObject(failure('port_in_use'));
    await expect(started).rejects.toThrow(`port ${port} on 127.0.0.1 is in use. Fix: free that port`);
  });

  test('a dir that cannot be made', async () => {
    const file = join(await freshDir(), 'file');
    await writeFile(file, '');
    await expect(startEmbeddedPostgres({ dir: join(file, 'sub') })).rejects.toMatchObject(
      failure('not_writable'),
    );
  });

  test('a cluster folder that points nowhere', async () => {
    const dir = await freshDir();
    await symlink(join(dir, 'moved-away'), join(dir, 'cluster'));
    await expect(startEmbeddedPostgres({ dir, durable: false })).rejects.toMatchObject(
      failure('incomplete_cluster'),
    );
  });

  test('a broken setting: the last lines of the log', async () => {
    const dir = await freshDir();
    const first = await start({ dir });
    await endServer(first.pid);
    await writeFile(join(dir, 'cluster/data/postgresql.auto.conf'), 'no_such_setting = 1\n');
    const started = startEmbeddedPostgres({ dir, durable: false });
    await expect(started).rejects.toMatchObject(failure('did_not_start'));
    await expect(started).rejects.toThrow('unrecognized configuration parameter "no_such_setting"');
  });

  test.each([
    [{ dir: '' }, 'dir is empty'],
    [{ dir: 'x', port: 0 }, 'port 0 is not a TCP port'],
    [{ dir: 'x', database: 'a"b' }, 'is not plain'],
    [{ dir: 'x', prot: 1 }, 'unknown option prot'],
  ])('options %j are refused before anything is touched', async (options, message) => {
    await expect(startEmbeddedPostgres(options)).rejects.toThrow(message);
  });
});
