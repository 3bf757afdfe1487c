import { createServer, type IncomingMessage, type Server } from 'node:http';
import { createServer as createTlsServer, globalAgent } from 'node:https';
import { createServer as createTcpServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { httpEffect, NeverSent, ProviderRefused } from '../../src/actions/index.ts';
import { LOCALHOST_TLS } from '../fixtures/localhost-tls.ts';

let server: Server;
let url = '';
let seen: { headers: IncomingMessage['headers']; body: string; method: string | undefined }[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      seen.push({ headers: request.headers, body, method: request.method });
      const status = Number(request.url?.slice(1));
      if (request.url === '/drop') {
        request.socket.destroy();
      } else if (request.url === '/cut') {
        response.writeHead(201, { 'content-length': '100' });
        response.write('{"id":');
        setTimeout(() => request.socket.destroy(), 20);
      } else if (request.url !== '/never') {
        response.writeHead(status, {
          'content-type': 'application/json',
          ...(status === 307 ? { location: '/201' } : {}),
        });
        response.end(JSON.stringify({ status }));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
});

afterAll(() => new Promise((resolve) => server.close(resolve)));

const send = (path: string, more: Partial<Parameters<typeof httpEffect>[0]> = {}) =>
  httpEffect({
    url: `${url}/${path}`,
    operationKey: 'key-1',
    signal: AbortSignal.timeout(2_000),
    body: { amount: 10 },
    ...more,
  });

const classOf = (path: string, more?: Partial<Parameters<typeof httpEffect>[0]>) =>
  send(path, more).then(
    () => 'done',
    (error: unknown) =>
      error instanceof ProviderRefused ? 'refused' : error instanceof NeverSent ? 'never sent' : 'unknown',
  );

describe('httpEffect', () => {
  it('sends the operation key and the JSON body once, and returns the receipt', async () => {
    seen = [];
    expect(await send('201')).toEqual({ status: 201, body: { status: 201 } });
    expect(seen).toMatchObject([
      {
        method: 'POST',
        body: '{"amount":10}',
        headers: { 'idempotency-key': 'key-1', 'content-type': 'application/json' },
      },
    ]);
    await send('200', { method: 'DELETE', keyHeader: 'X-Request-Id', body: undefined });
    expect(seen[1]).toMatchObject({ method: 'DELETE', body: '', headers: { 'x-request-id': 'key-1' } });
  });

  it.each([
    ['400', 'refused'],
    ['403', 'refused'],
    ['404', 'refused'],
    ['422', 'refused'],
    ['429', 'never sent'],
    ['408', 'unknown'],
    ['409', 'unknown'],
    ['425', 'unknown'],
    ['307', 'unknown'],
    ['500', 'unknown'],
    ['502', 'unknown'],
    ['503', 'unknown'],
    ['drop', 'unknown'],
    ['cut', 'done'],
  ])('reads an answer of %s as %s', async (path, expected) => {
    seen = [];
    expect(await classOf(path)).toBe(expected);
    expect(seen).toHaveLength(1);
  });

  it('knows nothing after the deadline', async () => {
    expect(await classOf('never', { signal: AbortSignal.timeout(80) })).toBe('unknown');
  });

  it('knows that nothing was sent when no connection stood, and only then', async () => {
    const closed = createTcpServer();
    const port = await new Promise<number>((resolve) =>
      closed.listen(0, '127.0.0.1', () => resolve((closed.address() as { port: number }).port)),
    );
    await new Promise((resolve) => closed.close(resolve));
    expect(await classOf('', { url: `http://127.0.0.1:${port}/` })).toBe('never sent');
    const hangUp = createTcpServer((socket) => socket.destroy());
    const hangUpPort = await new Promise<number>((resolve) =>
      hangUp.listen(0, '127.0.0.1', () => resolve((hangUp.address() as { port: number }).port)),
    );
    expect(await classOf('', { url: `http://127.0.0.1:${hangUpPort}/` })).toBe('unknown');
    await new Promise((resolve) => hangUp.close(resolve));
  });

  it('knows that nothing was sent when the request could not even be made', async () => {
    expect(await classOf('', { url: 'no url at all' })).toBe('never sent');
    expect(await classOf('200', { headers: { 'x-bad': 'line\nbreak' } })).toBe('never sent');
  });

  it('speaks TLS, over new and kept connections, and sends nothing to a stranger', async () => {
    let requests = 0;
    const secure = createTlsServer(LOCALHOST_TLS, (request, response) => {
      requests += 1;
      request.resume().on('end', () => response.end('{"ok":true}'));
    });
    const port = await new Promise<number>((resolve) =>
      secure.listen(0, '127.0.0.1', () => resolve((secure.address() as { port: number }).port)),
    );
    const at = { url: `https://127.0.0.1:${port}/` };
    try {
      expect(await classOf('', at)).toBe('never sent');
      globalAgent.options.ca = LOCALHOST_TLS.cert;
      expect(await send('', at)).toEqual({ status: 200, body: { ok: true } });
      expect(await classOf('', at)).toBe('done');
      expect(await classOf('', { ...at, inTime: () => false })).toBe('never sent');
      expect(requests).toBe(2);
    } finally {
      delete globalAgent.options.ca;
      globalAgent.destroy();
      await new Promise((resolve) => secure.close(resolve));
    }
  });

  it('sends nothing once the window has passed, also over a connection that stands already', async () => {
    await send('200');
    seen = [];
    for (let tries = 0; tries < 2; tries += 1) {
      expect(await classOf('200', { inTime: () => false })).toBe('never sent');
    }
    expect(await classOf('200', { inTime: () => true })).toBe('done');
    expect(seen).toHaveLength(1);
  });

  it('lets a provider’s own rules decide first', async () => {
    expect(await classOf('409', { proves: ({ status }) => (status === 409 ? 'done' : undefined) })).toBe(
      'done',
    );
    expect(await classOf('422', { proves: () => 'nothing' })).toBe('unknown');
    expect(await classOf('500', { proves: () => undefined })).toBe('unknown');
  });
});
