import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Settings } from '../config.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../embedded/index.ts';
import { isCountersignError } from '../errors.ts';
import { isAlive } from '../fleet-file.ts';

export type Servers = {
  readonly databaseUrl: string;
  readonly redisUrl: string | null;
  /** What they are, for a person. */
  readonly words: string;
  /** Of the embedded Postgres; null: somebody else's server. */
  pid(): number | null;
  stop(): Promise<void>;
  kill(): void;
};

/** Fast shutdown writes a checkpoint; then the crash-safe immediate one follows. */
const FAST_SHUTDOWN_MS = 20_000;
/** How often a living Postgres is looked for. */
const WATCH_MS = 500;

type Note = (name: string, line: string) => void;

/**
 * The servers a local fleet runs on: those of DATABASE_URL and REDIS_URL, else an embedded Postgres in `home`.
 *
 * A Postgres that an earlier supervisor left running in `home` is taken over: the caller holds the home's lock, so
 * nobody else looks after it, and it is stopped like one of our own.
 */
export async function openServers(
  settings: Settings,
  home: string,
  { note, onChange }: { note: Note; onChange: () => void },
): Promise<Servers> {
  const { redisUrl } = settings;
  const queue = redisUrl === null ? 'the queue in the same Postgres' : 'the queue in Redis';
  if (settings.databaseUrl !== null) {
    return {
      databaseUrl: settings.databaseUrl,
      redisUrl,
      words: `Postgres of DATABASE_URL, ${queue}`,
      pid: () => null,
      stop: async () => undefined,
      kill: () => undefined,
    };
  }
  const dir = path.join(home, 'postgres');
  const postgres = await startEmbeddedPostgres({ dir });
  const kept = keepAlive(dir, postgres, { note, onChange });
  return {
    databaseUrl: postgres.url,
    redisUrl,
    words: `embedded Postgres (pid ${postgres.pid}${postgres.attached ? ', left over and taken over' : ''}), ${queue}`,
    pid: () => kept.pid(),
    async stop() {
      const last = await kept.end();
      await (last.attached ? stopLeftOver(last.pid) : last.stop());
    },
    kill: () => send(kept.pid(), 'SIGQUIT'),
  };
}

/** Starts the server again, on the same port, when somebody has killed it to see what happens. */
function keepAlive(
  dir: string,
  first: EmbeddedPostgres,
  { note, onChange }: { note: Note; onChange: () => void },
) {
  let postgres = first;
  let restarting: Promise<void> | null = null;
  const restart = async () => {
    note('postgres', `pid ${postgres.pid} is gone; starting it again`);
    try {
      postgres = await startEmbeddedPostgres({ dir, port: first.port });
      note('postgres', `is back, as pid ${postgres.pid}`);
      onChange();
    } catch (error) {
      note('postgres', isCountersignError(error) ? error.message : 'did not come back; trying again');
    }
  };
  const timer = setInterval(() => {
    if (restarting === null && !isAlive(postgres.pid)) {
      restarting = restart().finally(() => {
        restarting = null;
      });
    }
  }, WATCH_MS);
  timer.unref();
  return {
    pid: () => postgres.pid,
    async end(): Promise<EmbeddedPostgres> {
      clearInterval(timer);
      await restarting;
      return postgres;
    },
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
