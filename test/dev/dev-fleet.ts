/** `countersign dev` in a home of its own, for tests that do to it what a person would. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { expect } from 'vitest';
import { type FleetFile, readFleetFile } from '../../src/fleet-file.ts';
import { type CliResult, cleanEnv, cli, MAIN } from '../cli/run-cli.ts';
import { until } from './processes.ts';

export type Dev = { child: ChildProcess; ended: Promise<number | null>; notes: () => string };

export async function makeHome(): Promise<string> {
  const home = await mkdtemp(path.join(tmpdir(), 'countersign-dev-test-'));
  // As root, Postgres runs as somebody else, and would keep its cluster elsewhere if it could not come through here.
  await chmod(home, 0o711);
  return home;
}

/** Starts `dev --json` and waits for its ready line. */
export async function startDev(home: string, env: NodeJS.ProcessEnv = {}): Promise<Dev> {
  const child = spawn(process.execPath, [MAIN, 'dev', '--json'], {
    env: cleanEnv({ COUNTERSIGN_HOME: home, PORT: '0', ...env }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let notes = '';
  child.stderr.on('data', (chunk: Buffer) => {
    notes += chunk.toString();
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  const line = new Promise<string>((resolve) =>
    createInterface({ input: child.stdout }).once('line', resolve),
  );
  const first = await Promise.race([line, ended]);
  if (typeof first !== 'string') {
    throw new Error(`dev ended with ${first}: ${notes}`);
  }
  expect(JSON.parse(first)).toMatchObject({ event: 'ready', home });
  return { child, ended, notes: () => notes };
}

/** What a person types in another terminal. */
export function terminal(home: string) {
  const ours = (...args: string[]): Promise<CliResult> =>
    cli([...args, '--json'], { COUNTERSIGN_HOME: home });
  const fleet = async (): Promise<FleetFile> => {
    const found = await readFleetFile(home);
    if (found === null) {
      throw new Error('no dev fleet');
    }
    return found;
  };
  /** Starts a run and waits for its pause. */
  /** A command whose connection was ended says 3, "try again", and nothing else does: a person would. */
  const insist = async (...args: string[]) => {
    for (let tries = 1; ; tries += 1) {
      const said = await ours(...args);
      if (said.code !== 3 || tries === 5) {
        return said;
      }
    }
  };
  const startRelease = async (release: string): Promise<{ runId: string; approvalId: string }> => {
    const started = (
      await insist(
        'start',
        'release',
        '--input',
        `deploy ${release} to production`,
        '--key',
        randomUUID(),
        '--wait',
      )
    ).json<{ runId: string; approvals: { id: string }[] }>();
    return { runId: started.runId, approvalId: started.approvals[0]?.id ?? '' };
  };
  const approve = (approvalId: string) => insist('approvals', 'approve', approvalId, '--as', 'alice');
  const untilCompleted = (runId: string, timeoutMs?: number): Promise<void> =>
    until(
      'the run to complete',
      async () => (await insist('runs', 'show', runId)).json().status === 'completed',
      timeoutMs,
    ).catch(async (error: unknown) => {
      const { text } = (await ours('runs', 'explain', runId)).json<{ text: string }>();
      throw new Error(text, { cause: error });
    });
  return {
    ours,
    insist,
    fleet,
    startRelease,
    approve,
    untilCompleted,
    /** From a prompt to the effect. */
    async deployOnce(release: string): Promise<string> {
      const { runId, approvalId } = await startRelease(release);
      await approve(approvalId);
      await untilCompleted(runId);
      return runId;
    },
  };
}
