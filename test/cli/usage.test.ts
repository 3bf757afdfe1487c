import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KeyRing } from '../../src/seal/index.ts';
import { cli, MAIN, spawnCli } from './run-cli.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'countersign-usage-'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('a command line that is wrong', () => {
  it.each([
    [[], /Say what to do: demo, dev, start/],
    [['strat'], /Unknown command 'strat'\. Did you mean start\?/],
    [['runs', 'lst'], /Unknown command 'runs lst'\. Did you mean list\?/],
    [['approvals', 'aprove', 'x'], /Did you mean approve\?/],
    [['runs', '--stat', 'x'], /Unknown option '--stat'\. Did you mean --status\?/],
    [['--jsn', 'runs'], /Unknown option '--jsn'\. Did you mean --json\?/],
    [['start'], /Missing required argument 'WORKFLOW'/],
    [['start', 'a', 'b'], /Too many arguments/],
    [['start', 'a', '--context', '[1]'], /--context.*must be a JSON object/],
    [['start', 'a', '--timeout', 'soon'], /--timeout.*duration/],
    [['approvals', 'reject', 'x'], /Required option '--words/],
    [['approvals', 'approve', 'x', '--fingerprint', 'abc'], /64 hex digits/],
    [['deliver', 'x'], /Required option '--duplicate/],
    [['deliver', 'x', '--duplicate', '1001'], /whole number from 1 to 1000/],
    [['worker', '--concurrency', '0'], /whole number from 1 to 1000/],
    [['worker', '--ttl', '10ms'], /--ttl.*at least 1s/],
    [['keys', 'token', '--as', 'x', '--roles', 'boss'], /producer, reviewer, operator/],
  ])('says what is wrong and what was meant, and exits 2: %j', async (args, expected) => {
    const plain = await cli(args);
    expect(plain.code).toBe(2);
    expect(plain.stdout).toBe('');
    expect(plain.stderr).toMatch(/^error USAGE: .*See --help\.\n$/);
    expect(plain.stderr).toMatch(expected);
    const json = await cli([...args, '--json']);
    expect(json.code).toBe(2);
    expect(json.json()).toMatchObject({ error: { code: 'USAGE', message: expect.stringMatching(expected) } });
  });

  it('does not repeat what was typed as a value', async () => {
    const { stderr } = await cli(['start', 'a', '--context', '{"apiKey":"sk-hunter2"']);
    expect(stderr).not.toContain('hunter2');
  });
});

const keys = KeyRing.generate();
const nowhere = {
  DATABASE_URL: 'postgres://x:secret@127.0.0.1:1/x',
  COUNTERSIGN_STATE_KEYS: keys.state,
  COUNTERSIGN_REVIEW_KEYS: keys.review,
};

describe('a place that is wrong', () => {
  it('none at all: the error names both ways to have one, and the exit code is 1', async () => {
    const result = await cli(['runs']);
    expect(result.code).toBe(1);
    expect(result.stderr).toMatch(
      /^error CONFIG_INVALID: .*set DATABASE_URL, or run `countersign dev` in another terminal/,
    );
  });

  it.each([
    [['runs']],
    [['migrate']],
    [['approvals', 'show', '00000000-0000-4000-8000-000000000000']],
    [['relay']],
  ])('an unreachable Postgres: the exit code is 3, for it may come back: %j', async (args) => {
    const result = await cli([...args, '--json'], nowhere);
    expect(result.code).toBe(3);
    expect(result.json()).toMatchObject({ error: { code: 'POSTGRES_UNAVAILABLE' } });
    expect(result.stdout + result.stderr).not.toContain('secret');
  });

  it('an unreachable Redis: the same', async () => {
    const result = await cli(['deliver', 'x', '--duplicate', '1', '--json'], {
      ...nowhere,
      REDIS_URL: 'redis://:secret@127.0.0.1:1',
    });
    expect(result.code).toBe(3);
    expect(result.json()).toMatchObject({ error: { code: 'REDIS_UNAVAILABLE' } });
    expect(result.stdout + result.stderr).not.toContain('secret');
  });

  it.each([
    ['missing.ts', null, /does not exist/],
    ['throws.mjs', 'throw new Error("boom")', /threw Error/],
    ['empty.mjs', 'export const x = 1', /exports no workflow/],
  ])('a workflows file that does not load: %s', async (name, text, why) => {
    const file = path.join(folder, name);
    if (text !== null) {
      await writeFile(file, text);
    }
    const result = await cli(['worker', '--workflows', file, '--json'], nowhere);
    expect(result.code).toBe(1);
    expect(result.json()).toMatchObject({
      error: { code: 'WORKFLOWS_NOT_LOADED', message: expect.stringMatching(why) },
    });
  });

  it('missing keys: the variable and the command that makes them', async () => {
    const result = await cli(['worker', '--workflows', MAIN], { DATABASE_URL: nowhere.DATABASE_URL });
    expect(result.code).toBe(1);
    expect(result.stderr).toMatch(/COUNTERSIGN_STATE_KEYS.*countersign keys generate/);
  });
});

describe('what needs no place', () => {
  it('keys generate prints both specs, fit to be used', async () => {
    const spec = (await cli(['keys', 'generate', '--json'])).json<{ state: string; review: string }>();
    expect(KeyRing.parse(spec).has('state')).toBe(true);
    const { stdout } = await cli(['keys']);
    expect(stdout).toMatch(/^COUNTERSIGN_STATE_KEYS=state-\S+\nCOUNTERSIGN_REVIEW_KEYS=review-\S+\n$/);
  });

  it('keys token prints a token and the entry that lets it in', async () => {
    const made = await cli([
      'keys',
      'token',
      '--as',
      'rita',
      '--roles',
      'reviewer',
      '--tenant',
      'acme',
      '--json',
    ]);
    const { token, entry } = made.json<{ token: string; entry: { sha256: string } }>();
    expect(entry).toEqual({
      sha256: createHash('sha256').update(token).digest('hex'),
      tenant: 'acme',
      subject: 'rita',
      roles: ['reviewer'],
    });
  });

  it('--help and --version answer on stdout and exit 0', async () => {
    const help = await cli(['--help']);
    expect(help.code).toBe(0);
    expect(help.stdout).toContain('Usage: countersign');
    expect((await cli(['start', '--help'])).stdout).toContain('--wait');
    expect((await cli(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});

describe('the process', () => {
  it('keeps stdout for the answer, stderr for the error, and ends with the exit code', async () => {
    const good = await spawnCli(['keys', '--json']);
    expect(good).toMatchObject({ code: 0, stderr: '' });
    expect(Object.keys(good.json())).toEqual(['state', 'review']);
    const bad = await spawnCli(['runs', 'shw']);
    expect(bad).toMatchObject({ code: 2, stdout: '', stderr: expect.stringMatching(/^error USAGE: /) });
    const away = await spawnCli(['approvals'], nowhere);
    expect(away).toMatchObject({ code: 3, stderr: expect.stringMatching(/^error POSTGRES_UNAVAILABLE: /) });
  });
});
