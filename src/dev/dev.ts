import type { Settings } from '../config.ts';
import { fleetFilePath, removeFleetFile, writeFleetFile } from '../fleet-file.ts';
import { type LocalFleet, startLocalFleet } from './fleet.ts';
import { listenForInterruption } from './interruption.ts';
import { lockHome } from './lock.ts';

export type DevOptions = {
  settings: Settings;
  workflowsFile: string | null;
  workers: number;
  /** Told once, when everything is up. */
  onReady: (dev: { home: string; fleet: LocalFleet; pids: Record<string, number> }) => void;
  /** Told what happens, on stderr. */
  note: (name: string, line: string) => void;
};

/** Short, so that a person who kills a worker sees the next one take over; long enough for a busy laptop. */
const HOLD_TTL = '5s';
const PATIENCE = '3s';

/**
 * Runs the whole fleet until Ctrl-C, then stops everything. While it runs, `dev.json` in the home tells the other
 * commands where it is.
 *
 * @throws DEV_ALREADY_RUNNING, CONFIG_INVALID, and what `startLocalFleet` throws.
 */
export async function runDev(options: DevOptions): Promise<void> {
  const { settings, note } = options;
  const { home } = settings;
  const unlock = await lockHome(home);
  let fleet: LocalFleet | null = null;
  const interruption = listenForInterruption(() => fleet?.kill());
  try {
    const started = await startLocalFleet({
      ...options,
      home,
      holdTtl: HOLD_TTL,
      patience: PATIENCE,
      restart: true,
      ports: 'usual',
      signal: interruption.signal,
      onChange: () => {
        if (fleet !== null) {
          void describe(home, fleet, note);
        }
      },
    });
    fleet = started;
    await describe(home, started, note);
    options.onReady({ home, fleet: started, pids: started.pids() });
    await new Promise<void>((resolve) => {
      if (interruption.signal.aborted) {
        resolve();
      }
      interruption.signal.addEventListener('abort', () => resolve(), { once: true });
    });
    note('dev', 'stopping everything; once more Ctrl-C ends it at once');
    await removeFleetFile(home, process.pid);
    await started.stop();
    note('dev', 'stopped; nothing is left running');
  } finally {
    interruption.end();
    await removeFleetFile(home, process.pid);
    await unlock();
  }
}

/** Never rejects: a fleet that runs is worth more than its description. */
async function describe(home: string, fleet: LocalFleet, note: DevOptions['note']): Promise<void> {
  const { servers, secrets } = fleet;
  try {
    await writeFleetFile(home, {
      version: 1,
      databaseUrl: servers.databaseUrl,
      redisUrl: servers.redisUrl,
      keys: secrets.keys,
      apiUrl: fleet.apiUrl,
      providerUrl: fleet.providerUrl,
      tokens: secrets.tokens,
      pids: { dev: process.pid, ...fleet.pids() },
    });
  } catch {
    note('dev', `could not write ${fleetFilePath(home)}; other commands will not find this fleet`);
  }
}
