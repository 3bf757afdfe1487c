/**
 * The crash matrix: every operation that a scenario reaches, times everything that can go wrong at it, each in a real
 * fleet of processes that must recover by itself. Exit code 1 when the checker finds a violation.
 */
import { parseArgs } from 'node:util';
import { withCleanup } from '../lab/cleanup.ts';
import { type MatrixOptions, runMatrix } from './matrix.ts';
import { appendFinished, readFinished } from './progress-file.ts';
import { replayLine, reportOf, tableOf } from './report.ts';
import { SCENARIOS, scenarioNamed } from './scenarios.ts';
import { nameOf, scheduleNamed } from './schedule.ts';
import { type Backend, startServers } from './servers.ts';

const USAGE = `usage: npm run crash-matrix -- [options]

  --scenario NAME     just this one; may be repeated. Known: ${SCENARIOS.map(({ name }) => name).join(', ')}
  --backend NAME      redis (default) or embedded (BullMQ on Postgres)
  --parallel N        lanes side by side (default 4)
  --seed S            shuffles the order (default 1); with --limit it chooses the sample
  --limit N           run N of the planned schedules; "reduced": the part that belongs to npm test
  --pace F            stretches every deadline by F (default 1); more on a busy machine
  --only SCHEDULE     run exactly this one, as a violation names it; may be repeated
  --resume FILE       write finished schedules there, and skip the ones it holds
  --json              one JSON object on stdout instead of the table
`;

type Settings = Omit<MatrixOptions, 'done' | 'onOutcome'> & {
  backend: Backend;
  resume: string | null;
  json: boolean;
};

function readSettings(args: string[]): Settings | null {
  const { values } = parseArgs({
    args,
    options: {
      scenario: { type: 'string', multiple: true, default: [] },
      backend: { type: 'string', default: 'redis' },
      parallel: { type: 'string', default: '4' },
      seed: { type: 'string', default: '1' },
      limit: { type: 'string', default: 'Infinity' },
      pace: { type: 'string', default: '1' },
      only: { type: 'string', multiple: true, default: [] },
      resume: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    return null;
  }
  if (values.backend !== 'redis' && values.backend !== 'embedded') {
    throw new Error('--backend is redis or embedded');
  }
  const parallel = positive('parallel', values.parallel);
  if (parallel > 15) {
    throw new Error('--parallel is at most 15: each lane has a Redis database of its own');
  }
  return {
    scenarios: values.scenario.length === 0 ? SCENARIOS : values.scenario.map(scenarioNamed),
    backend: values.backend,
    parallel,
    seed: positive('seed', values.seed),
    limit: values.limit === 'reduced' ? values.limit : positive('limit', values.limit),
    pace: positive('pace', values.pace),
    only: values.only.map(scheduleNamed),
    resume: values.resume ?? null,
    json: values.json,
  };
}

function positive(name: string, text: string): number {
  const value = Number(text);
  if (!(value > 0)) {
    throw new Error(`--${name} is a positive number`);
  }
  return value;
}

async function main(): Promise<number> {
  const settings = readSettings(process.argv.slice(2));
  if (settings === null) {
    process.stdout.write(USAGE);
    return 0;
  }
  const { backend, resume, json, pace } = settings;
  const started = performance.now();
  const result = await withCleanup(async (cleanup) =>
    runMatrix(cleanup, await startServers(cleanup, backend), {
      ...settings,
      done: resume === null ? new Set<string>() : readFinished(resume),
      onOutcome(outcome, { finished, planned }) {
        if (resume !== null) {
          appendFinished(resume, outcome);
        }
        if (outcome.violations.length > 0) {
          process.stderr.write(
            `\n${nameOf(outcome.schedule)}\n${outcome.violations.map((text) => `  ${text}\n`).join('')}  ${replayLine(outcome.schedule, { backend, pace })}\n`,
          );
        } else if (finished % 50 === 0) {
          process.stderr.write(
            `${finished} of ${planned} schedules, ${Math.round((performance.now() - started) / 1000)} s\n`,
          );
        }
      },
    }),
  );
  const report = reportOf(result, { backend, pace });
  const seconds = Math.round((performance.now() - started) / 1000);
  process.stdout.write(
    json
      ? `${JSON.stringify({ ...report, seconds })}\n`
      : `${tableOf(result)}\n\n${report.operations} operations, ${report.schedules} schedules (${report.fired} faults struck) on ${backend} in ${seconds} s, ${report.violations.length} violations\n`,
  );
  return report.violations.length === 0 ? 0 : 1;
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    process.stderr.write(`crash-matrix: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exit(2);
  },
);
