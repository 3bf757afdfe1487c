import type { Command } from 'commander';
import { workerKeys, workflowsFile } from '../../config.ts';
import { checkVersions, listVersions, releaseQuarantine, restartRun } from '../../runs/index.ts';
import { buildRegistry, loadWorkflows } from '../../workflows/index.ts';
import { group, leaf } from '../command.ts';
import { globalsOf, print, table } from '../output.ts';
import { subjectOf, withSession, withWorkerSession } from '../session.ts';
import { wholeNumber } from '../values.ts';

const WORKFLOWS = ['--workflows <FILE>', 'exports your workflows; default: COUNTERSIGN_WORKFLOWS'] as const;

/** versions: which code the runs wait on, and whether new code could carry them. */
export function addVersions(program: Command): void {
  const versions = group(program, 'versions', 'versions: which code the runs wait on', 'list');

  leaf(versions, 'list', 'runs per workflow and version; retirable when nothing waits').action(
    async (_options: object, command: Command) => {
      const counted = await withSession(globalsOf(command), ({ db, tenant }) => listVersions(db, tenant));
      const rows = counted.map((one) => [
        `${one.workflow}@${one.version}`,
        one.total,
        Object.entries(one.waiting)
          .map(([status, runs]) => `${status} ${runs}`)
          .join(', '),
        one.liveWorkers,
        one.retirable ? 'yes' : 'no',
      ]);
      print(command, {
        json: counted,
        text: table(['VERSION', 'RUNS', 'WAITING', 'LIVE WORKERS', 'RETIRABLE'], rows),
      });
    },
  );

  leaf(
    versions,
    'check',
    'before a deploy: would this code resume every run that waits? Nothing is claimed, sent or written',
  )
    .option(...WORKFLOWS)
    .option('--sample <N>', 'at most this many runs', wholeNumber(1, 1_000_000))
    .action(async (options: { workflows?: string; sample?: number }, command: Command) => {
      const result = await withWorkerSession(async ({ config, db }) => {
        const registry = await buildRegistry(await loadWorkflows(workflowsFile(config, options.workflows)));
        return checkVersions(db, workerKeys(config), registry, { sample: options.sample });
      });
      const rows = result.wouldNot.map((run) => [
        run.runId,
        `${run.workflow}@${run.version}`,
        run.code,
        run.message,
      ]);
      print(command, {
        json: result,
        text: [
          `${result.wouldResume} of ${result.checked} run(s) would resume.`,
          ...(rows.length === 0 ? [] : [table(['RUN', 'VERSION', 'CODE', 'WHY'], rows)]),
        ].join('\n'),
      });
      process.exitCode = result.wouldNot.length === 0 ? 0 : 1;
    });
}

/** Verbs of `runs` that an operator needs when code or state changed under a run. */
export function addRunRecovery(runs: Command): void {
  leaf(runs, 'restart RUN', 'a new run from a checkpoint of this one; never repeats an effect')
    .requiredOption('--from-checkpoint <N>', '0 is the input', wholeNumber(0, 1_000_000))
    .option('--version <VERSION>', 'of the workflow; default: the run’s own')
    .option(...WORKFLOWS)
    .option('--as <NAME>', 'who asks; default: your user name')
    .option('--why <TEXT>', 'recorded with it', '')
    .action(
      async (
        runId: string,
        options: { fromCheckpoint: number; version?: string; workflows?: string; as?: string; why: string },
        command: Command,
      ) => {
        const { tenant } = globalsOf(command);
        const restarted = await withWorkerSession(async ({ config, db }) =>
          restartRun(
            db,
            workerKeys(config),
            await buildRegistry(await loadWorkflows(workflowsFile(config, options.workflows))),
            {
              tenant: tenant ?? config.tenant,
              runId,
              checkpoint: options.fromCheckpoint,
              version: options.version,
              subject: subjectOf(options),
              reason: options.why,
            },
          ),
        );
        print(command, {
          json: restarted,
          text: `Run ${restarted.runId} (${restarted.status}) goes on from checkpoint ${restarted.checkpoint}; run ${restarted.from} is superseded.`,
        });
      },
    );

  leaf(runs, 'release RUN', 'let a quarantined run go on, after you have looked')
    .option('--as <NAME>', 'who says so; default: your user name')
    .option('--why <TEXT>', 'recorded with it', '')
    .action(async (runId: string, options: { as?: string; why: string }, command: Command) => {
      const released = await withSession(globalsOf(command), ({ db, tenant }) =>
        releaseQuarantine(db, { tenant, runId, subject: subjectOf(options), reason: options.why }),
      );
      print(command, { json: released, text: `Released. Run ${released.runId} is ${released.status}.` });
    });
}
