import path from 'node:path';
import { z } from 'zod';
import { type Duration, durationMs } from './duration.ts';
import { CountersignError } from './errors.ts';
import { type FleetFile, ROLES, type Role, readFleetFile } from './fleet-file.ts';
import { nearest } from './nearest.ts';
import { DEFAULT_QUEUE } from './queue-name.ts';
import { KeyRing } from './seal/index.ts';

/** Who may use the api: the SHA-256 of a bearer token, and whose it is. */
export type ApiToken = {
  readonly sha256: string;
  readonly tenant: string;
  readonly subject: string;
  readonly roles: readonly Role[];
};

/** The environment, compiled: nothing undefined. Where the fleet is may still be open. */
export type Settings = {
  /** Null: not set; then the dev fleet of `home` is used. */
  readonly databaseUrl: string | null;
  /** Null: BullMQ's Postgres backend and no leases. */
  readonly redisUrl: string | null;
  /** Name of the fleet's queue and leases; the same for all its processes. */
  readonly queue: string;
  /** Key specs; secrets. `workerKeys` and `reviewKeys` make rings of them. */
  readonly stateKeySpec: string | null;
  readonly reviewKeySpec: string | null;
  readonly tenant: string;
  /** Absolute path of the folder that `dev` keeps its things in. */
  readonly home: string;
  readonly apiTokens: readonly ApiToken[];
  readonly host: string;
  /** Null: the command's own default. */
  readonly port: number | null;
  readonly logLevel: string;
  readonly workflowsFile: string | null;
  /** Null: notifications go to the log. It may be a secret. */
  readonly notifyUrl: string | null;
  /** Null: what is posted is not signed. */
  readonly notifySecret: string | null;
  readonly concurrency: number;
  readonly holdTtlMs: number;
  readonly patienceMs: number;
  /** Set by `dev`: end when stdin ends, so that a killed parent leaves nothing running. */
  readonly exitWithParent: boolean;
};

/** Settings with a place to work on: given by DATABASE_URL, or the running dev fleet's. */
export type Config = Settings & {
  readonly databaseUrl: string;
  /** The dev fleet that supplied what the environment did not, or null. */
  readonly fleet: FleetFile | null;
};

const plainText = (max: number) =>
  z.string().refine((text) => text.length <= max && !text.includes('\u0000'), {
    error: `must be text of at most ${max} characters, without NUL`,
  });

const tokens = z.array(
  z.strictObject({
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
    tenant: plainText(512).min(1),
    subject: plainText(512).min(1),
    roles: z.array(z.enum(ROLES)).min(1),
  }),
);

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;

/** Every variable this package reads. A message is the fix: the error puts the variable's name before it. */
const variables = z.object({
  DATABASE_URL: url(['postgres:', 'postgresql:'], 'must read postgres://user:password@host:5432/database'),
  REDIS_URL: url(['redis:', 'rediss:'], 'must read redis://host:6379'),
  COUNTERSIGN_STATE_KEYS: z.string().nullable(),
  COUNTERSIGN_REVIEW_KEYS: z.string().nullable(),
  COUNTERSIGN_TENANT: plainText(512).nullable(),
  COUNTERSIGN_HOME: plainText(4_096).nullable(),
  COUNTERSIGN_API_TOKENS: z.string().nullable(),
  COUNTERSIGN_WORKFLOWS: plainText(4_096).nullable(),
  COUNTERSIGN_QUEUE: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,64}$/, {
      error: 'must be a name of at most 64 letters, digits, dots, dashes and underscores',
    })
    .nullable(),
  COUNTERSIGN_CONCURRENCY: whole(1, 1_000),
  COUNTERSIGN_HOLD_TTL: z.string().nullable(),
  COUNTERSIGN_PATIENCE: z.string().nullable(),
  COUNTERSIGN_NOTIFY_URL: url(['http:', 'https:'], 'must read https://host/path').refine(
    (text) => text === null || new URL(text).username === '',
    { error: 'must not hold a user name; sign with COUNTERSIGN_NOTIFY_SECRET, or put a token into its path' },
  ),
  COUNTERSIGN_NOTIFY_SECRET: plainText(512)
    .refine((text) => text.length >= 16, { error: 'must have at least 16 characters' })
    .nullable(),
  COUNTERSIGN_EXIT_WITH_PARENT: z.enum(['0', '1'], { error: 'must be 0 or 1' }).nullable(),
  HOST: z
    .string()
    .regex(/^[A-Za-z0-9.:_-]+$/, { error: 'must be a host name or address, such as 127.0.0.1 or 0.0.0.0' })
    .nullable(),
  PORT: whole(0, 65_535),
  LOG_LEVEL: z.enum(LOG_LEVELS, { error: `must be one of ${LOG_LEVELS.join(', ')}` }).nullable(),
});

const OURS = Object.keys(variables.shape).filter((name) => name.startsWith('COUNTERSIGN_'));

/**
 * Compiles the environment. An empty variable counts as not set.
 *
 * @throws CONFIG_INVALID naming the variable and the fix; never its value. A COUNTERSIGN_ variable that is one slip of
 *   the finger away from a known one is refused: a misspelt tenant would silently be another tenant.
 */
export function readSettings(env: NodeJS.ProcessEnv = process.env): Settings {
  refuseMisspelt(env);
  const given = Object.fromEntries(Object.keys(variables.shape).map((name) => [name, env[name] || null]));
  const parsed = variables.safeParse(given);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw invalid(String(issue?.path[0]), issue?.message ?? 'is malformed');
  }
  const value = parsed.data;
  return {
    databaseUrl: value.DATABASE_URL,
    redisUrl: value.REDIS_URL,
    queue: value.COUNTERSIGN_QUEUE ?? DEFAULT_QUEUE,
    stateKeySpec: value.COUNTERSIGN_STATE_KEYS,
    reviewKeySpec: value.COUNTERSIGN_REVIEW_KEYS,
    tenant: value.COUNTERSIGN_TENANT ?? 'default',
    home: path.resolve(value.COUNTERSIGN_HOME ?? '.countersign'),
    apiTokens: readTokens(value.COUNTERSIGN_API_TOKENS),
    host: value.HOST ?? '127.0.0.1',
    port: value.PORT,
    logLevel: value.LOG_LEVEL ?? 'info',
    workflowsFile: value.COUNTERSIGN_WORKFLOWS,
    notifyUrl: value.COUNTERSIGN_NOTIFY_URL,
    notifySecret: value.COUNTERSIGN_NOTIFY_SECRET,
    concurrency: value.COUNTERSIGN_CONCURRENCY ?? 8,
    holdTtlMs: holdTtl((value.COUNTERSIGN_HOLD_TTL ?? '30s') as Duration, 'COUNTERSIGN_HOLD_TTL'),
    patienceMs: durationMs((value.COUNTERSIGN_PATIENCE ?? '15s') as Duration, 'COUNTERSIGN_PATIENCE'),
    exitWithParent: value.COUNTERSIGN_EXIT_WITH_PARENT === '1',
  };
}

/**
 * Settings and the place to work on. Without DATABASE_URL (or when it names the dev fleet's own database), the running
 * dev fleet of COUNTERSIGN_HOME supplies database, queue and keys.
 *
 * @throws CONFIG_INVALID, also when neither exists, or when REDIS_URL contradicts the dev fleet's queue.
 */
export async function readConfig(env: NodeJS.ProcessEnv = process.env): Promise<Config> {
  const settings = readSettings(env);
  const fleet = await readFleetFile(settings.home);
  const usesFleet =
    fleet !== null && (settings.databaseUrl === null || settings.databaseUrl === fleet.databaseUrl);
  if (usesFleet) {
    if (settings.redisUrl !== null && settings.redisUrl !== fleet.redisUrl) {
      throw invalid(
        'REDIS_URL',
        `is not the queue of the running dev fleet of ${settings.home}; unset it, or set DATABASE_URL as well`,
      );
    }
    return {
      ...settings,
      databaseUrl: fleet.databaseUrl,
      redisUrl: fleet.redisUrl,
      stateKeySpec: settings.stateKeySpec ?? fleet.keys.state,
      reviewKeySpec: settings.reviewKeySpec ?? fleet.keys.review,
      fleet,
    };
  }
  if (settings.databaseUrl === null) {
    throw new CountersignError(
      'CONFIG_INVALID',
      `There is nothing to work on: set DATABASE_URL, or run \`countersign dev\` in another terminal (looked in ${settings.home}).`,
      { details: { field: 'DATABASE_URL', home: settings.home } },
    );
  }
  return { ...settings, databaseUrl: settings.databaseUrl, fleet: null };
}

/** Both purposes: what a worker and a reconciler need. @throws CONFIG_INVALID when one is missing; KEY_INVALID */
export function workerKeys(config: Settings): KeyRing {
  return KeyRing.parse({
    state: required(config.stateKeySpec, 'COUNTERSIGN_STATE_KEYS'),
    review: required(config.reviewKeySpec, 'COUNTERSIGN_REVIEW_KEYS'),
  });
}

/** The review purpose alone: what the api and a reviewer's command need. @throws CONFIG_INVALID; KEY_INVALID */
export function reviewKeys(config: Settings): KeyRing {
  return KeyRing.parse({ review: required(config.reviewKeySpec, 'COUNTERSIGN_REVIEW_KEYS') });
}

/** @throws CONFIG_INVALID, with how to make a token, when the api would let nobody in. */
export function requiredTokens(config: Settings): readonly ApiToken[] {
  if (config.apiTokens.length === 0) {
    throw invalid(
      'COUNTERSIGN_API_TOKENS',
      'is not set, so nobody could use the api; "countersign keys token --as NAME --roles reviewer" makes an entry',
    );
  }
  return config.apiTokens;
}

/** Heartbeats come three times within a ttl; a shorter one would be lost to an ordinary pause of the process. */
const MIN_HOLD_TTL_MS = 1_000;

/** @throws CONFIG_INVALID for anything shorter than a second. */
export function holdTtl(value: Duration, field: string): number {
  const ms = durationMs(value, field);
  if (ms < MIN_HOLD_TTL_MS) {
    throw invalid(field, 'must be at least 1s');
  }
  return ms;
}

/** @param given on the command line; default COUNTERSIGN_WORKFLOWS. @throws CONFIG_INVALID when neither names a file. */
export function workflowsFile(config: Settings, given: string | undefined): string {
  const file = given ?? config.workflowsFile;
  if (file === null) {
    throw invalid(
      'COUNTERSIGN_WORKFLOWS',
      'is not set; name the file that exports your workflows there, or on the command line',
    );
  }
  return file;
}

function required(spec: string | null, variable: string): string {
  if (spec === null) {
    throw invalid(
      variable,
      'is not set; "countersign keys generate" prints a fresh one, to be kept for good',
    );
  }
  return spec;
}

function readTokens(text: string | null): ApiToken[] {
  if (text === null) {
    return [];
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  const parsed = tokens.safeParse(value);
  if (!parsed.success) {
    const where = parsed.error.issues[0]?.path.map(String).join('.') ?? '';
    throw invalid(
      'COUNTERSIGN_API_TOKENS',
      `must be a JSON array of { sha256: 64 hex digits, tenant, subject, roles: [${ROLES.join(' | ')}] }${where === '' ? '' : `; look at ${where}`}`,
    );
  }
  return parsed.data;
}

function url(protocols: string[], fix: string) {
  return z
    .string()
    .refine((text) => URL.canParse(text) && protocols.includes(new URL(text).protocol), { error: fix })
    .nullable();
}

function whole(min: number, max: number) {
  return z
    .string()
    .refine((text) => /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max, {
      error: `must be a whole number from ${min} to ${max}`,
    })
    .transform(Number)
    .nullable();
}

function refuseMisspelt(env: NodeJS.ProcessEnv): void {
  for (const name of Object.keys(env)) {
    if (!name.startsWith('COUNTERSIGN_') || OURS.includes(name)) {
      continue;
    }
    const meant = nearest(name, OURS);
    if (meant !== undefined) {
      throw invalid(name, `is not a variable of ours; did you mean ${meant}?`);
    }
  }
}

function invalid(variable: string, fix: string): CountersignError {
  const end = /[.?]$/.test(fix) ? '' : '.';
  return new CountersignError('CONFIG_INVALID', `${variable} ${fix}${end}`, { details: { field: variable } });
}
