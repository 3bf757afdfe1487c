/** The built command line as a user's process. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';

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
  if (!existsSync(MAIN)) {
    throw new Error(`${MAIN} is missing: run \`npm run build\` first`);
  }
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: cleanEnv(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
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
