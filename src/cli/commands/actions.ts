import type { Command } from 'commander';
import { askAction, listOpenActions, type OpenAction, resolveAction } from '../../actions/index.ts';
import { CountersignError } from '../../errors.ts';
import { group, leaf } from '../command.ts';
import { fromNow, globalsOf, print, table } from '../output.ts';
import { subjectOf, withSession } from '../session.ts';
import { wholeNumber } from '../values.ts';

type Verdicts = { succeeded?: boolean; notExecuted?: boolean; abandon?: boolean };

/** actions: what is out in the world without proof, and a person's word on it. */
export function addActions(program: Command): void {
  const actions = group(program, 'actions', 'actions: what is out in the world without proof', 'list');

  leaf(actions, 'list', 'oldest first')
    .option('--unknown', 'leave out those whose answer may still come')
    .option('--limit <N>', 'how many, at most 500', wholeNumber(1, 500), 50)
    .action(async (options: { unknown?: boolean; limit: number }, command: Command) => {
      const open = await withSession(globalsOf(command), ({ db, tenant }) =>
        listOpenActions(db, { tenant, onlyUnknown: options.unknown === true, limit: options.limit }),
      );
      const rows = open.map((action) => [
        action.id,
        action.tool,
        action.state,
        action.recovery,
        action.attempt,
        fromNow(action.dispatchedAt),
        action.dueAt === null ? waitsFor(action) : fromNow(action.dueAt),
        action.runId,
      ]);
      print(command, {
        json: open,
        text:
          open.length === 0
            ? 'Every outcome is known.'
            : `${table(['ACTION', 'TOOL', 'STATE', 'RECOVERY', 'ATTEMPT', 'SENT', 'NEXT', 'RUN'], rows)}${open.some((action) => action.dueAt === null) ? HINT : ''}`,
      });
    });

  leaf(actions, 'ask ACTION', 'have the provider asked again, now and with a fresh budget')
    .option('--as <NAME>', 'who asks; default: your user name')
    .action(async (actionId: string, options: { as?: string }, command: Command) => {
      const asked = await withSession(globalsOf(command), ({ db, tenant }) =>
        askAction(db, { tenant, actionId, subject: subjectOf(options) }),
      );
      print(command, {
        json: { actionId, ...asked },
        text: `The reconciler asks the provider now. Run ${asked.runId} is ${asked.runStatus}.`,
      });
    });

  leaf(actions, 'resolve ACTION', 'record what you found at the provider')
    .option('--succeeded', 'the effect is there; the agent is told your evidence')
    .option('--not-executed', 'it is not; it may be sent again while its approval lasts')
    .option('--abandon', 'it will never be known; the agent is told so')
    .option('--attempt <N>', 'the attempt you looked for, as listed', wholeNumber(1, 1_000_000), 1)
    .requiredOption('--evidence <TEXT>', 'what you saw; kept sealed')
    .option('--as <NAME>', 'who says so; default: your user name')
    .action(
      async (
        actionId: string,
        options: Verdicts & { attempt: number; evidence: string; as?: string },
        command: Command,
      ) => {
        const resolved = await withSession(globalsOf(command), (session) =>
          resolveAction(session.db, session.keys(), {
            tenant: session.tenant,
            actionId,
            attempt: options.attempt,
            verdict: verdictOf(options),
            subject: subjectOf(options),
            evidence: options.evidence,
          }),
        );
        print(command, {
          json: { actionId, ...resolved },
          text: `Recorded: the action is ${resolved.state}. Run ${resolved.runId} is ${resolved.runStatus}.`,
        });
      },
    );
}

const HINT =
  '\nWhere the next is a person: look at the provider, then "countersign actions resolve ACTION …"; or, once it answers again, "countersign actions ask ACTION".';

/** Nothing is due: no machine goes on by itself. */
function waitsFor({ state, reason }: OpenAction): string {
  return state === 'outcome_unknown'
    ? `a named person${reason === null ? '' : ` (${reason})`}`
    : 'its worker';
}

function verdictOf(options: Verdicts): 'succeeded' | 'not_executed' | 'abandoned' {
  const chosen = [
    ...(options.succeeded === true ? (['succeeded'] as const) : []),
    ...(options.notExecuted === true ? (['not_executed'] as const) : []),
    ...(options.abandon === true ? (['abandoned'] as const) : []),
  ];
  const [verdict] = chosen;
  if (verdict === undefined || chosen.length > 1) {
    throw new CountersignError(
      'USAGE',
      'Say exactly one of --succeeded, --not-executed, --abandon. See --help.',
      { details: { kind: 'verdict' } },
    );
  }
  return verdict;
}
