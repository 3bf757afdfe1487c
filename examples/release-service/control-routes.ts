/** The strings that tests and the demo pull: faults, modes, gates, counts, the log, waiting, reset. */
import type { Exchange } from './effect-routes.ts';
import { addFault, listFaults } from './faults.ts';
import { holdGate, openGate } from './holds.ts';
import { RequestRefused, readJson, sendJson } from './http.ts';
import { readFaultRequest, readGate, readKind, readMode, readWait } from './input.ts';
import { countOf, orderedLog, summarise, waitForCount } from './journal.ts';
import type { World } from './world.ts';

/** `GET /counts` */
export function answerCounts(world: World, { req, res }: Exchange): void {
  sendJson(req, res, { status: 200, body: summarise(world.journal) });
}

/** `GET /log` */
export function answerLog(world: World, { req, res }: Exchange): void {
  sendJson(req, res, { status: 200, body: orderedLog(world.journal) });
}

/** `POST /faults`. A gate named here is closed at once, so that no call can slip past it. */
export async function postFault(currentWorld: () => World, { req, res }: Exchange): Promise<void> {
  const request = readFaultRequest(await readJson(req));
  const world = currentWorld();
  addFault(world.faults, request);
  if (request.fault.type === 'wait_for_gate') holdGate(world.holds, request.fault.gate);
  sendJson(req, res, { status: 201, body: listFaults(world.faults) });
}

/** `GET /faults`: the ones not used up yet. */
export function answerFaults(world: World, { req, res }: Exchange): void {
  sendJson(req, res, { status: 200, body: listFaults(world.faults) });
}

/** `DELETE /faults`. Calls already under way keep what they took; gates stay as they are. */
export function clearFaults(world: World, { req, res }: Exchange): void {
  world.faults.length = 0;
  sendJson(req, res, { status: 200, body: [] });
}

/** `PUT /modes/:kind` */
export async function putMode(currentWorld: () => World, { req, res, name }: Exchange): Promise<void> {
  const kind = readKind(name);
  const mode = readMode(await readJson(req));
  currentWorld().dedupe.set(kind, mode.dedupe);
  sendJson(req, res, { status: 200, body: { kind, ...mode } });
}

/** `POST /gates/:name/hold` */
export function postHold(world: World, { req, res, name }: Exchange): void {
  const gate = readGate(name);
  holdGate(world.holds, gate);
  sendJson(req, res, { status: 200, body: { gate, held: true } });
}

/** `DELETE /gates/:name`, and `POST /gates/:name/release` which is the same. */
export function releaseGate(world: World, { req, res, name }: Exchange): void {
  const gate = readGate(name);
  const released = openGate(world.holds, gate);
  sendJson(req, res, { status: 200, body: { gate, held: false, released } });
}

/** `GET /wait`: answers 200 once the count is reached, 504 at the timeout, 409 when a reset came between. */
export async function waitForEvent(world: World, { req, res, query }: Exchange): Promise<void> {
  const wanted = readWait(query);
  const wait = waitForCount(world.journal, wanted);
  res.on('close', wait.cancel);
  const result = await wait.result;
  const count = countOf(world.journal, wanted.event, wanted);
  if (result === 'timeout') {
    const message = `${count} of ${wanted.count} '${wanted.event}' after ${wanted.timeoutMs} ms`;
    throw new RequestRefused(504, 'wait_timeout', message);
  }
  if (result === 'ended') throw new RequestRefused(409, 'wait_ended', 'the service was reset or closed');
  sendJson(req, res, { status: 200, body: { event: wanted.event, count } });
}
