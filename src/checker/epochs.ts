/** The checker's reading of a run's events: who owned it when, and whether anybody else wrote to it. */
import type { Violation } from './check.ts';
import type { Facts, Moment, RunFact } from './facts.ts';

/** After one of these nobody owns the run until the next claim. */
const LETS_GO =
  /^run_(ready|awaiting_approval|awaiting_reconciliation|parked|completed|failed|cancelled|quarantined|dead_lettered|superseded)$/;
/** Written only by the owner of a running run, on the run's behalf. */
const OWNERS = new Set([
  'checkpoint_stored',
  'action_dispatched',
  'action_prepared',
  'run_completed',
  'run_failed',
]);

/** I3: epochs grow by one with each claim, and only the owner of the current one writes to the run. */
export function checkEpochs(facts: Facts): Violation[] {
  return facts.runs.flatMap((run) => {
    const found: Violation[] = [];
    let epoch = 0;
    let owned = false;
    for (const { n, kind, data } of facts.events.filter(({ runId }) => runId === run.id)) {
      if (kind === 'run_claimed') {
        if (data.epoch !== epoch + 1) {
          found.push(`I3: event ${n} claims epoch ${String(data.epoch)} after ${epoch}`);
        }
        if (owned && data.taken_over !== true) {
          found.push(`I3: event ${n} claims a run that is held`);
        }
        epoch = Number(data.epoch);
        owned = true;
        continue;
      }
      if (OWNERS.has(kind) && (!owned || (data.epoch !== undefined && data.epoch !== epoch))) {
        found.push(`I3: event ${n} (${kind}) was not written by the owner of epoch ${epoch}`);
      }
      if (LETS_GO.test(kind)) {
        owned = false;
      }
    }
    if (run.epoch !== epoch) {
      found.push(`I3: the run is in epoch ${run.epoch}, its events in ${epoch}`);
    }
    return found;
  });
}

/** I3: responses are stored by the owner of their moment, and no action exists without the response that asked for it. */
export function checkJournal(facts: Facts): Violation[] {
  const found: Violation[] = [];
  for (const run of facts.runs) {
    for (const call of facts.modelCalls.filter(({ runId }) => runId === run.id)) {
      const owner = ownerAt(facts, run, call.at);
      if (call.epoch !== owner) {
        found.push(`I3: epoch ${call.epoch} stored a model response while epoch ${owner} owned the run`);
      }
    }
  }
  // A restarted run has inherited its actions; the journal stays with the run they were asked for in.
  const restarted = new Set(
    facts.events.filter(({ kind }) => kind === 'run_restarted').map(({ runId }) => runId),
  );
  for (const { id, runId, segment, path } of facts.actions) {
    const asked = facts.modelCalls.some(
      (call) =>
        (call.runId === runId || restarted.has(runId)) && call.segment === segment && call.path === path,
    );
    if (!asked) {
      found.push(`I3: action ${id} exists without the model response that asked for it`);
    }
  }
  return found;
}

function ownerAt(facts: Facts, run: RunFact, at: Moment): number {
  const claims = facts.events.filter(({ runId, kind, at: claimed }) => {
    return runId === run.id && kind === 'run_claimed' && claimed <= at;
  });
  return Number(claims.at(-1)?.data.epoch ?? 0);
}
