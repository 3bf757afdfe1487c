import type { Command } from 'commander';
import {
  type DeadLetter,
  type DeadLetterFilter,
  listDeadLetters,
  planReplay,
  replay,
  showDeadLetter,
} from '../../dead-letters/index.ts';
import { CountersignError } from '../../errors.ts';
import { group, leaf } from '../command.ts';
import { facts, fromNow, globalsOf, moment, print, table } from '../output.ts';
import { type Session, subjectOf, withSession } from '../session.ts';
import { wholeNumber } from '../values.ts';

type Filter = {
  class?: string;
  code?: string;
  workflow?: string;
  closed?: boolean;
  limit: number;
  after?: string;
};
type ReplayFlags = Filter & { all?: boolean; dryRun?: boolean; as?: string; why?: string };

/** dlq: work given up, and put back by a named person. */
export function addDeadLetters(program: Command): void {
  const letters = group(program, 'dlq', 'dead letters: work given up, put back by you', 'list');

  filtered(leaf(letters, 'list', 'oldest first'))
    .option('--closed', 'also those already replayed')
    .action(async (options: Filter, command: Command) => {
      print(command, await withSession(globalsOf(command), (session) => list(session, options)));
    });

  leaf(letters, 'show ID', 'one dead letter, and what a replay would do').action(
    async (id: string, _options: object, command: Command) => {
      print(command, await withSession(globalsOf(command), (session) => show(session, id)));
    },
  );

  filtered(
    withIds(
      letters,
      'replay',
      'put back one, several, or with --all everything that matches; a fresh attempt budget each',
    ),
  )
    .option('--all', 'everything that matches the filter, --limit at a time; repeat with --after to go on')
    .option('--dry-run', 'change nothing; say per item what the ledger would do')
    .option('--as <NAME>', 'who asks; default: your user name')
    .option('--why <TEXT>', 'recorded with it')
    .action(async (ids: string[], flags: ReplayFlags, command: Command) => {
      print(command, await withSession(globalsOf(command), (session) => replayAll(session, ids, flags)));
    });
}

function withIds(parent: Command, name: string, description: string): Command {
  return leaf(parent, name, description).argument('[IDS...]');
}

function filtered(command: Command): Command {
  return command
    .option('--class <CLASS>', 'transient_exhausted, permanent, stalled, poison, incompatible, diverged')
    .option('--code <CODE>', 'such as MODEL_FAILED')
    .option('--workflow <NAME>', 'only runs of this workflow')
    .option('--limit <N>', 'how many, at most 1000', wholeNumber(1, 1_000), 50)
    .option('--after <ID>', 'go on after this one');
}

async function list({ db, tenant }: Session, options: DeadLetterFilter) {
  const letters = await listDeadLetters(db, tenant, options);
  const rows = letters.map((letter) => [
    letter.id,
    letter.kind,
    letter.class,
    letter.code,
    letter.round,
    fromNow(letter.createdAt),
    letter.closedAs,
    letter.runId,
  ]);
  return {
    json: letters,
    text:
      letters.length === 0
        ? 'No dead letters.'
        : table(['ID', 'KIND', 'CLASS', 'CODE', 'ROUND', 'SINCE', 'CLOSED', 'RUN'], rows),
  };
}

async function show({ db, tenant }: Session, id: string) {
  const letter = await showDeadLetter(db, tenant, id);
  const plan = await planReplay(db, tenant, letter);
  const text = [
    `Dead letter ${letter.id}`,
    facts([
      ['run', letter.runId],
      ['workflow', `${letter.workflow}@${letter.version}`],
      ['given up', `${moment(letter.createdAt)} (${letter.class}, ${letter.code})`],
      ['round', letter.round],
      [
        'closed',
        letter.closedAs === null
          ? null
          : `${letter.closedAs} by ${letter.replayedBy ?? '-'}${letter.replayReason ? `: ${letter.replayReason}` : ''}`,
      ],
    ]),
    ...plan.map(
      (action) =>
        `  a replay would ${action.plan.replaceAll('_', ' ')}: ${action.tool} (${action.actionId}), as ${action.why}`,
    ),
  ].join('\n');
  return { json: { ...letter, plan }, text };
}

/** One after the other, each in its own transaction: interrupted, it leaves a clean prefix, and repeating it is harmless. */
async function replayAll(session: Session, ids: readonly string[], flags: ReplayFlags) {
  const { db, tenant } = session;
  if ((ids.length === 0) === (flags.all !== true)) {
    throw new CountersignError('USAGE', 'Name dead letters, or say --all with a filter. See --help.', {
      details: { kind: 'dlqReplay' },
    });
  }
  const letters =
    flags.all === true
      ? await listDeadLetters(db, tenant, flags)
      : await Promise.all(ids.map((id) => showDeadLetter(db, tenant, id)));
  const items = [];
  for (const letter of letters) {
    items.push(
      flags.dryRun === true ? await dryRun(session, letter) : await replayOne(session, letter, flags),
    );
  }
  const last = letters.at(-1)?.id ?? null;
  const rows = items.map((item) => [item.id, item.outcome, item.runId, item.note]);
  const more =
    flags.all === true && letters.length === flags.limit ? `\nMore may follow: --after ${last}` : '';
  return {
    json: { dryRun: flags.dryRun === true, items, last },
    text:
      items.length === 0 ? 'Nothing to replay.' : `${table(['ID', 'OUTCOME', 'RUN', 'NOTE'], rows)}${more}`,
  };
}

async function replayOne({ db, tenant }: Session, letter: DeadLetter, flags: ReplayFlags) {
  const done = await replay(db, {
    tenant,
    id: letter.id,
    subject: subjectOf(flags),
    reason: flags.why ?? '',
  });
  return {
    id: letter.id,
    runId: letter.runId,
    outcome: done.outcome as string,
    note: done.runStatus ?? 'announcement put back',
  };
}

async function dryRun({ db, tenant }: Session, letter: DeadLetter) {
  const plan = letter.kind === 'run' ? await planReplay(db, tenant, letter) : [];
  const note = plan.map((action) => `${action.tool}: ${action.plan.replaceAll('_', ' ')}`).join('; ');
  return {
    id: letter.id,
    runId: letter.runId,
    outcome: 'would_replay',
    note: note === '' ? 'no action yet' : note,
    plan,
  };
}
