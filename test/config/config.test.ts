import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig, readSettings, requiredTokens, reviewKeys, workerKeys } from '../../src/config.ts';
import {
  type FleetFile,
  fleetFilePath,
  readFleetFile,
  removeFleetFile,
  writeFleetFile,
} from '../../src/fleet-file.ts';
import { KeyRing } from '../../src/seal/index.ts';

let home: string;
const keys = KeyRing.generate();

beforeAll(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'countersign-config-'));
});
afterAll(() => rm(home, { recursive: true }));

const fleetOf = (dev: number): FleetFile => ({
  version: 1,
  databaseUrl: 'postgres://dev@127.0.0.1:5000/countersign',
  redisUrl: null,
  keys,
  apiUrl: 'http://127.0.0.1:7300',
  providerUrl: 'http://127.0.0.1:7400',
  tokens: [{ token: 't', subject: 'dev', roles: ['reviewer'] }],
  pids: { dev },
});

describe('the environment', () => {
  it('compiles to settings with nothing undefined', () => {
    const settings = readSettings({});
    expect(Object.values(settings)).not.toContain(undefined);
    expect(settings).toMatchObject({
      databaseUrl: null,
      redisUrl: null,
      tenant: 'default',
      home: path.resolve('.countersign'),
      apiTokens: [],
      host: '127.0.0.1',
      port: null,
      logLevel: 'info',
      concurrency: 8,
      holdTtlMs: 30_000,
      exitWithParent: false,
    });
  });

  it('counts an empty variable as not set', () => {
    expect(readSettings({ DATABASE_URL: '', REDIS_URL: '', PORT: '', COUNTERSIGN_API_TOKENS: '' })).toEqual(
      readSettings({}),
    );
  });

  it.each([
    ['DATABASE_URL', 'mysql://user:hunter2@host/db'],
    ['COUNTERSIGN_NOTIFY_URL', 'https://user:hunter2@host/hook'],
    ['COUNTERSIGN_NOTIFY_URL', 'ftp://hunter2'],
    ['COUNTERSIGN_NOTIFY_SECRET', 'hunter2'],
    ['DATABASE_URL', 'hunter2'],
    ['REDIS_URL', 'http://hunter2'],
    ['PORT', '65536'],
    ['PORT', '-1'],
    ['HOST', 'a b'],
    ['LOG_LEVEL', 'loud'],
    ['COUNTERSIGN_CONCURRENCY', '0'],
    ['COUNTERSIGN_QUEUE', 'mine:yours'],
    ['COUNTERSIGN_HOLD_TTL', '30'],
    ['COUNTERSIGN_HOLD_TTL', '10ms'],
    ['COUNTERSIGN_PATIENCE', 'soon'],
    ['COUNTERSIGN_TENANT', 'x'.repeat(513)],
    ['COUNTERSIGN_EXIT_WITH_PARENT', 'yes'],
    ['COUNTERSIGN_API_TOKENS', 'hunter2'],
    ['COUNTERSIGN_API_TOKENS', '{}'],
    ['COUNTERSIGN_API_TOKENS', '[{"sha256":"hunter2","tenant":"a","subject":"b","roles":["reviewer"]}]'],
    [
      'COUNTERSIGN_API_TOKENS',
      `[{"sha256":"${'0'.repeat(64)}","tenant":"a","subject":"b","roles":["boss"]}]`,
    ],
    ['COUNTERSIGN_API_TOKENS', `[{"sha256":"${'0'.repeat(64)}","tenant":"a","subject":"b","roles":[]}]`],
  ])('names %s when it is malformed (%s), and does not repeat its value', (variable, value) => {
    const refused = expect.objectContaining({ code: 'CONFIG_INVALID', details: { field: variable } });
    expect(() => readSettings({ [variable]: value })).toThrow(refused);
    try {
      readSettings({ [variable]: value });
    } catch (error) {
      expect(String(error)).toContain(variable);
      expect(String(error)).not.toContain('hunter2');
    }
  });

  it('refuses a variable that is a slip of the finger away from one of ours, and leaves strangers alone', () => {
    expect(() => readSettings({ COUNTERSIGN_TENNANT: 'acme' })).toThrow(/did you mean COUNTERSIGN_TENANT\?/);
    expect(readSettings({ COUNTERSIGN_SERVICE_PORT_HTTP: '80' }).tenant).toBe('default');
  });
});

describe('the place to work on', () => {
  it('is asked for, with both ways to name it, when there is none', async () => {
    await expect(readConfig({ COUNTERSIGN_HOME: home })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/set DATABASE_URL, or run `countersign dev` in another terminal/),
    });
  });

  it('is the running dev fleet when DATABASE_URL is not set, or names its database', async () => {
    await writeFleetFile(home, fleetOf(process.pid));
    const { databaseUrl } = fleetOf(1);
    for (const env of [{}, { DATABASE_URL: databaseUrl }]) {
      const config = await readConfig({ COUNTERSIGN_HOME: home, ...env });
      expect(config).toMatchObject({ databaseUrl, redisUrl: null, reviewKeySpec: keys.review });
      expect(config.fleet?.apiUrl).toBe('http://127.0.0.1:7300');
      expect(workerKeys(config).has('state')).toBe(true);
    }
  });

  it('is DATABASE_URL alone, with no key of the dev fleet, when that is another database', async () => {
    await writeFleetFile(home, fleetOf(process.pid));
    const config = await readConfig({ COUNTERSIGN_HOME: home, DATABASE_URL: 'postgres://other/db' });
    expect(config).toMatchObject({ databaseUrl: 'postgres://other/db', reviewKeySpec: null, fleet: null });
  });

  it('is refused when REDIS_URL contradicts the dev fleet’s queue', async () => {
    await writeFleetFile(home, fleetOf(process.pid));
    const asked = readConfig({ COUNTERSIGN_HOME: home, REDIS_URL: 'redis://elsewhere:6379' });
    await expect(asked).rejects.toMatchObject({ code: 'CONFIG_INVALID', details: { field: 'REDIS_URL' } });
  });

  it('is not a dev fleet whose supervisor has died', async () => {
    await writeFleetFile(home, fleetOf(2 ** 22 + 1));
    await expect(readConfig({ COUNTERSIGN_HOME: home })).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  });
});

describe('dev.json', () => {
  it('is readable by its owner alone, and goes with its own supervisor only', async () => {
    await writeFleetFile(home, fleetOf(process.pid));
    expect((await stat(fleetFilePath(home))).mode & 0o777).toBe(0o600);
    await removeFleetFile(home, process.pid + 1);
    expect(await readFleetFile(home)).toEqual(fleetOf(process.pid));
    await removeFleetFile(home, process.pid);
    expect(await readFleetFile(home)).toBeNull();
  });

  it.each(['', '{', '[]', '{"version":2}'])('that is not ours is refused by name: %j', async (text) => {
    await writeFile(fleetFilePath(home), text);
    await expect(readConfig({ COUNTERSIGN_HOME: home })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      details: { field: fleetFilePath(home) },
    });
    expect(await readFile(fleetFilePath(home), 'utf8')).toBe(text);
    await rm(fleetFilePath(home));
  });
});

describe('keys and tokens', () => {
  const settings = (env: NodeJS.ProcessEnv) => readSettings(env);

  it('that are missing are named, with the command that makes them', () => {
    const review = { COUNTERSIGN_REVIEW_KEYS: keys.review };
    expect(() => workerKeys(settings({ COUNTERSIGN_STATE_KEYS: keys.state }))).toThrow(
      /COUNTERSIGN_REVIEW_KEYS/,
    );
    expect(() => workerKeys(settings(review))).toThrow(/COUNTERSIGN_STATE_KEYS.*countersign keys generate/);
    expect(() => requiredTokens(settings({}))).toThrow(/COUNTERSIGN_API_TOKENS.*countersign keys token/);
  });

  it('of the api never hold the state key, even when the environment does', () => {
    const both = settings({ COUNTERSIGN_STATE_KEYS: keys.state, COUNTERSIGN_REVIEW_KEYS: keys.review });
    expect(reviewKeys(both).has('state')).toBe(false);
    expect(reviewKeys(both).has('review')).toBe(true);
  });

  it('that are malformed are refused without being quoted', () => {
    const bad = settings({ COUNTERSIGN_REVIEW_KEYS: 'r1:hunter2' });
    expect(() => reviewKeys(bad)).toThrow(expect.objectContaining({ code: 'KEY_INVALID' }));
    try {
      reviewKeys(bad);
    } catch (error) {
      expect(String(error)).not.toContain('hunter2');
    }
  });
});
