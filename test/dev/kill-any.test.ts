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

const GATE = 'until-the-kill';

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

/** The name of the process that has claimed the run. */
async function holderOf(runId: string): Promise<string> {
  const { ours, fleet } = terminal(home);
  const { claims } = (await ours('runs', 'show', runId)).json<{ claims: { workerName: string }[] }>();
  const pid = Number(claims.at(-1)?.workerName.split('/').at(-1));
  const [name] = Object.entries((await fleet()).pids).find(([, known]) => known === pid) ?? [];
  expect(name).toMatch(/^worker-/);
  return name ?? '';
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

function shuffled<T>(items: T[]): T[] {
  return items
    .map((item) => ({ item, lot: Math.random() }))
    .toSorted((one, other) => one.lot - other.lot)
    .map(({ item }) => item);
}

describe('kill -9', () => {
  it('of any process that dev runs, in the middle of a run: it comes back, and there is one effect', async () => {
    const { fleet } = terminal(home);
    const names = Object.keys((await fleet()).pids).filter((name) => name !== 'dev');
    expect(names.length).toBeGreaterThan(6);
    for (const name of names) {
      const runId = await runInTheMiddle(`v1.0.${names.indexOf(name)}`);
      // Of the workers, the one that carries this very run.
      const victim = name.startsWith('worker-') ? await holderOf(runId) : name;
      const before = (await fleet()).pids[victim] ?? 0;
      process.kill(before, 'SIGKILL');
      await openGate();
      await until(`${victim} to be back`, async () => {
        const now = (await fleet()).pids[victim] ?? before;
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
    ['dev first', (names: string[]) => ['dev', ...names]],
    ['dev last', (names: string[]) => [...names, 'dev']],
    ['in any order', (names: string[]) => shuffled([...names, 'dev'])],
  ])(
    'of everything at once, %s, in the middle of a run: starting dev again is enough',
    async (_, order) => {
      const runId = await runInTheMiddle('v3.0.0');
      const { dev: supervisor, ...others } = (await terminal(home).fleet()).pids;
      const pids: Record<string, number> = { ...others, dev: supervisor ?? 0 };
      const names = order(Object.keys(others));
      for (const name of names) {
        // One that was started again in between has another pid: a kill of nobody is no failure.
        if (isAlive(pids[name] ?? 0)) process.kill(pids[name] ?? 0, 'SIGKILL');
      }
      await dev.ended;
      dev = await startDev(home);
      await expectOneEffect(runId).catch((error: unknown) => {
        throw new Error(`killed in the order ${names.join(', ')}`, { cause: error });
      });
    },
    120_000,
  );

  it('and nothing that was killed, or came back, is left running', async () => {
    dev.child.kill('SIGINT');
    expect(await dev.ended).toBe(0);
    await until('the last children to go', () => processesOf(home).length === 0);
  }, 60_000);
});
