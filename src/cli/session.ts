import { userInfo } from 'node:os';
import { type Config, readConfig, reviewKeys } from '../config.ts';
import { type Database, openDatabase } from '../postgres/index.ts';
import type { KeyRing } from '../seal/index.ts';
import type { Globals } from './output.ts';

/** What a command that works on the fleet's database gets: the api's role, the review key, one tenant. */
export type Session = {
  readonly config: Config;
  readonly db: Database;
  readonly tenant: string;
  /** Read only when a command needs it: `explain` works without any key. */
  keys(): KeyRing;
};

/** Opens the database of the environment or of the dev fleet for one command. @throws CONFIG_INVALID */
export async function withSession<T>(globals: Globals, work: (session: Session) => Promise<T>): Promise<T> {
  const config = await readConfig();
  const db = openDatabase({
    url: config.databaseUrl,
    role: 'countersign_api',
    max: 2,
    name: 'countersign cli',
  });
  try {
    return await work({
      config,
      db,
      tenant: globals.tenant ?? config.tenant,
      keys: () => reviewKeys(config),
    });
  } finally {
    await db.close();
  }
}

/** The worker's role, for commands that read sealed state with the workflow's own code. @throws CONFIG_INVALID */
export async function withWorkerSession<T>(
  work: (session: { config: Config; db: Database }) => Promise<T>,
): Promise<T> {
  const config = await readConfig();
  const db = openDatabase({
    url: config.databaseUrl,
    role: 'countersign_worker',
    max: 2,
    name: 'countersign cli',
  });
  try {
    return await work({ config, db });
  } finally {
    await db.close();
  }
}

/** Who is at the keyboard: --as, else the operating system's name for the user; '' when it has none. */
export function subjectOf(options: { as?: string }): string {
  if (options.as !== undefined) {
    return options.as;
  }
  try {
    return userInfo().username;
  } catch {
    return process.env.USER ?? '';
  }
}
