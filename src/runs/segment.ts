import { type LedgerAction, performAction, type ReviewedArguments, Suspended } from '../actions/index.ts';
import {
  NO_USAGE,
  openState as openRunState,
  type PendingCall,
  type SegmentPort,
  type SegmentStart,
} from '../agents-sdk/index.ts';
import { openInput, openState, type RunInput } from '../checkpoints/index.ts';
import { CountersignError } from '../errors.ts';
import { callKey, type JournalEnvironment, recordToolResult, respond } from '../journal/index.ts';
import type { Hold, HoldKeeper } from '../leases/index.ts';
import type { Log } from '../log.ts';
import type { Database } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { type OpenedSession, openSession } from '../sessions/index.ts';
import { openContext, type RegisteredWorkflow } from '../workflows/index.ts';
import type { ClaimedRun } from './claim.ts';
import { applyDecisions, assertReviewed } from './decisions.ts';
import { requestAgain } from './outcome.ts';

type Environment = { db: Database; keys: KeyRing; log: Log; holds: HoldKeeper };

export type OpenedSegment = {
  start: SegmentStart;
  ids: RunInput['context'];
  context: object;
  session: OpenedSession | null;
  /** Arguments of the pending calls, prepared when they were checked. */
  reviewed: ReadonlyMap<string, ReviewedArguments>;
};

/** An opened segment that has been checked against the ledger, before any decision is applied. */
export type ReviewedSegment = OpenedSegment & {
  pending: readonly PendingCall[];
  actions: Map<string, LedgerAction>;
};

/**
 * Opens the checkpoint, rebuilds the context and verifies that what is pending is what was reviewed. Runs nothing and
 * writes nothing.
 *
 * @throws whatever `openInput`, `openState`, `openContext` and `assertReviewed` throw.
 */
export async function openForReview(
  keys: KeyRing,
  run: ClaimedRun,
  registered: RegisteredWorkflow,
): Promise<ReviewedSegment> {
  const id = { tenant: run.tenant, runId: run.runId, number: run.segment };
  const session = run.session === null ? null : openSession(keys, run.tenant, run.session);
  const actions = byCallId(run.actions);
  if (run.segment === 0) {
    const { input, context: ids } = openInput(keys, id, run.sealed);
    const context = await openContext(registered.workflow, ids, run);
    return {
      start: { kind: 'input', input, context },
      ids,
      context,
      session,
      pending: [],
      actions,
      reviewed: new Map(),
    };
  }
  const { context: ids, stateText } = openState(keys, id, run.workflow, run.sealed);
  const context = await openContext(registered.workflow, ids, run);
  const adapted = registered.adapter?.state?.(stateText) ?? stateText;
  const { state, pending } = await openRunState(registered.agent, adapted, context);
  const reviewed = assertReviewed({ tenant: run.tenant, segment: run.segment, pending, actions, registered });
  return { start: { kind: 'state', state }, ids, context, session, pending, actions, reviewed };
}

/**
 * Opens a segment and applies the recorded decisions.
 *
 * @returns `undecided` when a decision is missing: then nothing may run.
 */
export async function openSegment(
  env: Environment,
  run: ClaimedRun,
  registered: RegisteredWorkflow,
): Promise<OpenedSegment | 'undecided'> {
  const reviewed = await openForReview(env.keys, run, registered);
  return applyDecisions(env.keys, run.tenant, reviewed.pending, reviewed.actions) ? reviewed : 'undecided';
}

export type Segment = { port: SegmentPort; journal: JournalEnvironment };

/** The two doors of one segment: its journal and its ledger, both shut as soon as the hold is not trusted. */
export function makeSegment(
  env: Environment,
  run: ClaimedRun,
  registered: RegisteredWorkflow,
  hold: Hold,
  opened: OpenedSegment,
): Segment {
  const { db, keys, log } = env;
  const { tenant, runId, epoch, segment } = run;
  const journal: JournalEnvironment = {
    db,
    keys,
    tenant,
    runId,
    epoch,
    segment,
    stored: new Map(run.calls.map((call) => [callKey(call.path, call.n), call])),
    definitions: registered.actions,
    actions: byCallId(run.actions),
    unstored: [],
    answered: NO_USAGE,
    wasted: NO_USAGE,
  };
  const assertTrusted = () => {
    if (!env.holds.isTrusted(hold)) {
      throw new Suspended('LEASE_LOST', true);
    }
  };
  const lanes = new Map<string, Promise<unknown>>();
  const port: SegmentPort = {
    respond: async (ask) => {
      assertTrusted();
      return respond(journal, ask);
    },
    record: async (callId, tool, call) => {
      assertTrusted();
      return recordToolResult(journal, run.toolResults, { callId, tool, call });
    },
    // A call that is in no row is never let through; the pause then refuses it.
    isGated: (callId) => journal.actions.get(callId)?.gated ?? true,
    perform: async (call) => {
      assertTrusted();
      const action = journal.actions.get(call.callId);
      const definition = registered.actions.get(call.tool);
      if (action === undefined || definition === undefined) {
        throw new CountersignError(
          'CALL_NOT_IN_LEDGER',
          'The agent made a call that the ledger does not know.',
          { details: { tool: call.tool } },
        );
      }
      // Two identical calls of one turn are two actions, one after the other: the second must see how the first ended.
      return inLane(lanes, `${call.tool}/${action.effectiveDigest}`, () =>
        performAction(
          { db, keys, log, tenant, runId, epoch, context: opened.context },
          definition,
          action,
          call,
          opened.reviewed.get(call.callId),
        ).catch(async (error: unknown) => {
          if (error instanceof Suspended && error.code === 'DECIDE_AGAIN') {
            await requestAgain({ db, keys, run }, definition, action);
            throw new Suspended('DECIDE_AGAIN', true);
          }
          throw error;
        }),
      );
    },
  };
  return { port, journal };
}

function byCallId(actions: readonly LedgerAction[]): Map<string, LedgerAction> {
  return new Map(actions.map((action) => [action.callId, action]));
}

/** Runs `work` after everything that entered the same lane before it, however that ended. */
function inLane<T>(lanes: Map<string, Promise<unknown>>, lane: string, work: () => Promise<T>): Promise<T> {
  const before = lanes.get(lane) ?? Promise.resolve();
  const mine = before.then(work, work);
  lanes.set(
    lane,
    mine.catch(() => undefined),
  );
  return mine;
}
