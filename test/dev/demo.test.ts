import { spawn } from 'node:child_process';
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cleanEnv, MAIN } from '../cli/run-cli.ts';
import { processesOf, until } from './processes.ts';

/** Everything a demo leaves lies under its temporary folder, so a folder of our own tells what is left. */
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'countersign-demo-test-'));
  // As root, Postgres runs as somebody else, and would keep its cluster elsewhere if it could not come through here.
  await chmod(folder, 0o711);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function startDemo(args: string[]) {
  const child = spawn(process.execPath, [MAIN, 'demo', ...args], {
    env: cleanEnv({ TMPDIR: folder }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  return { child, ended, stdout: text(child.stdout), stderr: text(child.stderr) };
}

describe('the demo', () => {
  it('kills a worker in the middle of an approved effect, and there is exactly one', async () => {
    const demo = startDemo(['--json']);
    const [code, stdout, stderr] = await Promise.all([demo.ended, demo.stdout, demo.stderr]);
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/^[^\n]+\n$/);
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({
      effects: 1,
      calls: 1,
      duplicates: 2,
      status: 'completed',
      digest: expect.stringMatching(/^[0-9a-f]{64}$/),
      runId: expect.any(String),
      approvalId: expect.any(String),
      explanation: { status: 'completed', unknown: [] },
    });
    expect(report.finishedBy).not.toBe(report.killedPid);
    expect(report.explanation.text).toMatch(/taking over from one that went silent/);
    expect(processesOf(folder)).toEqual([]);
    expect(await readdir(folder)).toEqual([]);
  }, 120_000);

  it('interrupted in the middle, leaves nothing running and nothing lying about', async () => {
    const demo = startDemo([]);
    let told = '';
    demo.child.stdout.on('data', (chunk: Buffer) => {
      told += chunk.toString();
    });
    await until('the kill', () => told.includes('kill -9'), 90_000);
    demo.child.kill('SIGINT');
    expect(await demo.ended).toBe(130);
    expect(await demo.stderr).toMatch(/error INTERRUPTED/);
    expect(processesOf(folder)).toEqual([]);
    expect(await readdir(folder)).toEqual([]);
  }, 120_000);
});
