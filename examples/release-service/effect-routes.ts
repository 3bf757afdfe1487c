/** The provider's own API: create an effect, ask for one. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Call, Outcome } from './calls.ts';
import { performCall } from './calls.ts';
import { callerGone, readJson, sendJson } from './http.ts';
import { readKey, readKind, readLookup, readObject } from './input.ts';
import { note } from './journal.ts';
import { effectsByKey, effectsByNatural } from './store.ts';
import type { World } from './world.ts';
import { dedupes } from './world.ts';

export type Exchange = {
  req: IncomingMessage;
  res: ServerResponse;
  query: URLSearchParams;
  /** The `:name` part of the path. */
  name: string | undefined;
};

/** `POST /effects/:kind` */
export async function createEffect(currentWorld: () => World, exchange: Exchange): Promise<void> {
  const { req, res } = exchange;
  const kind = readKind(exchange.name);
  const body = readObject(await readJson(req));
  const world = currentWorld();
  const key = readKey(req.headers['idempotency-key'], { required: dedupes(world, kind) });
  const call: Call = { kind, key, body };
  const outcome = await performCall(world, call);
  deliver(world, call, outcome, { req, res });
}

/** Logs what the caller will see, then lets the caller see it: a test that got its answer finds it in the log. */
function deliver(
  world: World,
  call: Call,
  outcome: Outcome,
  { req, res }: { req: IncomingMessage; res: ServerResponse },
): void {
  const facts = { kind: call.kind, key: call.key };
  const answeredAs = callerGone(res) ? 'undelivered' : 'answered';
  switch (outcome.type) {
    case 'receipt': {
      const { effect, replayed } = outcome;
      const status = replayed ? 200 : 201;
      note(world.journal, answeredAs, { ...facts, effectId: effect.id, status, replayed });
      const headers: Record<string, string> = replayed ? { 'idempotent-replayed': 'true' } : {};
      sendJson(req, res, { status, body: effect, headers });
      break;
    }
    case 'wrong_answer': {
      note(world.journal, answeredAs, { ...facts, effectId: outcome.effect.id, status: 500 });
      sendJson(req, res, { status: 500, body: { code: 'internal', message: 'something went wrong' } });
      break;
    }
    case 'refused':
      note(world.journal, 'refused', { ...facts, status: outcome.status });
      sendJson(req, res, { status: outcome.status, body: outcome.body });
      break;
    case 'dropped':
      note(world.journal, 'dropped', facts);
      req.socket.destroy();
      break;
    case 'world_ended':
      req.socket.destroy();
      break;
  }
}

/** `GET /effects/:kind?key=K` or `?natural=field:value` */
export function lookUpEffects(world: World, { req, res, query, name }: Exchange): void {
  const kind = readKind(name);
  const wanted = readLookup(query);
  const effects =
    'key' in wanted
      ? effectsByKey(world.store, kind, wanted.key)
      : effectsByNatural(world.store, kind, wanted.natural);
  note(world.journal, 'lookup', { kind, ...wanted, found: effects.length > 0 });
  sendJson(req, res, { status: 200, body: { found: effects.length > 0, effects } });
}
