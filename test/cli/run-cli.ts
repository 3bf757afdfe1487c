/** The command line, as a process (`spawnCli`: what a user has) and inside this one (`cli`: the same, ten times as fast). */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'vitest';
import { runCli } from '../../src/cli/index.ts';

export const MAIN = path.join(import.meta.dirname, '../../dist/src/cli/main.js');

export type CliResult = {
  code: number | null;
  stdout: string;
  stderr: string;
  /** Stdout as exactly one JSON value on one line. */
  json<T = Record<string, unknown>>(): T;
};

/** The variables of the test's own shell that would choose another place to work on are left out. */
export function cleanEnv(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !/^(COUNTERSIGN_|OPENAI_|DATABASE_URL$|REDIS_URL$|LOG_LEVEL$|PORT$|HOST$)/.test(name),
  );
  return { ...Object.fromEntries(kept), COUNTERSIGN_HOME: '/nonexistent/countersign', ...env };
}

export async function cli(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<CliResult> {
  const before = { env: process.env, out: process.stdout.write, err: process.stderr.write };
  const written = { stdout: '', stderr: '' };
  process.env = cleanEnv(env);
  const into = (stream: 'stdout' | 'stderr') => (chunk: unknown) => {
    written[stream] += String(chunk);
    return true;
  };
  process.stdout.write = into('stdout');
  process.stderr.write = into('stderr');
  try {
    return resultOf(await runCli(args), written.stdout, written.stderr);
  } finally {
    process.env = before.env;
    process.stdout.write = before.out;
    process.stderr.write = before.err;
  }
}

export async function spawnCli(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<CliResult> {
  if (!existsSync(MAIN)) {
    throw new Error(`${MAIN} is missing: run \`npm run build\` first`);
  }
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: cleanEnv(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  const [stdout, stderr, code] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  return resultOf(code, stdout, stderr);
}

function resultOf(code: number | null, stdout: string, stderr: string): CliResult {
  return {
    code,
    stdout,
    stderr,
    json<T>() {
      expect(stdout, stderr).toMatch(/^[^\n]+\n$/);
      return JSON.parse(stdout) as T;
    },
  };
}
