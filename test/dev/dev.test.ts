import { rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fleetFilePath, isAlive, readFleetFile } from '../../src/fleet-file.ts';
import { type Dev, makeHome, startDev, terminal } from './dev-fleet.ts';
import { processesOf, until } from './processes.ts';

let home: string;
let dev: Dev | undefined;

beforeAll(async () => {
  home = await makeHome();
});
afterAll(async () => {
  dev?.child.kill('SIGKILL');
  await rm(home, { recursive: true, force: true });
});

const fleet = () => terminal(home).fleet();
const ours = (...args: string[]) => terminal(home).ours(...args);
const deployOnce = (release: string) => terminal(home).deployOnce(release);

describe('dev', () => {
  it('tells other commands where it is, and nobody else its secrets', async () => {
    dev = await startDev(home);
    const { pids } = await fleet();
    expect(Object.keys(pids).sort()).toEqual([
      'api',
      'dev',
      'postgres',
      'provider',
      'reconciler',
      'relay',
      'worker-1',
      'worker-2',
    ]);
    for (const file of [fleetFilePath(home), path.join(home, 'secrets.json')]) {
      expect((await stat(file)).mode & 0o777).toBe(0o600);
    }
    await deployOnce('v1.0.0');
  }, 90_000);

  it('refuses to run twice in one home', async () => {
    await fleet();
    const second = await ours('dev');
    expect(second).toMatchObject({ code: 1 });
    expect(second.json()).toMatchObject({
      error: { code: 'DEV_ALREADY_RUNNING', details: { pid: dev?.child.pid } },
    });
  });

  it('starts again whatever is killed, and says so', async () => {
    const before = (await fleet()).pids;
    for (const name of ['worker-1', 'relay', 'api', 'provider']) {
      process.kill(before[name] ?? 0, 'SIGKILL');
    }
    await until('all four to be back', async () => {
      const { pids } = await fleet();
      return ['worker-1', 'relay', 'api', 'provider'].every(
        (name) => pids[name] !== undefined && pids[name] !== before[name],
      );
    });
    expect(dev?.notes()).toMatch(/worker-1 +\| pid \d+ was ended by SIGKILL; starting another/);
    await deployOnce('v1.0.1');
    const { providerUrl } = await fleet();
    const counts = (await (await fetch(`${providerUrl}/counts`)).json()) as { commits: number };
    expect(counts.commits).toBe(2);
  }, 90_000);

  it('killed itself, takes its processes along, and the next one takes over what is left', async () => {
    const { pids } = await fleet();
    dev?.child.kill('SIGKILL');
    await dev?.ended;
    const { postgres, ...children } = pids;
    await until('the children to notice', () => Object.values(children).every((pid) => !isAlive(pid)));
    expect(isAlive(postgres ?? 0)).toBe(true);
    dev = await startDev(home);
    expect(dev.notes()).toMatch(/left over and taken over/);
    await deployOnce('v1.0.2');
  }, 120_000);

  it('ends with Ctrl-C, exit code 0, and nothing is left running', async () => {
    dev?.child.kill('SIGINT');
    expect(await dev?.ended).toBe(0);
    await until('Postgres’ last children to go', () => processesOf(home).length === 0);
    expect(await readFleetFile(home)).toBeNull();
    dev = undefined;
  }, 60_000);
});
