import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { startOnFreePort } from '../../src/dev/ports.ts';
import { Supervisor } from '../../src/dev/supervisor.ts';

const servers: Server[] = [];

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => new Promise((done) => server.close(done))));
});

async function listen(port: number): Promise<number> {
  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  servers.push(server);
  return (server.address() as { port: number }).port;
}

async function freePort(): Promise<number> {
  const port = await listen(0);
  await new Promise((done) => servers.pop()?.close(done));
  return port;
}

describe('startOnFreePort', () => {
  it('keeps to the port that was preferred while it is free', async () => {
    const preferred = await freePort();
    expect(await startOnFreePort(preferred, listen)).toBe(preferred);
  });

  it('takes another port when something listens there', async () => {
    const taken = await listen(0);
    expect(await startOnFreePort(taken, listen)).not.toBe(taken);
  });

  it('takes another port when a second program took it between the choice and the start', async () => {
    const preferred = await freePort();
    const tried: number[] = [];
    const port = await startOnFreePort(preferred, async (each) => {
      tried.push(each);
      if (tried.length === 1) {
        await listen(each);
      }
      return listen(each);
    });
    expect(tried).toEqual([preferred, port]);
    expect(port).not.toBe(preferred);
  });

  it('passes on a failure that has nothing to do with the port, after one try', async () => {
    let tries = 0;
    const failing = startOnFreePort(await freePort(), async () => {
      tries++;
      throw new Error('no such file');
    });
    await expect(failing).rejects.toThrow('no such file');
    expect(tries).toBe(1);
  });

  it('ends what listens and is never ready, and tries nothing else', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'countersign-ports-'));
    const file = join(folder, 'listens.mjs');
    await writeFile(
      file,
      `import { createServer } from 'node:net';
      createServer().listen(Number(process.argv[2]), '127.0.0.1', () => console.log('hello'));`,
    );
    const supervisor = new Supervisor({ note: () => undefined, restart: false, onChange: () => undefined });
    const tried: number[] = [];
    const starting = startOnFreePort(await freePort(), (port) => {
      tried.push(port);
      return supervisor.start({ name: 'listens', file, args: [String(port)], env: process.env });
    });
    await expect(starting).rejects.toMatchObject({ code: 'PROCESS_NOT_STARTED' });
    expect(tried).toHaveLength(1);
    expect(supervisor.pids()).toEqual({});
    await rm(folder, { recursive: true });
  }, 20_000);
});
