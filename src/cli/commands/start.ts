import type { Command } from 'commander';
import { listApprovals } from '../../approvals/index.ts';
import { start } from '../../runs/index.ts';
import { visibleJson } from '../../visible-text.ts';
import { leaf } from '../command.ts';
import { facts, globalsOf, Lines, print } from '../output.ts';
import { type Session, subjectOf, withSession } from '../session.ts';
import { duration, jsonObject } from '../values.ts';
import { untilResting } from './runs.ts';

type StartFlags = {
  input: string;
  context?: Record<string, unknown>;
  key?: string;
  version?: string;
  wait?: boolean;
  timeout: number;
  as?: string;
};

export function addStart(program: Command): void {
  leaf(program, 'start WORKFLOW', 'start a run')
    .option('--input <TEXT>', 'what the agent is asked', '')
    .option('--context <JSON>', "identifiers for the workflow's context", jsonObject)
    .option('--key <KEY>', 'start at most one run under this key, however often this is repeated')
    .option('--version <VERSION>', "the workflow's version; default: the one announced last")
    .option('--wait', 'wait until it pauses or ends')
    .option('--timeout <DURATION>', 'how long --wait waits', duration, 60_000)
    .option('--as <NAME>', 'who asks; default: your user name')
    .action(async (workflow: string, flags: StartFlags, command: Command) => {
      print(command, await withSession(globalsOf(command), (session) => startOne(session, workflow, flags)));
    });
}

async function startOne(session: Session, workflow: string, flags: StartFlags) {
  const { db, tenant } = session;
  const started = await start(db, session.keys(), {
    tenant,
    workflow,
    version: flags.version,
    input: flags.input,
    context: flags.context,
    key: flags.key,
    requestedBy: subjectOf(flags),
  });
  const { runId } = started;
  const opening =
    started.outcome === 'started'
      ? `Started run ${runId}.`
      : `Run ${runId} was already started with this key.`;
  if (flags.wait !== true) {
    return { json: started, text: `${opening}\nFollow it: countersign runs show ${runId}` };
  }
  const run = await untilResting(session, runId, flags.timeout);
  const approvals = (await listApprovals(db, { tenant, limit: 500 })).filter(
    (approval) => approval.runId === runId,
  );
  const { status, reason, output } = run;
  const next = approvals.map(
    ({ id, tool }) => `It waits for your word on ${tool}: countersign approvals show ${id}`,
  );
  const shown = facts([
    ['status', `${status}${reason === null ? '' : ` (${reason})`}`],
    ['output', output === null ? null : new Lines(visibleJson(output).text)],
  ]);
  return {
    json: { ...started, status, reason, output, approvals },
    text: [opening, shown, ...next].join('\n'),
  };
}
