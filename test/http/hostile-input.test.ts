import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runApi } from '../../src/index.ts';
import { createLog, describeError } from '../../src/log.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { createStage, type Stage } from './stage.ts';

let stage: Stage;
const lines: string[] = [];
beforeAll(async () => {
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString());
      done();
    },
  });
  const log = pino({ level: 'trace', serializers: { err: describeError } }, sink);
  stage = await createStage('http hostile', { log });
});
afterAll(() => stage?.close());

const SECRET = 'sk-hunter2';
const start = (body: string | Buffer, type = 'application/json') =>
  stage.send('POST', '/v1/runs', {
    headers: { authorization: `Bearer ${stage.tokens['acme/paula']}`, 'content-type': type },
    body: typeof body === 'string' ? body : new Uint8Array(body),
  });
const runsSoFar = () =>
  stage.fleet.rows<{ n: number }>('select count(*)::integer as n from countersign.runs');

describe('a body that two honest readers could read differently', () => {
  it.each([
    ['a key given twice', '{"workflow":"pay","workflow":"refund","input":"x"}'],
    ['a key given twice, once escaped', '{"workflow":"pay","work\\u0066low":"refund","input":"x"}'],
    ['__proto__', '{"workflow":"pay","input":"x","__proto__":{"key":"k"}}'],
    ['an integer beyond 2^53', '{"workflow":"pay","input":"x","context":{"order":9007199254740993}}'],
    [
      'a number that no double carries',
      '{"workflow":"pay","input":"x","context":{"n":10.0000000000000000001}}',
    ],
    ['half a surrogate pair', '{"workflow":"pay","input":"\\ud800"}'],
    ['U+0000', '{"workflow":"pay","input":"a\\u0000b"}'],
    ['too deep', `{"workflow":"pay","input":${'['.repeat(40)}${']'.repeat(40)}}`],
    ['not JSON', 'workflow=pay'],
    ['nothing but a BOM', '\ufeff'],
    ['no object', '"pay"'],
    ['nothing', ''],
  ])('is refused by name and writes nothing: %s', async (_what, body) => {
    const before = await runsSoFar();
    const answer = await start(body);
    expect(answer).toMatchObject({ status: 400, body: { code: 'INPUT_INVALID' } });
    expect(answer.body.details).toHaveProperty('field');
    expect(await runsSoFar()).toEqual(before);
  });

  it('is refused when it is not UTF-8 or not JSON by its content type', async () => {
    const utf16 = Buffer.from('{"workflow":"pay","input":"x"}', 'utf16le');
    expect(await start(utf16)).toMatchObject({ status: 400, body: { code: 'INPUT_INVALID' } });
    expect(await start('{"workflow":"pay","input":"x"}', 'text/plain')).toMatchObject({
      status: 400,
      body: { code: 'INPUT_INVALID' },
    });
  });
});

describe('a field of the wrong kind', () => {
  it.each([
    ['body.workflow', { input: 'x' }],
    ['body.workflow', { workflow: 7, input: 'x' }],
    ['body.workflow', { workflow: 'w'.repeat(201), input: 'x' }],
    ['body.input', { workflow: 'pay' }],
    ['body.input', { workflow: 'pay', input: { text: SECRET } }],
    ['body.context', { workflow: 'pay', input: 'x', context: [SECRET] }],
    ['body.key', { workflow: 'pay', input: 'x', key: '' }],
    ['body', { workflow: 'pay', input: 'x', wokflow: SECRET }],
  ])('is named (%s) and not repeated', async (field, body) => {
    const answer = await start(JSON.stringify(body));
    expect(answer).toMatchObject({ status: 400, body: { code: 'INPUT_INVALID', details: { field } } });
    expect(JSON.stringify(answer.body)).not.toContain(SECRET);
  });

  it.each(['limit=0', 'limit=501', 'limit=1e2', 'limit=1&limit=2', 'status=busy', 'status=%00', 'q=1'])(
    'in a query is refused: %s',
    async (query) => {
      const answer = await stage.ask('acme/olga', 'GET', `/v1/runs?${query}`);
      expect(answer).toMatchObject({ status: 400, body: { code: 'INPUT_INVALID' } });
    },
  );

  it.each([
    { verdict: 'maybe', fingerprint: '0'.repeat(64) },
    { verdict: 'approve' },
    { verdict: 'approve', fingerprint: '\u0000' },
    { verdict: 'approve', fingerprint: '0'.repeat(64), words: 'x'.repeat(4_001) },
    { verdict: 'approve', fingerprint: '0'.repeat(64), subject: 'somebody else' },
  ])('in a decision is refused before the approval is looked for: %j', async (body) => {
    const answer = await stage.ask('acme/rita', 'POST', '/v1/approvals/none/decisions', body);
    expect(answer).toMatchObject({ status: 400, body: { code: 'INPUT_INVALID' } });
  });
});

describe('size, ids and paths', () => {
  it('a body over the limit is refused with the limit, from its length or on the way', async () => {
    const big = JSON.stringify({ workflow: 'pay', input: 'x'.repeat(300_000) });
    const refused = { status: 413, body: { code: 'BODY_TOO_LARGE', details: { limit: 262_144 } } };
    expect(await start(big)).toMatchObject(refused);
    const deep = JSON.stringify({ workflow: 'pay', input: 'x'.repeat(262_100) });
    expect(Buffer.byteLength(deep)).toBeLessThan(262_144);
    expect((await start(deep)).status).toBe(201);
  });

  it.each(['x', '%00', '..%2f..', "' or 1=1 --", 'ü', 'a'.repeat(1_500)])(
    'an id that is none answers like one that does not exist: %s',
    async (id) => {
      const run = await stage.ask('acme/olga', 'GET', `/v1/runs/${encodeURIComponent(id)}`);
      expect(run).toMatchObject({ status: 404, body: { code: 'RUN_NOT_FOUND' } });
      const approval = await stage.ask('acme/rita', 'GET', `/v1/approvals/${encodeURIComponent(id)}`);
      expect(approval).toMatchObject({ status: 404, body: { code: 'APPROVAL_NOT_FOUND' } });
    },
  );

  it.each([
    ['GET', '/', 'ROUTE_NOT_FOUND'],
    ['GET', '/v2/runs', 'ROUTE_NOT_FOUND'],
    ['DELETE', '/v1/runs', 'ROUTE_NOT_FOUND'],
    ['GET', '/v1/runs/%', 'INPUT_INVALID'],
  ])('%s %s is no route, and says so in the same shape', async (method, path, code) => {
    const answer = await stage.ask('acme/olga', method, path);
    expect(answer.status).toBe(code === 'ROUTE_NOT_FOUND' ? 404 : 400);
    expect(answer.body).toEqual({ code, message: expect.any(String), details: expect.any(Object) });
  });

  it('what is not even HTTP is refused in the same shape', async () => {
    const socket = connect(Number(new URL(stage.api.url).port), '127.0.0.1');
    socket.end('GET / HTTP/1.1\r\nno header\r\n\r\n');
    const [head, body] = (await text(socket)).split('\r\n\r\n');
    expect(head).toMatch(/^HTTP\/1.1 400 /);
    expect(JSON.parse(body ?? '')).toMatchObject({ code: 'INPUT_INVALID' });
  });

  it('no log line holds a body, a query, an id or a token', () => {
    const logged = lines.join('');
    expect(logged).toContain('/v1/runs/:id');
    expect(logged).not.toContain(SECRET);
    expect(logged).not.toContain('or 1=1');
    for (const token of Object.values(stage.tokens)) {
      expect(logged).not.toContain(token);
    }
  });
});

describe('when Postgres gives no answer', () => {
  it('a request is 503 with the code, readiness says so, and liveness does not', async () => {
    const { fleet } = stage;
    const wire = await openWire(fleet.url);
    const keys = KeyRing.parse({ review: fleet.keySpec.review });
    const sha256 = createHash('sha256').update('t').digest('hex');
    const tokens = [{ sha256, tenant: 'acme', subject: 'olga', roles: ['operator'] as const }];
    const api = await runApi({ databaseUrl: wire.url, keys, tokens, log: createLog('x', 'silent') });
    const status = async (path: string) =>
      (await fetch(`${api.url}${path}`, { headers: { authorization: 'Bearer t' } })).status;
    expect([await status('/v1/runs'), await status('/readyz')]).toEqual([200, 200]);
    await wire.cut();
    const answer = await fetch(`${api.url}/v1/runs`, { headers: { authorization: 'Bearer t' } });
    expect([answer.status, await answer.json()]).toMatchObject([503, { code: 'POSTGRES_UNAVAILABLE' }]);
    expect([await status('/readyz'), await status('/healthz')]).toEqual([503, 200]);
    await wire.mend();
    expect([await status('/v1/runs'), await status('/readyz')]).toEqual([200, 200]);
    await api.stop();
    await wire.cut();
  });
});

/** A wire to Postgres that can be cut: every connection through it breaks, and new ones are refused. */
async function openWire(url: string) {
  const target = new URL(url);
  const { hostname, port: farPort } = target;
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    const onward = connect(Number(farPort), hostname);
    for (const end of [socket, onward]) {
      open.add(end);
      end.on('error', () => undefined);
      end.on('close', () => open.delete(end));
    }
    socket.pipe(onward).pipe(socket);
  });
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
  };
  await listen(0);
  const { port } = server.address() as AddressInfo;
  target.port = String(port);
  return {
    url: target.href,
    async cut() {
      server.close();
      for (const end of open) {
        end.destroy();
      }
      await once(server, 'close');
    },
    mend: () => listen(port),
  };
}
