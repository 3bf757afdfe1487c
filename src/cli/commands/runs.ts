import type { Command } from 'commander';
import { CountersignError } from '../../errors.ts';
import { cancelRun, explain, listClaims, listRuns, showRun } from '../../runs/index.ts';
import { visibleJson, visibleLines } from '../../visible-text.ts';
import { group, leaf } from '../command.ts';
import { facts, fromNow, globalsOf, Lines, moment, print, table } from '../output.ts';
import { type Session, subjectOf, withSession } from '../session.ts';
import { wholeNumber } from '../values.ts';
import { addRunRecovery } from './versions.ts';

export function addRuns(program: Command): void {
  const runs = group(program, 'runs', 'runs: what is going on', 'list');

  leaf(runs, 'list', 'newest first')
    .option('--status <STATUS>', 'only runs in this status, such as awaiting_approval')
    .option('--limit <N>', 'how many, at most 500', wholeNumber(1, 500), 50)
    .action(async (options: { status?: string; limit: number }, command: Command) => {
      print(command, await withSession(globalsOf(command), (session) => list(session, options)));
    });

  leaf(runs, 'show RUN', 'one run: its status, who carried it, its output').action(
    async (runId: string, _options: object, command: Command) => {
      print(command, await withSession(globalsOf(command), (session) => show(session, runId)));
    },
  );

  leaf(
    runs,
    'explain RUN',
    'in plain words: what happened, what is known, what is not, what is safe to do next',
  ).action(async (runId: string, _options: object, command: Command) => {
    const explained = await withSession(globalsOf(command), ({ db, tenant }) =>
      explain(db, { tenant, runId }),
    );
    print(command, { json: explained, text: visibleLines(explained.text) });
  });

  addRunRecovery(runs);

  leaf(runs, 'cancel RUN', 'start nothing new; final once what is in flight is settled')
    .option('--as <NAME>', 'who asks; default: your user name')
    .action(async (runId: string, options: { as?: string }, command: Command) => {
      const cancelled = await withSession(globalsOf(command), ({ db, tenant }) =>
        cancelRun(db, { tenant, runId, subject: subjectOf(options) }),
      );
      print(command, {
        json: { runId, ...cancelled },
        text: {
          cancelled: 'Cancelled. Nothing is in flight.',
          cancelling: `Nothing new will start. In flight, and final before the run is: ${cancelled.inFlight.join(', ') || 'the current segment'}.`,
          ended: `It had already ended (${cancelled.status}); nothing was changed.`,
        }[cancelled.outcome],
      });
    });
}

async function list({ db, tenant }: Session, options: { status?: string; limit: number }) {
  const runs = await listRuns(db, { tenant, ...options });
  const rows = runs.map((run) => [
    run.id,
    `${run.workflow}@${run.version}`,
    run.status,
    run.reason,
    moment(run.createdAt),
  ]);
  return {
    json: runs,
    text:
      runs.length === 0
        ? 'No runs. Start one: countersign start WORKFLOW --input TEXT'
        : table(['RUN', 'WORKFLOW', 'STATUS', 'REASON', 'CREATED'], rows),
  };
}

async function show(session: Session, runId: string) {
  const { db, tenant } = session;
  const run = await showRun(db, session.keys(), { tenant, runId });
  const claims = await listClaims(db, { tenant, runId });
  const carriers = claims.map(
    (claim) => `${claim.workerName ?? claim.worker}${claim.takenOver ? ' (took over)' : ''}`,
  );
  const text = [
    `Run ${run.id}`,
    facts([
      ['workflow', `${run.workflow}@${run.version}`],
      ['status', `${run.status}${run.reason === null ? '' : ` (${run.reason})`}`],
      ['requested by', run.requestedBy],
      ['created', `${moment(run.createdAt)} (${fromNow(run.createdAt)})`],
      ['ended', run.endedAt === null ? null : moment(run.endedAt)],
      ['checkpoint', run.segment],
      ['carried by', carriers.join(', ')],
      ['model calls', cost(run.usage)],
      ['wasted', run.wasted.requests === 0 ? null : cost(run.wasted)],
      ['output', run.output === null ? null : new Lines(visibleJson(run.output).text)],
    ]),
    ...(run.endedAt === null ? ['', `In plain words: countersign runs explain ${run.id}`] : []),
  ].join('\n');
  return { json: { ...run, claims }, text };
}

function cost({ requests, totalTokens }: { requests: number; totalTokens: number }): string {
  return `${requests} (${totalTokens} tokens)`;
}

/** Statuses in which a run waits for somebody, or nothing more will happen by itself. */
const RESTING = [
  'awaiting_approval',
  'parked',
  'completed',
  'failed',
  'cancelled',
  'superseded',
  'quarantined',
  'dead_lettered',
];

/** @throws WAIT_TIMED_OUT; the run goes on. */
export async function untilResting(session: Session, runId: string, timeoutMs: number) {
  const { db, tenant } = session;
  const end = Date.now() + timeoutMs;
  for (;;) {
    const run = await showRun(db, session.keys(), { tenant, runId });
    if (RESTING.includes(run.status)) {
      return run;
    }
    if (Date.now() >= end) {
      throw new CountersignError(
        'WAIT_TIMED_OUT',
        `The run is still ${run.status}; it goes on by itself: countersign runs show ${runId}`,
        { details: { runId, status: run.status } },
      );
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
