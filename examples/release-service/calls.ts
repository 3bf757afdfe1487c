/**
 * One call, in order: received, arrival faults, key rules, commit, answer.
 *
 * A key is *in progress* from admission to commit. From the commit on a repeat gets the first receipt, even
 * while the first call's own answer is still on its way: the work is done, only the answer is late.
 */
import type { FaultStage } from './faults.ts';
import { takeFault } from './faults.ts';
import { delay, isHeld, passGate } from './holds.ts';
import { note } from './journal.ts';
import { commitEffect, occupyKey, recallKey } from './store.ts';
import type { Effect, Fault, JsonObject, JsonValue } from './types.ts';
import type { World } from './world.ts';
import { dedupes } from './world.ts';

export type Call = { kind: string; key: string | null; body: JsonObject };

/** What the caller is to see. */
export type Outcome =
  | { type: 'receipt'; effect: Effect; replayed: boolean }
  | { type: 'wrong_answer'; effect: Effect }
  | { type: 'refused'; status: number; body: JsonValue }
  | { type: 'dropped' }
  | { type: 'world_ended' };

/** Carries a call as far as its answer. Everything up to the first wait happens before this returns. */
export async function performCall(world: World, call: Call): Promise<Outcome> {
  note(world.journal, 'received', { kind: call.kind, key: call.key });
  const arrival = takeFault(world.faults, call.kind, 'arrival');
  if (arrival) return turnAway(arrival);

  const forgets = takeFault(world.faults, call.kind, 'keys') !== undefined;
  const { key } = call;
  const checked = key !== null && dedupes(world, call.kind);
  const memory = checked && !forgets ? recallKey(world.store, { ...call, key }) : ({ type: 'new' } as const);
  if (memory.type === 'in_progress') {
    return refusal(409, 'in_progress', 'the first call with this key is not finished');
  }
  if (memory.type === 'key_reused') {
    return refusal(422, 'key_reused', 'this key was first used with another body');
  }

  const plan = planFaults(world, call.kind);
  const release = checked && memory.type === 'new' ? occupyKey(world.store, { ...call, key }) : () => {};
  const replayed = memory.type === 'first_receipt';
  let effect: Effect;
  try {
    if (!replayed) await suffer(world, call, plan.beforeCommit);
    if (world.ended) return { type: 'world_ended' };
    effect = replayed ? memory.effect : commit(world, call, plan.visibility);
  } finally {
    release();
  }
  await suffer(world, call, plan.afterCommit);
  if (world.ended) return { type: 'world_ended' };
  if (plan.answer?.type === 'commit_then_drop') return { type: 'dropped' };
  if (plan.answer?.type === 'wrong_answer') return { type: 'wrong_answer', effect };
  return { type: 'receipt', effect, replayed };
}

type Plan = {
  beforeCommit: Fault | undefined;
  visibility: Fault | undefined;
  afterCommit: Fault | undefined;
  answer: Fault | undefined;
};

function planFaults(world: World, kind: string): Plan {
  const take = (stage: FaultStage): Fault | undefined => takeFault(world.faults, kind, stage);
  return {
    beforeCommit: take('before_commit'),
    visibility: take('visibility'),
    afterCommit: take('after_commit'),
    answer: take('answer'),
  };
}

function turnAway(fault: Fault): Outcome {
  if (fault.type !== 'refuse') return { type: 'dropped' };
  const body = fault.body ?? { code: 'refused', message: 'a fault was asked for' };
  return { type: 'refused', status: fault.status, body };
}

function refusal(status: number, code: string, message: string): Outcome {
  return { type: 'refused', status, body: { code, message } };
}

/** Waits as the fault says. */
async function suffer(world: World, call: Call, fault: Fault | undefined): Promise<void> {
  if (fault?.type === 'delay_commit' || fault?.type === 'delay_answer') await delay(world.holds, fault.ms);
  if (fault?.type !== 'wait_for_gate' || !isHeld(world.holds, fault.gate)) return;
  const passed = passGate(world.holds, fault.gate);
  note(world.journal, 'held', { kind: call.kind, key: call.key, gate: fault.gate });
  await passed;
}

/** The effect, its place in the log and its count come into being in one synchronous step. */
function commit(world: World, call: Call, visibility: Fault | undefined): Effect {
  const lagMs = visibility?.type === 'lag_lookup' ? visibility.ms : 0;
  const effect = commitEffect(world.store, call, performance.now() + lagMs);
  const facts = { kind: call.kind, key: call.key, effectId: effect.id };
  note(world.journal, 'committed', facts, effect);
  return effect;
}
