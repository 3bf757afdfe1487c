import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { arm, type Fault, gate, playRole } from '../../src/failpoints.ts';

const dir = mkdtempSync(path.join(tmpdir(), 'countersign-failpoints-'));
const traceFile = path.join(dir, 'trace.jsonl');

afterEach(() => {
  arm(null);
  rmSync(traceFile, { force: true });
});
afterAll(() => rmSync(dir, { recursive: true }));

/** Passes the gate `times` times; says what each caller got, and how often the work was done. */
async function passing(operation: string, times: number): Promise<{ got: string[]; done: number }> {
  const got: string[] = [];
  let done = 0;
  for (let time = 0; time < times; time += 1) {
    const work = async () => {
      done += 1;
      return 'answer';
    };
    got.push(await gate('queue', operation, work).catch((error: { code: string }) => error.code));
  }
  return { got, done };
}

const poll = (rows: unknown[]) => gate('postgres', 'poll', async () => ({ command: 'SELECT', rows }));
const traced = (): unknown[] =>
  readFileSync(traceFile, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

describe('the gate', () => {
  it('is open when nothing is armed', async () => {
    expect(await passing('publish', 2)).toEqual({ got: ['answer', 'answer'], done: 2 });
  });

  it.each([
    ['error_before', 2],
    ['error_after', 3],
  ] as const)(
    '%s strikes at the planned occurrence, once, like a connection that was reset',
    async (fault, done) => {
      arm({ operation: 'publish', occurrence: 2, fault });
      expect(await passing('other', 2)).toEqual({ got: ['answer', 'answer'], done: 2 });
      expect(await passing('publish', 3)).toEqual({ got: ['answer', 'ECONNRESET', 'answer'], done });
    },
  );

  it('delay_after gives the answer late', async () => {
    arm({ operation: 'publish', occurrence: 1, fault: 'delay_after', ms: 60 });
    const asked = performance.now();
    expect(await passing('publish', 1)).toEqual({ got: ['answer'], done: 1 });
    expect(performance.now() - asked).toBeGreaterThan(50);
  });

  it('strikes in the role it is meant for and in no other', async () => {
    playRole('relay');
    arm({ role: 'worker', operation: 'publish', occurrence: 1, fault: 'error_before' });
    expect((await passing('publish', 1)).got).toEqual(['answer']);
    playRole('worker');
    arm({ role: 'worker', operation: 'publish', occurrence: 1, fault: 'error_before' });
    expect((await passing('publish', 1)).got).toEqual(['ECONNRESET']);
  });

  it('does not count a pass that found nothing to do', async () => {
    arm({ operation: 'poll', occurrence: 2, fault: 'error_after' });
    await poll([1]);
    await poll([]);
    await poll([]);
    await expect(poll([1])).rejects.toMatchObject({ code: 'ECONNRESET' });
  });

  it('tells whoever armed it that the point is reached, before the operation', async () => {
    const order: string[] = [];
    arm(
      { operation: 'publish', occurrence: 1, fault: 'none' },
      {
        onFired: async () => {
          order.push('told');
        },
      },
    );
    await gate('queue', 'publish', async () => order.push('done'));
    expect(order).toEqual(['told', 'done']);
  });

  it('traces what it lets through, with its occurrence, also what fails, and what it injects', async () => {
    playRole('worker');
    arm({ operation: 'publish', occurrence: 2, fault: 'error_after' }, { traceFile });
    await passing('publish', 2);
    await gate('provider', 'execute:pay', async () => Promise.reject(new Error('no'))).catch(() => undefined);
    await poll([]);
    await poll([]);
    const publish = { role: 'worker', kind: 'queue', operation: 'publish' };
    expect(traced()).toEqual([
      { ...publish, occurrence: 1 },
      { ...publish, occurrence: 2 },
      { ...publish, occurrence: 2, fired: 'error_after' },
      { role: 'worker', kind: 'provider', operation: 'execute:pay', occurrence: 1 },
      { role: 'worker', kind: 'postgres', operation: 'poll', occurrence: 0 },
    ]);
  });
});

/** A process with the fault in its environment, whose one operation writes a file. */
function runProcess(fault: string): { signal: string | null; status: number | null; done: boolean } {
  const file = path.join(dir, 'done');
  rmSync(file, { force: true });
  const module = path.join(import.meta.dirname, '../../dist/src/failpoints.js');
  const script = `
    const { gate } = await import(${JSON.stringify(module)});
    const { writeFileSync } = await import('node:fs');
    await gate('provider', 'execute:pay', async () => writeFileSync(${JSON.stringify(file)}, ''));`;
  const { signal, status } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    env: { ...process.env, COUNTERSIGN_FAULT: fault, COUNTERSIGN_TRACE_OPERATIONS: traceFile },
    stdio: 'ignore',
  });
  return { signal, status, done: existsSync(file) };
}

describe('COUNTERSIGN_FAULT', () => {
  const planned = (fault: Fault) => JSON.stringify({ operation: 'execute:pay', occurrence: 1, fault });

  it.each([
    ['kill_before', false],
    ['kill_after', true],
  ] as const)('%s ends the process there, and its trace says so', (fault, done) => {
    expect(runProcess(planned(fault))).toEqual({ signal: 'SIGKILL', status: null, done });
    expect(traced().at(-1)).toMatchObject({ operation: 'execute:pay', fired: fault });
  });

  it.each(['nonsense', '{}', planned('delay_after')])('refuses %s instead of injecting nothing', (text) => {
    expect(runProcess(text)).toMatchObject({ status: 1, done: false });
  });
});
