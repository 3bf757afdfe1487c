import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, inject, it } from 'vitest';
import type { Report } from '../../bench/report.ts';
import { percentile } from '../../bench/summary.ts';

const MAIN = path.resolve(import.meta.dirname, '../../dist/bench/main.js');
const RUNS = 20;
/** Eight rounds, each with processes and a database of its own. */
const TIMEOUT_MS = 480_000;
const RATIOS = [
  'throughput_ratio_1',
  'throughput_ratio_2',
  'cpu_ratio',
  'cpu_ratio_2',
  'p50_ratio',
  'p99_ratio',
] as const;
const ABSOLUTE = ['resumes_per_second_1', 'resumes_per_second_2', 'p50_ms', 'p99_ms', 'state_chars'] as const;

async function bench(args: string[], redisUrl: string) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { ...process.env, REDIS_URL: redisUrl },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit'),
  ]);
  return { stdout, stderr, code: code as number | null };
}

/** Speed is never asserted: this says that the bench runs, and that it counts effects. */
describe('the bench', () => {
  const redisUrl = inject('redisUrl');
  const backend = redisUrl === null ? 'embedded' : 'both';

  it(
    `reports every number, with each effect exactly once (${backend})`,
    async () => {
      const own = `${redisUrl?.replace(/\/\d*$/, '')}/${15 - (Number(process.env.VITEST_POOL_ID ?? '1') % 8)}`;
      const args = ['--runs', String(RUNS), '--quick', '--json', '--backend', backend];
      const { stdout, stderr, code } = await bench(args, redisUrl === null ? '' : own);
      expect(code, stderr).toBe(0);
      const report = JSON.parse(stdout) as Report;
      expect(report.settings).toMatchObject({ runs: RUNS, concurrency: 32, rounds: 1 });
      expect(report.versions).toHaveProperty('bullmq');
      for (const of of [report.redis, report.embedded]) {
        if (of === null) {
          expect(backend).toBe('embedded');
          continue;
        }
        for (const ratio of RATIOS) {
          expect(of, ratio).toHaveProperty(ratio);
        }
        for (const side of [of.safe, of.unsafe]) {
          for (const number of ABSOLUTE) {
            expect(side[number], number).toBeGreaterThan(0);
          }
        }
        const { runs, once: exactlyOnce } = of.effects;
        expect(runs).toBeGreaterThanOrEqual(4 * RUNS);
        expect(exactlyOnce).toBe(runs);
      }
    },
    TIMEOUT_MS,
  );

  it('refuses a wrong number of runs and names the flag', async () => {
    const { stderr, code } = await bench(['--runs', 'many'], '');
    expect(stderr).toContain('--runs');
    expect(stderr).toContain('usage: npm run bench');
    expect(code).toBe(2);
  });

  it('takes nearest-rank percentiles, and the mean of the two middle values as an even median', () => {
    expect(percentile([4, 1, 3, 2], 50)).toBe(2.5);
    expect(percentile([3, 1, 2], 50)).toBe(2);
    expect(percentile([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 99)).toBe(10);
    expect(percentile([], 50)).toBeNaN();
  });
});
