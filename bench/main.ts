/**
 * The bench: Countersign beside the worker that a user would write without it, in one run, on the same servers, in
 * alternating rounds. Never a test of speed: it fails only when an effect did not happen exactly once.
 */
import { type Cleanup, withCleanup } from '../lab/cleanup.ts';
import { type BenchOptions, readOptions, USAGE } from './options.ts';
import { asTables, describe, keepInReadme, type Report } from './report.ts';
import { type Backend, type RoundResult, runRound, type Side } from './round.ts';
import { type Servers, startServers } from './servers.ts';
import { type BackendReport, type SideRounds, summarise } from './summary.ts';

async function benchBackend(
  cleanup: Cleanup,
  servers: Servers,
  backend: Backend,
  options: BenchOptions,
): Promise<BackendReport> {
  const results: Record<Side, SideRounds> = { safe: { one: [], two: [] }, unsafe: { one: [], two: [] } };
  for (let round = 0; round < options.rounds; round += 1) {
    for (const workers of [1, 2]) {
      // Whoever goes first has the colder machine: take turns.
      const order: Side[] = round % 2 === 0 ? ['safe', 'unsafe'] : ['unsafe', 'safe'];
      for (const side of order) {
        const result = await runRound(cleanup, servers, {
          side,
          backend,
          workers,
          concurrency: options.concurrency,
          runs: options.runs,
          warmUp: options.warmUp,
          decisions: workers === 1 ? options.decisions : 0,
        });
        tellProgress(
          `${backend} round ${round + 1}/${options.rounds}, ${workers} worker(s), ${side}`,
          result,
        );
        results[side][workers === 1 ? 'one' : 'two'].push(result);
      }
    }
  }
  return summarise(results.safe, results.unsafe);
}

function tellProgress(what: string, { resumesPerSecond, cpu }: RoundResult): void {
  const seconds =
    cpu === null
      ? ''
      : `, CPU s per 1,000: ${(cpu.workers + cpu.publisher + cpu.postgres + cpu.redis).toFixed(2)}`;
  process.stderr.write(`${what}: ${resumesPerSecond.toFixed(0)}/s${seconds}\n`);
}

async function bench(cleanup: Cleanup, options: BenchOptions): Promise<Report> {
  const servers = await startServers(cleanup, options.backends.includes('redis'));
  const report: Report = { ...(await describe(options, servers)), redis: null, embedded: null };
  for (const backend of options.backends) {
    report[backend] = await benchBackend(cleanup, servers, backend, options);
  }
  return report;
}

function isExactlyOnce(report: Report): boolean {
  return [report.redis, report.embedded].every((of) => of === null || of.effects.once === of.effects.runs);
}

async function main(): Promise<number> {
  const options = readOptions(process.argv.slice(2));
  if (options === null) {
    process.stdout.write(USAGE);
    return 0;
  }
  const report = await withCleanup((cleanup) => bench(cleanup, options));
  process.stdout.write(`${options.json ? JSON.stringify(report) : asTables(report)}\n`);
  if (!options.quick && options.backends.length === 2) {
    await keepInReadme(report);
  }
  return isExactlyOnce(report) ? 0 : 1;
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
    const misused =
      error instanceof RangeError ||
      (error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'));
    process.stderr.write(misused ? `bench: ${error.message}\n${USAGE}` : `bench: ${message}\n`);
    process.exitCode = misused ? 2 : 1;
  },
);
