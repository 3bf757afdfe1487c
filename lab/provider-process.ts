/** The outside world as an OS process of its own: examples/release-service on a free loopback port. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type ReleaseClient, releaseClient } from '../examples/release-service/index.ts';
import type { Cleanup } from './cleanup.ts';

export type Provider = { url: string; client: ReleaseClient };

const START_MS = 15_000;

/** Starts it; the cleanup stops it, and it ends by itself when this process dies. */
export async function startProvider(cleanup: Cleanup): Promise<Provider> {
  const main = fileURLToPath(new URL('../examples/release-service/main.js', import.meta.url));
  const child = spawn(process.execPath, [main, '--exit-with-parent'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  cleanup.defer(async () => {
    child.kill('SIGTERM');
    await exited;
  });
  const line = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('the provider did not start in time')), START_MS);
    const settle = (act: () => void) => (): void => {
      clearTimeout(timer);
      act();
    };
    child.once(
      'exit',
      settle(() => reject(new Error('the provider ended before it listened'))),
    );
    createInterface({ input: child.stdout }).once('line', (text) => settle(() => resolve(text))());
  });
  const { url } = JSON.parse(line) as { url: string };
  return { url, client: releaseClient(url) };
}

/**
 * A kind of effect of its own for one experiment, which the provider does not deduplicate: it performs every call, so
 * that the count says what the caller did.
 */
export async function countedKind(provider: Provider, kind: string): Promise<() => Promise<number>> {
  await provider.client.setMode(kind, { dedupe: false });
  return async () => (await provider.client.counts()).byKind[kind]?.commits ?? 0;
}
