import { releaseClient } from '../../examples/release-service/index.ts';
import type { Settings } from '../config.ts';
import { CountersignError, isCountersignError } from '../errors.ts';
import { openDatabase } from '../postgres/index.ts';
import { openResumeQueue } from '../queue/index.ts';
import { apiClient } from './api-client.ts';
import { makeDemoHome, removeDemoHome } from './demo-home.ts';
import { type DemoReport, playDemo } from './demo-story.ts';
import { type LocalFleet, startLocalFleet } from './fleet.ts';
import { listenForInterruption, orInterrupted } from './interruption.ts';

export type DemoOptions = {
  settings: Settings;
  /** Told the story, line by line. */
  narrate: (line: string) => void;
  /** Told every line of every process. */
  note: (name: string, line: string) => void;
};

/** Short, so that the second worker need not be waited for; the provider's own deadlines take longer. */
const HOLD_TTL = '3s';
const PATIENCE = '2s';
/** Everything together; a fast machine needs a quarter of it. */
const LIMIT_MS = 90_000;
const KEPT_LINES = 40;

/**
 * The main job on a fleet of its own, in a temporary home. Leaves nothing running and nothing lying about.
 *
 * @throws DEMO_FAILED when there was anything else than exactly one effect, with the last lines of the processes;
 *   INTERRUPTED; and what `startLocalFleet` throws.
 */
export async function runDemo(options: DemoOptions): Promise<DemoReport> {
  const last: string[] = [];
  const note = (name: string, line: string) => {
    last.push(`${name} | ${line}`);
    last.splice(0, last.length - KEPT_LINES);
    options.note(name, line);
  };
  let fleet: LocalFleet | null = null;
  const interruption = listenForInterruption(() => fleet?.kill());
  const signal = AbortSignal.any([interruption.signal, deadline()]);
  const home = await makeDemoHome();
  try {
    options.narrate('Starting Postgres, the api, the relay, two workers, the reconciler and a provider …');
    fleet = await startLocalFleet({
      settings: { ...options.settings, port: null },
      home,
      workflowsFile: null,
      workers: 2,
      holdTtl: HOLD_TTL,
      patience: PATIENCE,
      restart: false,
      ports: 'any',
      signal,
      note,
    });
    return await playOn(fleet, options, signal);
  } catch (error) {
    throw isCountersignError(error, 'DEMO_FAILED') ? withLines(error, last) : error;
  } finally {
    await fleet?.stop();
    await removeDemoHome(home);
    interruption.end();
  }
}

async function playOn(fleet: LocalFleet, options: DemoOptions, signal: AbortSignal): Promise<DemoReport> {
  const { databaseUrl, redisUrl } = fleet.servers;
  const db = openDatabase({ url: databaseUrl, role: 'countersign_api', max: 2, name: 'countersign demo' });
  const queue = openResumeQueue({
    redisUrl,
    postgresUrl: databaseUrl,
    name: options.settings.queue,
    onError: () => undefined,
  });
  try {
    const story = playDemo({
      api: apiClient(fleet.apiUrl, fleet.secrets.tokens[0]?.token ?? ''),
      provider: releaseClient(fleet.providerUrl),
      db,
      queue,
      tenant: options.settings.tenant,
      pids: () => fleet.pids(),
      narrate: options.narrate,
      signal,
    });
    return await orInterrupted(signal, story);
  } finally {
    await queue.close();
    await db.close();
  }
}

function deadline(): AbortSignal {
  const late = new AbortController();
  setTimeout(
    () =>
      late.abort(new CountersignError('DEMO_FAILED', `The demo was not done after ${LIMIT_MS / 1_000} s.`)),
    LIMIT_MS,
  ).unref();
  return late.signal;
}

function withLines(error: CountersignError, last: readonly string[]): CountersignError {
  return new CountersignError('DEMO_FAILED', [error.message, ...last].join('\n  '), {
    details: error.details,
    cause: error.cause,
  });
}
