import type { Command } from 'commander';
import { type Decided, decide, listApprovals, revoke, showApproval } from '../../approvals/index.ts';
import { cardText, hiddenOn } from '../card.ts';
import { group, leaf } from '../command.ts';
import { fromNow, globalsOf, print, table } from '../output.ts';
import { type Session, subjectOf, withSession } from '../session.ts';
import { fingerprint, wholeNumber } from '../values.ts';

type DecisionFlags = { as?: string; fingerprint?: string; words?: string };

const AS = ['--as <NAME>', 'who decides; default: your user name'] as const;

export function addApprovals(program: Command): void {
  const approvals = group(program, 'approvals', 'approvals: what waits for your word', 'list');

  leaf(approvals, 'list', 'oldest first')
    .option(
      '--state <STATE>',
      'pending, approved, consumed, rejected, expired, revoked, invalidated, all',
      'pending',
    )
    .option('--limit <N>', 'how many, at most 500', wholeNumber(1, 500), 50)
    .action(async (options: { state: string; limit: number }, command: Command) => {
      print(command, await withSession(globalsOf(command), (session) => list(session, options)));
    });

  leaf(approvals, 'show APPROVAL', 'the card: what was asked for, and what will run').action(
    async (approvalId: string, _options: object, command: Command) => {
      const card = await withSession(globalsOf(command), (session) =>
        showApproval(session.db, session.keys(), { tenant: session.tenant, approvalId }),
      );
      print(command, { json: { ...card, hidden: hiddenOn(card) }, text: cardText(card) });
    },
  );

  decision(approvals, 'approve', 'show the card and say yes to exactly what is on it').option(
    '--words <TEXT>',
    'kept with the decision',
  );
  decision(approvals, 'reject', 'show the card and say no; the agent is told your words').requiredOption(
    '--words <TEXT>',
    'why; the agent is told',
  );

  leaf(approvals, 'revoke APPROVAL', 'take back a yes that no worker has used yet')
    .option(...AS)
    .action(async (approvalId: string, options: { as?: string }, command: Command) => {
      const revoked = await withSession(globalsOf(command), ({ db, tenant }) =>
        revoke(db, { tenant, approvalId, subject: subjectOf(options) }),
      );
      print(command, {
        json: { approvalId, state: 'revoked', ...revoked },
        text: `Revoked: it will not be executed. Run ${revoked.runId} is ${revoked.runStatus}.`,
      });
    });
}

function decision(parent: Command, verdict: 'approve' | 'reject', description: string): Command {
  return leaf(parent, `${verdict} APPROVAL`, description)
    .option(...AS)
    .option('--fingerprint <HEX>', 'of a card seen earlier: decide on that one or not at all', fingerprint)
    .action(async (approvalId: string, flags: DecisionFlags, command: Command) => {
      print(
        command,
        await withSession(globalsOf(command), (session) => decideOne(session, verdict, approvalId, flags)),
      );
    });
}

async function list({ db, tenant }: Session, options: { state: string; limit: number }) {
  const state = options.state === 'all' ? null : options.state;
  const approvals = await listApprovals(db, { tenant, state, limit: options.limit });
  const rows = approvals.map((approval) => [
    approval.id,
    approval.state,
    approval.tool,
    approval.policy,
    fromNow(approval.decideBefore),
    approval.decidedBy,
    approval.runId,
  ]);
  return {
    json: approvals,
    text:
      approvals.length === 0
        ? `No ${state ?? ''} approvals.`.replace('  ', ' ')
        : table(['APPROVAL', 'STATE', 'TOOL', 'POLICY', 'DECIDE', 'BY', 'RUN'], rows),
  };
}

/** Reads the card, then decides with the fingerprint of that card, or of the one named by --fingerprint. */
async function decideOne(
  session: Session,
  verdict: 'approve' | 'reject',
  approvalId: string,
  flags: DecisionFlags,
) {
  const { db, tenant } = session;
  const keys = session.keys();
  const card = await showApproval(db, keys, { tenant, approvalId });
  const decided = await decide(db, keys, {
    tenant,
    approvalId,
    verdict,
    subject: subjectOf(flags),
    fingerprint: flags.fingerprint ?? card.fingerprint,
    words: flags.words,
  });
  const json = { approvalId: card.id, verdict, ...decided, card: { ...card, hidden: hiddenOn(card) } };
  return { json, text: `${cardText(card)}\n\n${sentence(decided)}` };
}

function sentence(decided: Decided): string {
  const run = `Run ${decided.runId} is ${decided.runStatus}.`;
  switch (decided.outcome) {
    case 'approved':
      return `Approved by ${decided.decidedBy ?? '-'}. ${run}`;
    case 'rejected':
      return `Rejected by ${decided.decidedBy ?? '-'}; nothing will be executed. ${run}`;
    case 'vote_recorded':
      return `Your vote is recorded; the approval needs more of them. ${run}`;
    case 'repeat':
      return `You had already said so; nothing was changed. ${run}`;
  }
}
