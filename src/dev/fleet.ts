import { createHash } from 'node:crypto';
import path from 'node:path';
import type { Settings } from '../config.ts';
import { migrate, packageRoot } from '../postgres/index.ts';
import { prepareQueue } from '../queue/index.ts';
import type { ChildSpec } from './child.ts';
import { orInterrupted } from './interruption.ts';
import { startOnFreePort } from './ports.ts';
import { keepSecrets, type LocalSecrets } from './secrets.ts';
import { openServers, type Servers } from './servers.ts';
import { Supervisor } from './supervisor.ts';

export type LocalFleetOptions = {
  settings: Settings;
  home: string;
  /** Loaded by the workers and the reconciler. Default: the examples. */
  workflowsFile: string | null;
  workers: number;
  /** How long a killed worker's hold stands in the way of the next. */
  holdTtl: string;
  /** How long a run may be quiet before the sweep looks at it. */
  patience: string;
  restart: boolean;
  /** The usual ones, so that a person finds them, or any: several fleets may start at once. */
  ports: 'usual' | 'any';
  signal: AbortSignal;
  /** Told what happens, and every line of the children. */
  note: (name: string, line: string) => void;
  onChange?: () => void;
};

export type LocalFleet = {
  readonly servers: Servers;
  readonly secrets: LocalSecrets;
  readonly apiUrl: string;
  readonly providerUrl: string;
  /** By process name, the embedded Postgres included. */
  pids(): Record<string, number>;
  stop(): Promise<void>;
  /** Ends everything at once: the second Ctrl-C. */
  kill(): void;
};

/** Where the api and the example provider usually stand, when nobody else does. */
const API_PORT = 7300;
const PROVIDER_PORT = 7400;

/**
 * Starts the servers and every process, in the order of the flow, and resolves when all are ready.
 * On any failure, an interruption included, whatever had been started is stopped first.
 *
 * @throws EMBEDDED_POSTGRES_FAILED, PROCESS_NOT_STARTED, INTERRUPTED, and what `migrate` throws.
 */
export async function startLocalFleet(options: LocalFleetOptions): Promise<LocalFleet> {
  const { settings, home, signal } = options;
  const supervisor = new Supervisor(options);
  const secrets = await withOwnKeys(home, settings);
  const servers = await openServers(settings, home, {
    note: options.note,
    onChange: () => options.onChange?.(),
  });
  const stop = async () => {
    await supervisor.stop();
    await servers.stop();
  };
  try {
    const { databaseUrl, redisUrl } = servers;
    options.note('dev', servers.words);
    signal.throwIfAborted();
    const { applied } = await migrate({ url: databaseUrl });
    if (redisUrl === null) {
      await prepareQueue({ postgresUrl: databaseUrl });
    }
    options.note(
      'dev',
      applied.length === 0 ? 'the schema is up to date' : `applied migrations ${applied.join(', ')}`,
    );
    const usual = options.ports === 'usual';
    // A port that somebody asked for is used or refused, never replaced.
    const onPort = (preferred: number, start: (port: number) => Promise<unknown>) =>
      orInterrupted(signal, startOnFreePort(preferred, start));
    const providerPort = await onPort(usual ? PROVIDER_PORT : 0, (port) =>
      supervisor.start(providerSpec(home, port)),
    );
    const providerUrl = `http://127.0.0.1:${providerPort}`;
    const specs = processes(options, { servers, secrets, providerUrl });
    const startApi = async (port: number) => supervisor.start(specs.api(port));
    const [apiPort] = await Promise.all([
      settings.port
        ? orInterrupted(signal, startApi(settings.port)).then(() => settings.port)
        : onPort(usual && settings.port === null ? API_PORT : 0, startApi),
      orInterrupted(signal, Promise.all(specs.others.map((spec) => supervisor.start(spec)))),
    ]);
    return {
      servers,
      secrets,
      apiUrl: `http://127.0.0.1:${apiPort}`,
      providerUrl,
      pids() {
        const postgres = servers.pid();
        return { ...(postgres === null ? {} : { postgres }), ...supervisor.pids() };
      },
      stop,
      kill() {
        supervisor.kill();
        servers.kill();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Keys given by the environment win: on a real database the runs of others are sealed with them. */
async function withOwnKeys(home: string, settings: Settings): Promise<LocalSecrets> {
  const kept = await keepSecrets(home);
  return {
    ...kept,
    keys: {
      state: settings.stateKeySpec ?? kept.keys.state,
      review: settings.reviewKeySpec ?? kept.keys.review,
    },
  };
}

type Places = {
  servers: Servers;
  secrets: LocalSecrets;
  providerUrl: string;
};

function providerSpec(home: string, port: number): ChildSpec {
  const journal = path.join(home, 'release-service.jsonl');
  return {
    name: 'provider',
    file: path.join(packageRoot(), 'dist', 'examples', 'release-service', 'main.js'),
    args: ['--port', String(port), '--journal', journal, '--exit-with-parent'],
    env: withoutSecrets(process.env),
  };
}

/** Each process is given what it needs and no secret more. */
function processes(
  options: LocalFleetOptions,
  places: Places,
): { api: (port: number) => ChildSpec; others: ChildSpec[] } {
  const { home } = options;
  const { servers, secrets } = places;
  const dist = path.join(packageRoot(), 'dist');
  const base: NodeJS.ProcessEnv = {
    ...withoutSecrets(process.env),
    DATABASE_URL: servers.databaseUrl,
    REDIS_URL: servers.redisUrl ?? '',
    COUNTERSIGN_QUEUE: options.settings.queue,
    COUNTERSIGN_HOME: home,
    COUNTERSIGN_EXIT_WITH_PARENT: '1',
    LOG_LEVEL: options.settings.logLevel,
  };
  const carrying: NodeJS.ProcessEnv = {
    ...base,
    ...startingWith('OPENAI_', process.env),
    COUNTERSIGN_STATE_KEYS: secrets.keys.state,
    COUNTERSIGN_REVIEW_KEYS: secrets.keys.review,
    COUNTERSIGN_WORKFLOWS: path.resolve(options.workflowsFile ?? path.join(dist, 'examples', 'workflows.js')),
    COUNTERSIGN_HOLD_TTL: options.holdTtl,
    COUNTERSIGN_PATIENCE: options.patience,
    RELEASE_SERVICE_URL: places.providerUrl,
  };
  const api = (port: number): NodeJS.ProcessEnv => ({
    ...base,
    COUNTERSIGN_REVIEW_KEYS: secrets.keys.review,
    COUNTERSIGN_API_TOKENS: JSON.stringify(tokenEntries(secrets, options.settings.tenant)),
    HOST: '127.0.0.1',
    PORT: String(port),
  });
  const worker = (name: string, file: string, env: NodeJS.ProcessEnv): ChildSpec => ({
    name,
    file: path.join(dist, 'workers', file),
    args: [],
    env,
  });
  return {
    api: (port) => worker('api', 'api.js', api(port)),
    others: [
      worker('relay', 'relay.js', { ...base, ...startingWith('COUNTERSIGN_NOTIFY_', process.env) }),
      ...Array.from({ length: options.workers }, (_, index) =>
        worker(`worker-${index + 1}`, 'resume.js', carrying),
      ),
      worker('reconciler', 'reconciler.js', carrying),
    ],
  };
}

function tokenEntries(secrets: LocalSecrets, tenant: string) {
  return secrets.tokens.map(({ token, subject, roles }) => ({
    sha256: createHash('sha256').update(token).digest('hex'),
    tenant,
    subject,
    roles,
  }));
}

function withoutSecrets(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const kept = Object.entries(env).filter(
    ([name]) =>
      !name.startsWith('COUNTERSIGN_') && !name.startsWith('OPENAI_') && !/^(DATABASE|REDIS)_URL$/.test(name),
  );
  return Object.fromEntries(kept);
}

function startingWith(prefix: string, env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => name.startsWith(prefix)));
}
