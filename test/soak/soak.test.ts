/** The soak itself, small and hurried; and that its verdict overlooks nothing. `npm run soak` runs the real one. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { openLane } from '../../crash-matrix/lane.ts';
import { paceOf } from '../../crash-matrix/pace.ts';
import { startServers } from '../../crash-matrix/servers.ts';
import { withCleanup } from '../../lab/cleanup.ts';
import { Crowd } from '../../soak/crowd.ts';
import { growthOf } from '../../soak/memory.ts';
import { codeOf } from '../../soak/report.ts';
import { Verdict } from '../../soak/verdict.ts';

const MAIN = path.join(import.meta.dirname, '../../dist/soak/main.js');

type Ran = { code: number | null; stdout: string; stderr: string };

function soak(...args: string[]): Promise<Ran> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [MAIN, ...args], (_error, stdout, stderr) => {
      resolve({ code: child.exitCode, stdout, stderr });
    });
  });
}

describe('the soak', () => {
  it('ends well when nothing happened twice, and says what went wrong meanwhile', async () => {
    const ran = await soak('--runs', '30', '--backend', 'embedded', '--chaos-ms', '150', '--json');
    expect(ran.code, ran.stderr).toBe(0);
    const result = JSON.parse(ran.stdout);
    expect(result).toMatchObject({ runs: 30, checked: 30, violations: [] });
    const { kills, duplicates, flushes, connectionDrops, providerFaults } = result;
    expect(Math.min(kills, duplicates, flushes, connectionDrops, providerFaults)).toBeGreaterThanOrEqual(0);
    expect(kills + duplicates + flushes + connectionDrops + providerFaults).toBeGreaterThan(0);
    expect(result.memory.map(({ role }: { role: string }) => role).sort()).toEqual([
      'api',
      'reconciler',
      'relay',
      'worker',
    ]);
  }, 90_000);

  it('refuses a setting that it cannot use', async () => {
    expect(await soak('--backend', 'paper')).toMatchObject({ code: 2, stdout: '' });
    expect(await soak('--runs', 'many')).toMatchObject({ code: 2, stdout: '' });
  });
});

describe('the verdict of the soak', () => {
  it('names an effect that happened twice, a run that did not end, and a process that ended by itself', async () => {
    await withCleanup(async (cleanup) => {
      const servers = await startServers(cleanup, 'embedded');
      const lane = await openLane(cleanup, servers, { index: 0, pace: paceOf(3) });
      cleanup.defer(() => lane.close());
      const none = new AbortController();
      const crowd = new Crowd(lane, { runs: 2, width: 2, random: () => 0.99, stopping: none.signal });
      const verdict = new Verdict(lane, crowd);
      await crowd.startAll();
      const over = new AbortController();
      const deciding = crowd.decideAll(over.signal);
      const checkUntil = async (holds: () => boolean): Promise<void> => {
        let ended: Set<string> = new Set();
        for (let look = 0; look < 300 && !holds(); look += 1) {
          ended = await verdict.checkOnce(ended);
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
      };
      await checkUntil(() => verdict.checked === 2);
      over.abort();
      await deciding;
      expect(verdict.violations).toEqual([]);

      const { rows } = await lane.admin.pool.query<{ id: string; tenant: string }>(
        'select id, tenant from countersign.actions limit 1',
      );
      const [action] = rows;
      const again = { mark: action?.tenant ?? '', to: 'a', amount: 1 };
      await lane.provider.client.create('lookup', again, { idempotencyKey: action?.id });
      await lane.provider.client.create('lookup', again, { idempotencyKey: action?.id });
      crowd.wishes.set('soak-3', { tenant: 'soak-3', workflow: 'lookup', word: 'approve' });
      const [relay] = lane.fleet.all('relay');
      relay?.signal('SIGKILL');
      await relay?.ended;
      await verdict.finish();
      const found = verdict.violations.flatMap((violation) => violation.found).join('\n');
      expect(found).toMatch(new RegExp(`I4: \\d effects under the key ${action?.id}`));
      expect(found).toMatch(/I9: the run of soak-3 has not ended/);
      expect(found).toMatch(/I9: relay \d+ ended by itself/);
    });
  }, 90_000);
});

describe('the exit code of the soak', () => {
  const flat = { role: 'worker' as const, pid: 1, samples: [40], growth: 0, flat: true };

  it('is 1 for a violation and for memory that grows, and 0 otherwise', () => {
    expect(codeOf({ violations: [], memory: [flat] })).toBe(0);
    expect(codeOf({ violations: [{ run: 'soak-1', found: ['I4: 2 effects'] }], memory: [flat] })).toBe(1);
    expect(codeOf({ violations: [], memory: [flat, { ...flat, growth: 20, flat: false }] })).toBe(1);
  });
});

describe('the memory rule of the soak', () => {
  const steady = Array.from({ length: 40 }, (_, index) => 40 + (index % 3));

  it.each([
    ['too short to tell', steady.slice(0, 20), null],
    ['steady, after warming up', [10, 20, 30, ...steady], 0],
    ['steady, but for one full inbox', [...steady.slice(0, 39), 400], 0],
    ['growing by one MiB each sample', steady.map((value, index) => value + index), 20],
  ])('%s', (_name, samples, expected) => {
    const growth = growthOf(samples);
    if (expected === null) {
      expect(growth).toBeNull();
    } else {
      expect(Math.abs((growth ?? 99) - expected)).toBeLessThanOrEqual(2);
    }
  });
});
