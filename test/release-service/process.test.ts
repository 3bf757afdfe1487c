import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { releaseClient } from '../../examples/release-service/client.ts';
import { startReleaseService } from '../../examples/release-service/server.ts';
import { startProvider } from '../support/provider.ts';

const BODY = { release: 'v7', environment: 'staging' };
const MAIN = fileURLToPath(new URL('../../dist/examples/release-service/main.js', import.meta.url));

describe('the journal file', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'release-service-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test('a service started on the file of another remembers its effects, keys, counts and log', async () => {
    const journalFile = join(folder, 'remember.jsonl');
    const before = await startReleaseService({ journalFile });
    const receipt = await releaseClient(before.url).create('releases', BODY, { idempotencyKey: 'k1' });
    const log = await releaseClient(before.url).log();
    await before.close();
    // A line torn by a crash in the middle of a write.
    writeFileSync(journalFile, `${readFileSync(journalFile, 'utf8')}{"entry":{"seq`);

    const after = await startReleaseService({ journalFile });
    const again = releaseClient(after.url);
    expect(await again.log()).toEqual(log);
    expect(await again.create('releases', BODY, { idempotencyKey: 'k1' })).toEqual(receipt);
    expect(await again.counts()).toMatchObject({ calls: 2, commits: 1 });
    const next = await again.create('releases', BODY, { idempotencyKey: 'k2' });
    expect(next.id).toBe('releases-2');
    await after.close();

    // What was written after the torn line is whole.
    const third = await startReleaseService({ journalFile });
    expect(await releaseClient(third.url).find('releases', 'k2')).toEqual({ found: true, effects: [next] });
    await releaseClient(third.url).reset();
    await third.close();
    expect(readFileSync(journalFile, 'utf8')).toBe('');
  });
});

describe('the process', () => {
  test('serves on a port of its own and exits 0 when stopped', async () => {
    const provider = await startProvider();
    expect(provider.pid).not.toBe(process.pid);
    await provider.client.create('releases', BODY, { idempotencyKey: 'k1' });
    expect(await provider.client.counts()).toMatchObject({ calls: 1, commits: 1 });
    await provider.stop();
    await expect(provider.client.counts()).rejects.toThrow(TypeError);
    expect(() => process.kill(provider.pid, 0)).toThrow('ESRCH');
  });

  test('killed after a commit and started again, it still knows the key', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'release-service-'));
    const journalFile = join(folder, 'killed.jsonl');
    const first = await startProvider({ journalFile });
    await first.client.fault({ fault: { type: 'wait_for_gate', gate: 'g', when: 'after_commit' } });
    const call = first.client.create('releases', BODY, { idempotencyKey: 'k1' });
    const lost = expect(call).rejects.toThrow(TypeError);
    await first.client.waitFor('held');
    process.kill(first.pid, 'SIGKILL');
    await lost;
    const port = Number(new URL(first.url).port);
    const second = await startProvider({ port, journalFile });
    expect(second.url).toBe(first.url);
    expect(await second.client.find('releases', 'k1')).toMatchObject({ found: true });
    await second.client.create('releases', BODY, { idempotencyKey: 'k1' });
    expect(await second.client.counts()).toMatchObject({ calls: 2, commits: 1 });
    await second.stop();
    rmSync(folder, { recursive: true });
  });

  test.each(['a pipe that ends', '/dev/null'])('exits by itself when its stdin is %s', async (stdin) => {
    const child = spawn(process.execPath, [MAIN, '--exit-with-parent'], {
      stdio: [stdin === '/dev/null' ? 'ignore' : 'pipe', 'ignore', 'inherit'],
    });
    child.stdin?.end();
    expect(await once(child, 'exit')).toEqual([0, null]);
  });

  test('a wrong option is refused with exit code 2', async () => {
    const child = spawn(process.execPath, [MAIN, '--port', 'x'], { stdio: 'ignore' });
    expect(await once(child, 'exit')).toEqual([2, null]);
  });
});
