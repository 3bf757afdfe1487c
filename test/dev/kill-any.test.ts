/** kill -9 of every process that `dev` runs, one after the other and all at once, each while a run is in the middle. */
import { rm } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { releaseClient } from '../../examples/release-service/index.ts';
import { isAlive } from '../../src/fleet-file.ts';
import { type Dev, makeHome, startDev, terminal } from './dev-fleet.ts';
import { processesOf, until } from './processes.ts';

let home: string;
let dev: Dev;

beforeAll(async () => {
  home = await makeHome();
  dev = await startDev(home);
});
afterAll(async () => {
  const pids = await terminal(home)
    .fleet()
    .then(({ pids }) => pids)
    .catch(() => ({}));
  dev?.child.kill('SIGINT');
  await dev?.ended;
  for (const pid of Object.values(pids)) {
    if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  }
  await rm(home, { recursive: true, force: true });
});

const GATE = 'until the kill';

/** A run whose effect the provider has committed, while its answer is held back: nobody on our side knows of it yet. */
async function runInTheMiddle(release: string): Promise<string> {
  const { fleet, startRelease, approve } = terminal(home);
  const provider = releaseClient((await fleet()).providerUrl);
  const { runId, approvalId } = await startRelease(release);
  await provider.holdGate(GATE);
  await provider.fault({
    kind: 'releases',
    fault: { type: 'wait_for_gate', gate: GATE, when: 'after_commit' },
  });
  await approve(approvalId);
  await until('the provider to commit', async () => {
    const [action] = (await actionsOf(runId)) ?? [];
    return action !== undefined && ((await provider.counts()).byKey[action.id]?.commits ?? 0) === 1;
  });
  return runId;
}

async function actionsOf(runId: string): Promise<{ id: string; happened: string }[]> {
  const explained = await terminal(home).ours('runs', 'explain', runId);
  return explained.json<{ actions: { id: string; happened: string }[] }>().actions;
}

/** Lets go whatever still waits, wherever the provider is now. */
async function openGate(): Promise<void> {
  const { providerUrl } = await terminal(home).fleet();
  await releaseClient(providerUrl)
    .openGate(GATE)
    .catch(() => undefined);
}

async function expectOneEffect(runId: string): Promise<void> {
  const { fleet, untilCompleted } = terminal(home);
  await untilCompleted(runId, 60_000);
  const [action] = await actionsOf(runId);
  const { byKey } = await releaseClient((await fleet()).providerUrl).counts();
  expect(byKey[action?.id ?? '']?.commits).toBe(1);
  expect(action?.happened).toBe('yes');
}

describe('kill -9', () => {
  it('of any process that dev runs, in the middle of a run: it comes back, and there is one effect', async () => {
    const { fleet } = terminal(home);
    const names = Object.keys((await fleet()).pids).filter((name) => name !== 'dev');
    expect(names.length).toBeGreaterThan(6);
    for (const name of names) {
      const runId = await runInTheMiddle(`v1.0.${names.indexOf(name)}`);
      const before = (await fleet()).pids[name] ?? 0;
      process.kill(before, 'SIGKILL');
      await openGate();
      await until(`${name} to be back`, async () => {
        const now = (await fleet()).pids[name] ?? before;
        return now !== before && isAlive(now);
      });
      await expectOneEffect(runId);
    }
  }, 300_000);

  it('of dev itself, in the middle of a run: starting it again is enough', async () => {
    const runId = await runInTheMiddle('v2.0.0');
    dev.child.kill('SIGKILL');
    await dev.ended;
    dev = await startDev(home);
    await expectOneEffect(runId);
  }, 120_000);

  it.each([
    ['dev first', true],
    ['dev last', false],
  ])(
    'of everything at once, %s, in the middle of a run: starting dev again is enough',
    async (_, devFirst) => {
      const runId = await runInTheMiddle(devFirst ? 'v3.0.0' : 'v3.0.1');
      const { pids } = await terminal(home).fleet();
      const others = Object.keys(pids).filter((name) => name !== 'dev');
      for (const name of devFirst ? ['dev', ...others] : [...others, 'dev']) {
        process.kill(pids[name] ?? 0, 'SIGKILL');
      }
      await dev.ended;
      dev = await startDev(home);
      await expectOneEffect(runId);
    },
    120_000,
  );

  it('and nothing that was killed, or came back, is left running', async () => {
    dev.child.kill('SIGINT');
    expect(await dev.ended).toBe(0);
    await until('the last children to go', () => processesOf(home).length === 0);
  }, 60_000);
});
