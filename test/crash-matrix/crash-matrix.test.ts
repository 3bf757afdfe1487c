/** A part of the crash matrix that leaves out no operation and no fault; `npm run crash-matrix` runs all of it. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type MatrixResult, runMatrix } from '../../crash-matrix/matrix.ts';
import { reportOf } from '../../crash-matrix/report.ts';
import { SCENARIOS } from '../../crash-matrix/scenarios.ts';
import { INJECTED, type Schedule, scheduleNamed } from '../../crash-matrix/schedule.ts';
import { startServers } from '../../crash-matrix/servers.ts';
import { withCleanup } from '../../lab/cleanup.ts';

/** Other tests run beside this one. */
const PACE = 1.5;
const LIMIT_MS = 300_000;

/** Protocol functions that no clean run of a scenario reaches, and what tests them instead. */
const NOT_REACHED: Readonly<Record<string, string>> = {
  ask_action: 'an operator, after the look-ups are spent; test/reconcile',
  fleet_numbers: 'reads only, for the metrics page; test/http/metrics.test.ts',
  load_run: 'reads only, for `versions check`',
  unended_runs: 'reads only, for `versions`',
  mark_outbox_failed:
    'reached where publishing fails, so by the faults at `publish`; test/race/outbox.test.ts',
  mark_notifications_failed: 'a receiver that refuses; test/notifications',
  park_run: 'a worker that lacks a key; test/runs/parked.test.ts',
  quarantine_run: 'damaged state; test/security/damaged.test.ts',
  release_quarantine: 'an operator, after damaged state; test/security/damaged.test.ts',
  replay_outbox_row: 'an operator, after a dead announcement; test/dead-letters',
  request_again: 'an identical action that succeeded since the decision; test/race/ledger.test.ts',
  restart_run: 'an operator; test/runs/restart.test.ts',
};

/** Reached where a worker that is stopping still has a segment under way, so not in every run; test/crash/outage.test.ts. */
const REACHED_BY_CHANCE = ['hand_back_run'];

const reached = new Set<string>();

/** The queue alone differs: on the second backend a few scenarios are enough. */
const SCENARIOS_OF = {
  redis: SCENARIOS,
  embedded: SCENARIOS.filter(({ name }) => ['lookup', 'parallel', 'manual-answer-lost'].includes(name)),
};

async function run(backend: 'redis' | 'embedded', only: Schedule[] = []): Promise<MatrixResult> {
  const result = await withCleanup(async (cleanup) =>
    runMatrix(cleanup, await startServers(cleanup, backend), {
      scenarios: SCENARIOS_OF[backend],
      parallel: 5,
      seed: 1,
      limit: 'reduced',
      pace: PACE,
      only,
      done: new Set(),
      onOutcome: () => undefined,
    }),
  );
  return result;
}

async function runReduced(backend: 'redis' | 'embedded'): Promise<MatrixResult> {
  const result = await run(backend);
  for (const { operation } of result.points) {
    reached.add(operation);
  }
  return result;
}

describe('the crash matrix', () => {
  it.each(['redis', 'embedded'] as const)(
    'on %s, whatever operation fails and however, the fleet recovers by itself and every invariant holds',
    async (backend) => {
      const result = await runReduced(backend);
      const report = reportOf(result, { backend, pace: PACE });
      expect(report.violations).toEqual([]);
      const struck = new Set(
        result.outcomes.filter(({ fired }) => fired).map(({ schedule }) => schedule.fault),
      );
      expect(INJECTED.filter((fault) => !struck.has(fault))).toEqual([]);
    },
    LIMIT_MS,
  );

  it(
    'a reconciler that was frozen before it asked takes what it finds for the attempt that is out by then',
    async () => {
      const schedule = scheduleNamed('lookup-request-lost:reconciler:find~pay_lookup:1:stop');
      const report = reportOf(await run('embedded', [schedule]), { backend: 'embedded', pace: PACE });
      expect(report).toMatchObject({ schedules: 1, violations: [] });
    },
    LIMIT_MS,
  );

  it('every protocol function that the code calls is an operation of the matrix, or there is a reason', () => {
    const source = path.join(import.meta.dirname, '../../src');
    const called = new Set(
      readdirSync(source, { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts'))
        .flatMap((name) => [
          ...readFileSync(path.join(source, name), 'utf8').matchAll(
            /callFunction(?:<[^(]*>)?\(\s*[\w.]+,\s*'(\w+)'/g,
          ),
        ])
        .map((match) => match[1] ?? ''),
    );
    expect(called.size).toBeGreaterThan(20);
    const missing = [...called].filter((name) => !reached.has(name) && !REACHED_BY_CHANCE.includes(name));
    expect(missing.sort()).toEqual(Object.keys(NOT_REACHED).sort());
  });
});
