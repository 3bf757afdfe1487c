import { type ChildProcess, spawn } from 'node:child_process';
import { chmod, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FleetFile, fleetFilePath, isAlive, readFleetFile } from '../../src/fleet-file.ts';
import { cleanEnv, cli, MAIN } from '../cli/run-cli.ts';
import { processesOf, until } from './processes.ts';

let home: string;
let dev: Dev | undefined;

beforeAll(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'countersign-dev-test-'));
  // As root, Postgres runs as somebody else, and would keep its cluster elsewhere if it could not come through here.
  await chmod(home, 0o711);
});
afterAll(async () => {
  dev?.child.kill('SIGKILL');
  await rm(home, { recursive: true, force: true });
});

type Dev = { child: ChildProcess; ended: Promise<number | null>; notes: () => string };

/** Starts `dev --json` and waits for its ready line. */
async function startDev(): Promise<Dev> {
  const child = spawn(process.execPath, [MAIN, 'dev', '--json'], {
    env: cleanEnv({ COUNTERSIGN_HOME: home, PORT: '0' }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let notes = '';
  child.stderr.on('data', (chunk: Buffer) => {
    notes += chunk.toString();
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  const line = new Promise<string>((resolve) =>
    createInterface({ input: child.stdout }).once('line', resolve),
  );
  const first = await Promise.race([line, ended]);
  if (typeof first !== 'string') {
    throw new Error(`dev ended with ${first}: ${notes}`);
  }
  expect(JSON.parse(first)).toMatchObject({ event: 'ready', home });
  return { child, ended, notes: () => notes };
}

async function fleet(): Promise<FleetFile> {
  const found = await readFleetFile(home);
  if (found === null) {
    throw new Error('no dev fleet');
  }
  return found;
}

const ours = (...args: string[]) => cli([...args, '--json'], { COUNTERSIGN_HOME: home });

/** From a prompt to the effect, with nothing but what a person would type. */
async function deployOnce(release: string) {
  const started = (
    await ours('start', 'release', '--input', `deploy ${release} to production`, '--wait')
  ).json<{
    runId: string;
    approvals: { id: string }[];
  }>();
  await ours('approvals', 'approve', started.approvals[0]?.id ?? '', '--as', 'alice');
  await until('the run to complete', async () => {
    const run = (await ours('runs', 'show', started.runId)).json();
    return run.status === 'completed';
  });
  return started.runId;
}

describe('dev', () => {
  it('tells other commands where it is, and nobody else its secrets', async () => {
    dev = await startDev();
    const { pids } = await fleet();
    expect(Object.keys(pids).sort()).toEqual([
      'api',
      'dev',
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
    await until('the children to notice', () => Object.values(pids).every((pid) => !isAlive(pid)));
    expect(processesOf(home).length).toBeGreaterThan(0); // Postgres lives on
    dev = await startDev();
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
