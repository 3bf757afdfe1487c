/** The HTTP server: its life, its routing table, its answers to bad requests. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import * as control from './control-routes.ts';
import type { Exchange } from './effect-routes.ts';
import { createEffect, lookUpEffects } from './effect-routes.ts';
import { callerGone, RequestRefused, sendJson } from './http.ts';
import { restoreEntry } from './journal.ts';
import type { JournalFile } from './journal-file.ts';
import { openJournalFile } from './journal-file.ts';
import { keepEffect } from './store.ts';
import type { World } from './world.ts';
import { createWorld, endWorld } from './world.ts';

/** Longer than any client keeps an idle socket, so that we never close one it is about to use. */
const KEEP_ALIVE_MS = 120_000;

export type ReleaseService = { url: string; port: number; close(): Promise<void> };

type Service = { world: World; file: JournalFile | undefined };
type Handler = (service: Service, exchange: Exchange) => void | Promise<void>;
type Route = { method: string; path: RegExp; handle: Handler };

const ROUTES: readonly Route[] = [
  { method: 'POST', path: /^\/effects\/([^/]+)$/, handle: (s, x) => createEffect(() => s.world, x) },
  { method: 'GET', path: /^\/effects\/([^/]+)$/, handle: (s, x) => lookUpEffects(s.world, x) },
  { method: 'GET', path: /^\/counts$/, handle: (s, x) => control.answerCounts(s.world, x) },
  { method: 'GET', path: /^\/log$/, handle: (s, x) => control.answerLog(s.world, x) },
  { method: 'GET', path: /^\/wait$/, handle: (s, x) => control.waitForEvent(s.world, x) },
  { method: 'POST', path: /^\/faults$/, handle: (s, x) => control.postFault(() => s.world, x) },
  { method: 'GET', path: /^\/faults$/, handle: (s, x) => control.answerFaults(s.world, x) },
  { method: 'DELETE', path: /^\/faults$/, handle: (s, x) => control.clearFaults(s.world, x) },
  { method: 'PUT', path: /^\/modes\/([^/]+)$/, handle: (s, x) => control.putMode(() => s.world, x) },
  { method: 'POST', path: /^\/gates\/([^/]+)\/hold$/, handle: (s, x) => control.postHold(s.world, x) },
  { method: 'POST', path: /^\/gates\/([^/]+)\/release$/, handle: (s, x) => control.releaseGate(s.world, x) },
  { method: 'DELETE', path: /^\/gates\/([^/]+)$/, handle: (s, x) => control.releaseGate(s.world, x) },
  { method: 'POST', path: /^\/reset$/, handle: reset },
];

/**
 * Starts the service on loopback; port 0 or none means a free one. With `journalFile`, effects, counts and log
 * outlive the process; faults, gates and modes never do.
 */
export async function startReleaseService(
  options: { port?: number; journalFile?: string } = {},
): Promise<ReleaseService> {
  const service = openService(options.journalFile);
  const server = createServer((req, res) => void answer(service, req, res));
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(options.port ?? 0, '127.0.0.1', resolve);
    });
  } catch (error) {
    service.file?.close();
    throw error;
  }
  const { port } = server.address() as AddressInfo;
  const shutDown = async (): Promise<void> => {
    endWorld(service.world);
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
    service.file?.close();
  };
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closing ??= shutDown();
    return closing;
  };
  return { url: `http://127.0.0.1:${port}`, port, close };
}

function openService(journalFile: string | undefined): Service {
  const service: Service = { world: createWorld(), file: undefined };
  if (journalFile === undefined) return service;
  const { world } = service;
  const file = openJournalFile(journalFile, ({ entry, effect }) => {
    restoreEntry(world.journal, entry);
    if (effect) keepEffect(world.store, effect, 0);
  });
  world.journal.persist = file.append;
  return { world, file };
}

/** `POST /reset`: a new, empty, faultless world. Calls under way lose their socket. */
function reset(service: Service, { req, res }: Exchange): void {
  endWorld(service.world);
  service.file?.clear();
  service.world = createWorld(service.file?.append);
  sendJson(req, res, { status: 200, body: {} });
}

/** Never rejects: whatever goes wrong becomes an answer, as long as somebody is there to read it. */
async function answer(service: Service, req: IncomingMessage, res: ServerResponse): Promise<void> {
  try {
    const { pathname, searchParams } = readUrl(req.url);
    for (const route of ROUTES) {
      const match = route.method === req.method ? route.path.exec(pathname) : null;
      if (match) return await route.handle(service, { req, res, query: searchParams, name: match[1] });
    }
    throw new RequestRefused(404, 'not_found', `${req.method} ${pathname} is not served here`);
  } catch (error) {
    if (callerGone(res) || res.headersSent) return;
    const refused = error instanceof RequestRefused ? error : undefined;
    const body = { code: refused?.code ?? 'internal', message: refused?.message ?? String(error) };
    sendJson(req, res, { status: refused?.status ?? 500, body });
  }
}

function readUrl(url: string | undefined): URL {
  try {
    return new URL(`http://127.0.0.1${url}`);
  } catch {
    throw new RequestRefused(400, 'url_invalid', 'the request target is not a path');
  }
}
