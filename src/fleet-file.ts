import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { CountersignError } from './errors.ts';

/** What a token of the api may be used for. `metrics` reads the whole fleet's numbers, and nothing of any tenant. */
export const ROLES = ['producer', 'reviewer', 'operator', 'metrics'] as const;
export type Role = (typeof ROLES)[number];

const schema = z.strictObject({
  version: z.literal(1),
  databaseUrl: z.string().min(1),
  redisUrl: z.string().min(1).nullable(),
  /** Key specs for `KeyRing.parse`. */
  keys: z.strictObject({ state: z.string().min(1), review: z.string().min(1) }),
  apiUrl: z.string().min(1),
  providerUrl: z.string().min(1),
  tokens: z.array(
    z.strictObject({ token: z.string().min(1), subject: z.string().min(1), roles: z.array(z.enum(ROLES)) }),
  ),
  /** Process ids by process name; `dev` is the supervisor. */
  pids: z.record(z.string(), z.number().int().positive()),
});

/** `$COUNTERSIGN_HOME/dev.json`: where a running `countersign dev` is, and the secrets to use it. Mode 0600. */
export type FleetFile = z.infer<typeof schema>;

export function fleetFilePath(home: string): string {
  return path.join(home, 'dev.json');
}

/**
 * Reads the description of the dev fleet of `home`, or null when there is none or its supervisor is gone.
 *
 * @throws CONFIG_INVALID naming the file when it is not one of ours.
 */
export async function readFleetFile(home: string): Promise<FleetFile | null> {
  const file = fleetFilePath(home);
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR')) {
      return null;
    }
    throw unreadable(file);
  }
  const parsed = schema.safeParse(jsonOrNull(text));
  if (!parsed.success) {
    throw unreadable(file);
  }
  const supervisor = parsed.data.pids.dev;
  return supervisor !== undefined && isAlive(supervisor) ? parsed.data : null;
}

/** Writes it whole or not at all, readable by its owner alone. */
export async function writeFleetFile(home: string, fleet: FleetFile): Promise<void> {
  await writeSecretFile(fleetFilePath(home), `${JSON.stringify(fleet, null, 2)}\n`);
}

/** Removes it, if it is still the one of this supervisor. */
export async function removeFleetFile(home: string, supervisor: number): Promise<void> {
  const fleet = await readFleetFile(home).catch(() => null);
  if (fleet?.pids.dev === supervisor) {
    await rm(fleetFilePath(home), { force: true });
  }
}

/** Replaces `file` in one step with mode 0600, in a folder (made if missing) that others cannot list. */
export async function writeSecretFile(file: string, text: string): Promise<void> {
  // Entry, not listing: as root, the unprivileged user that runs Postgres must get through to its own folder.
  await mkdir(path.dirname(file), { recursive: true, mode: 0o711 });
  const draft = `${file}.${randomUUID().slice(0, 8)}`;
  await writeFile(draft, text, { mode: 0o600 });
  await rename(draft, file);
}

/** True while a process with this id exists, whoever owns it. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

function jsonOrNull(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}

function unreadable(file: string): CountersignError {
  return new CountersignError(
    'CONFIG_INVALID',
    `${file} is not readable as the description of a dev fleet; remove it and run "countersign dev" again.`,
    { details: { field: file } },
  );
}
