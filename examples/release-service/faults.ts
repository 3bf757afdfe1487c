/**
 * What can be made to go wrong. Each fault acts at one stage of a call:
 *
 * | stage         | faults                                     |
 * |---------------|--------------------------------------------|
 * | arrival       | drop, refuse                               |
 * | keys          | forget_keys                                |
 * | before_commit | delay_commit, wait_for_gate(before_commit) |
 * | visibility    | lag_lookup                                 |
 * | after_commit  | delay_answer, wait_for_gate(after_commit)  |
 * | answer        | commit_then_drop, wrong_answer             |
 *
 * Faults of different stages combine in one call (a late commit whose answer is also dropped); faults of the
 * same stage queue up, oldest first. A call takes its faults when it arrives, so a fault never hits a call
 * that was already under way. A call dropped or refused on arrival, or refused for its key, leaves the later
 * stages' faults to the next one. A replayed call takes them too, and is delayed, dropped or answered wrongly
 * as told, but commits nothing.
 */
import type { Fault, FaultRequest } from './types.ts';

export type FaultStage = 'arrival' | 'keys' | 'before_commit' | 'visibility' | 'after_commit' | 'answer';

type ActiveFault = { kind: string | undefined; fault: Fault; callsLeft: number };

/** Oldest first. */
export type FaultList = ActiveFault[];

export function addFault(faults: FaultList, request: FaultRequest): void {
  const next = request.next ?? 1;
  faults.push({ kind: request.kind, fault: request.fault, callsLeft: next === 0 ? Infinity : next });
}

/** The fault that this call meets at this stage, used up by one; undefined when all goes well. */
export function takeFault(faults: FaultList, kind: string, stage: FaultStage): Fault | undefined {
  const index = faults.findIndex(
    (active) => (active.kind ?? kind) === kind && stageOf(active.fault) === stage,
  );
  const active = faults[index];
  if (!active) return undefined;
  active.callsLeft -= 1;
  if (active.callsLeft === 0) faults.splice(index, 1);
  return active.fault;
}

/** The faults not used up yet, as they would be requested now. */
export function listFaults(faults: FaultList): FaultRequest[] {
  return faults.map(({ kind, fault, callsLeft }) => ({
    ...(kind === undefined ? {} : { kind }),
    next: callsLeft === Infinity ? 0 : callsLeft,
    fault,
  }));
}

function stageOf(fault: Fault): FaultStage {
  switch (fault.type) {
    case 'drop':
    case 'refuse':
      return 'arrival';
    case 'forget_keys':
      return 'keys';
    case 'delay_commit':
      return 'before_commit';
    case 'lag_lookup':
      return 'visibility';
    case 'delay_answer':
      return 'after_commit';
    case 'commit_then_drop':
    case 'wrong_answer':
      return 'answer';
    case 'wait_for_gate':
      return fault.when;
  }
}
