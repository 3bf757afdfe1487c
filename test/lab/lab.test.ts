import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, inject, it } from 'vitest';

const MAIN = path.resolve(import.meta.dirname, '../../dist/lab/main.js');
const PROMISED = {
  before_approval: 0,
  after_resume: 1,
  after_rejection: 0,
  sdk_alone_replayed_twice: 2,
  with_ledger_replayed_twice: 1,
};
/** It starts a dozen processes and makes a Postgres cluster. */
const TIMEOUT_MS = 300_000;

function startLab(args: string[], env: Record<string, string> = {}) {
  return spawn(process.execPath, [MAIN, ...args], {
    env: { ...process.env, REDIS_URL: '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

async function lab(args: string[], env: Record<string, string> = {}) {
  const child = startLab(args, env);
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit'),
  ]);
  return { stdout, stderr, code: code as number | null };
}

describe('the lab', () => {
  it(
    'counts what we promise at the provider, on the embedded default',
    async () => {
      const { stdout, stderr, code } = await lab(['--json']);
      expect(stderr).toBe('');
      expect(JSON.parse(stdout)).toEqual(PROMISED);
      expect(code).toBe(0);
    },
    TIMEOUT_MS,
  );

  const redisUrl = inject('redisUrl');
  it.skipIf(redisUrl === null)(
    `counts the same on Redis, and leaves no key behind${redisUrl === null ? `: ${inject('redisSkipReason')}` : ''}`,
    async () => {
      // A database that no other test of this run uses; the lab refuses one with keys in it, so twice proves both.
      const own = `${redisUrl?.replace(/\/\d*$/, '')}/${15 - (Number(process.env.VITEST_POOL_ID ?? '1') % 8)}`;
      for (const args of [['--json', '--redis', own], ['--json']]) {
        const { stdout, code } = await lab(args, { REDIS_URL: own });
        expect(JSON.parse(stdout)).toEqual(PROMISED);
        expect(code).toBe(0);
      }
    },
    TIMEOUT_MS,
  );

  it('refuses an unknown flag and says how it is used', async () => {
    const { stdout, stderr, code } = await lab(['--jsn']);
    expect(stdout).toBe('');
    expect(stderr).toContain('usage: npm run lab');
    expect(code).toBe(2);
  });

  it(
    'Ctrl-C takes every process and file along',
    async () => {
      const folder = await mkdtemp(path.join(tmpdir(), `countersign-test-${process.pid}-lab-`));
      try {
        const child = startLab(['--json'], { TMPDIR: folder });
        const exited = once(child, 'exit');
        const postmaster = await postmasterUnder(folder);
        child.kill('SIGINT');
        expect((await exited)[0]).toBe(130);
        expect(() => process.kill(postmaster, 0)).toThrow('ESRCH');
        expect((await readdir(folder)).filter((name) => name.startsWith('countersign-'))).toEqual([]);
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
    TIMEOUT_MS,
  );
});

/** Waits until the lab's Postgres serves, so that there is something to take along. */
async function postmasterUnder(folder: string): Promise<number> {
  for (;;) {
    for (const name of await readdir(folder)) {
      const file = path.join(folder, name, 'cluster/data/postmaster.pid');
      const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n');
      if (lines[7]?.trim() === 'ready') {
        return Number(lines[0]);
      }
    }
    await sleep(50);
  }
}
