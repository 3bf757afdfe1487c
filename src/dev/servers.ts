import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Settings } from '../config.ts';
import { startEmbeddedPostgres } from '../embedded/index.ts';
import { isAlive } from '../fleet-file.ts';

export type Servers = {
  readonly databaseUrl: string;
  readonly redisUrl: string | null;
  /** What they are, for a person. */
  readonly words: string;
  stop(): Promise<void>;
  kill(): void;
};

/** Fast shutdown writes a checkpoint; then the crash-safe immediate one follows. */
const FAST_SHUTDOWN_MS = 20_000;

/**
 * The servers a local fleet runs on: those of DATABASE_URL and REDIS_URL, else an embedded Postgres in `home`.
 *
 * A Postgres that an earlier supervisor left running in `home` is taken over: the caller holds the home's lock, so
 * nobody else looks after it, and it is stopped like one of our own.
 */
export async function openServers(settings: Settings, home: string): Promise<Servers> {
  const { redisUrl } = settings;
  const queue = redisUrl === null ? 'the queue in the same Postgres' : 'the queue in Redis';
  if (settings.databaseUrl !== null) {
    return {
      databaseUrl: settings.databaseUrl,
      redisUrl,
      words: `Postgres of DATABASE_URL, ${queue}`,
      stop: async () => undefined,
      kill: () => undefined,
    };
  }
  const postgres = await startEmbeddedPostgres({ dir: path.join(home, 'postgres') });
  const { pid } = postgres;
  return {
    databaseUrl: postgres.url,
    redisUrl,
    words: `embedded Postgres (pid ${pid}${postgres.attached ? ', left over and taken over' : ''}), ${queue}`,
    stop: () => (postgres.attached ? stopLeftOver(pid) : postgres.stop()),
    kill: () => send(pid, 'SIGQUIT'),
  };
}

async function stopLeftOver(pid: number): Promise<void> {
  send(pid, 'SIGINT');
  const asked = performance.now();
  while (isAlive(pid) && performance.now() - asked < 2 * FAST_SHUTDOWN_MS) {
    if (performance.now() - asked > FAST_SHUTDOWN_MS) {
      send(pid, 'SIGQUIT');
    }
    await sleep(50);
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // Gone already.
  }
}
