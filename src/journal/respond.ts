import { randomUUID } from 'node:crypto';
import { type ActionDefinition, type LedgerAction, mintAction, Suspended } from '../actions/index.ts';
import {
  addUsage,
  type ModelAnswer,
  type ModelAsk,
  ONE_REQUEST,
  type UsageNumbers,
} from '../agents-sdk/index.ts';
import { CountersignError } from '../errors.ts';
import { callFunction, callStep, type Database } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';

/** A journal row as the claim loads it. */
export type StoredCall = { path: string; n: number; request_digest: string; sealed: string };

export type JournalEnvironment = {
  db: Database;
  keys: KeyRing;
  tenant: string;
  runId: string;
  epoch: number;
  segment: number;
  /** Rows of this segment stored by earlier claims. */
  stored: Map<string, StoredCall>;
  definitions: ReadonlyMap<string, ActionDefinition>;
  /** The segment's ledger rows by call id; new ones are added. */
  actions: Map<string, LedgerAction>;
  /** Responses that ask for nothing: stored by the transaction that finishes the run. */
  unstored: JournalRow[];
  /** Sum over the answers of this segment, stored ones included. */
  answered: UsageNumbers;
  /** Sum over the calls of this claim that came to nothing, as far as their cost is known. */
  wasted: UsageNumbers;
};

export type JournalRow = {
  path: string;
  n: number;
  request_digest: string;
  sealed: string;
  usage: UsageNumbers;
};

/**
 * Answers one model call of a segment: from the journal, or live and then into it.
 *
 * @throws REPLAY_DIVERGED when the stored call at this place was asked something else and an effect may depend on it.
 * @throws Suspended (LEASE_LOST) when this worker is no longer the owner.
 */
export async function respond(env: JournalEnvironment, ask: ModelAsk): Promise<ModelAnswer> {
  const answer = await answerTo(env, ask);
  env.answered = addUsage(env.answered, answer.usage);
  return answer;
}

async function answerTo(env: JournalEnvironment, ask: ModelAsk): Promise<ModelAnswer> {
  const key = callKey(ask.path, ask.n);
  const stored = env.stored.get(key);
  if (stored?.request_digest === ask.requestDigest) {
    return env.keys.openJson(
      'state',
      Buffer.from(stored.sealed, 'base64'),
      bindingOf(env, key),
    ) as unknown as ModelAnswer;
  }
  if (stored !== undefined) {
    await supersede(env, ask);
  }
  const answer = await askLive(env, ask);
  const minted = takeCalls(env, answer);
  const row: JournalRow = {
    path: ask.path,
    n: ask.n,
    request_digest: ask.requestDigest,
    sealed: env.keys.seal('state', JSON.stringify(answer), bindingOf(env, key)).toString('base64'),
    usage: answer.usage,
  };
  if (ask.path === '' && !answer.output.some((item) => item.type === 'function_call')) {
    // The outer agent's answer with no call in it: the only thing that acts on it is the finish, which stores it.
    env.unstored.push(row);
    return answer;
  }
  await store(env, row, minted);
  return answer;
}

async function askLive(env: JournalEnvironment, ask: ModelAsk): Promise<ModelAnswer> {
  try {
    // A copy, as a replay will read it: a model may hand out the same objects again, and they are changed below.
    return JSON.parse(JSON.stringify(await ask.ask())) as ModelAnswer;
  } catch (error) {
    env.wasted = addUsage(env.wasted, ONE_REQUEST);
    throw error;
  }
}

/** @throws Suspended (LEASE_LOST) when this worker is no longer the owner. */
async function store(
  env: JournalEnvironment,
  row: JournalRow,
  minted: ReturnType<typeof takeCalls>,
): Promise<void> {
  let stored = false;
  try {
    const { outcome } = (await callStep(env.db, 'journal_responses', {
      tenant: env.tenant,
      run: env.runId,
      epoch: env.epoch,
      call: row,
      actions: minted.map(({ row: action }) => action),
    })) as { outcome: string };
    stored = outcome === 'stored';
  } finally {
    if (!stored) {
      env.wasted = addUsage(env.wasted, row.usage);
    }
  }
  if (!stored) {
    throw new Suspended('LEASE_LOST', true);
  }
  for (const { action } of minted) {
    env.actions.set(action.callId, action);
  }
}

/**
 * The replay asks something else than what was stored here. If nothing minted here or later was ever sent, that tail
 * counts no more and the segment goes on live; otherwise nobody may guess.
 */
async function supersede(env: JournalEnvironment, ask: ModelAsk): Promise<void> {
  const [row] = await callFunction<{ supersede_journal: string[] | null }>(env.db, 'supersede_journal', [
    env.tenant,
    env.runId,
    env.epoch,
    ask.path,
    ask.n,
  ]);
  const places = row?.supersede_journal ?? null;
  if (places === null) {
    throw new Suspended('LEASE_LOST', true);
  }
  if (places.length === 0) {
    throw new CountersignError(
      'REPLAY_DIVERGED',
      'The replayed segment asks its model something else than before, after an action was already sent.',
      { details: { path: ask.path, n: ask.n, segment: env.segment } },
    );
  }
  for (const place of places) {
    env.stored.delete(place);
  }
}

/** Replaces the provider's call ids, and mints the ledger row of each call of an action(). */
function takeCalls(env: JournalEnvironment, answer: ModelAnswer) {
  const minted = [];
  for (const item of answer.output) {
    if (item.type !== 'function_call') {
      continue;
    }
    const id = randomUUID();
    item.callId = `call_${id}`;
    const definition = env.definitions.get(String(item.name));
    if (definition !== undefined) {
      const argumentsText = String(item.arguments);
      minted.push(
        mintAction({
          id,
          callId: `call_${id}`,
          tenant: env.tenant,
          definition,
          argumentsText,
          keys: env.keys,
        }),
      );
      item.arguments = readable(argumentsText);
    }
  }
  return minted;
}

/**
 * Arguments that are no JSON object would take the SDK's own way: a pause in which nobody can decide anything, and then
 * a text of its own. The ledger has refused them already; as an object they come to it for the answer, and the model
 * still sees what it wrote.
 */
function readable(argumentsText: string): string {
  try {
    const value: unknown = JSON.parse(argumentsText);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return argumentsText;
    }
  } catch {
    // no JSON at all
  }
  return JSON.stringify({ notAnObject: argumentsText });
}

export function callKey(path: string, n: number): string {
  return `${path}#${n}`;
}

function bindingOf(env: JournalEnvironment, key: string) {
  return {
    tenant: env.tenant,
    table: 'model_calls',
    column: 'sealed',
    row: `${env.runId}/${env.segment}/${key}`,
  };
}
