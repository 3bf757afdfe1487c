import { CountersignError } from '../errors.ts';
import { classified, type Database } from './database.ts';
import { readMigrations } from './migrate.ts';

/**
 * Truth needs a Postgres that does not forget a commit: refuses fsync=off and synchronous_commit=off.
 *
 * @param allowForgetful for tests only, where a crash of the server is not part of the promise.
 * @throws POSTGRES_FORGETFUL naming the setting.
 */
export async function assertDurable(db: Database, allowForgetful = false): Promise<void> {
  if (allowForgetful) {
    return;
  }
  const { rows } = await db.pool
    .query<{ fsync: string; commit: string }>(
      "select current_setting('fsync') as fsync, current_setting('synchronous_commit') as commit",
    )
    .catch((error: unknown) => {
      throw classified(error, 'connect');
    });
  const [settings] = rows;
  if (settings === undefined || settings.fsync === 'off' || settings.commit === 'off') {
    const setting = settings?.fsync === 'off' ? 'fsync' : 'synchronous_commit';
    throw new CountersignError(
      'POSTGRES_FORGETFUL',
      `This Postgres has ${setting}=off and may forget a commit; turn it on.`,
      {
        details: { setting },
      },
    );
  }
}

/**
 * Refuses to start against a schema that is behind or ahead of this package.
 *
 * @throws SCHEMA_MISSING, SCHEMA_NEWER
 */
export async function assertSchema(db: Database): Promise<void> {
  const wanted = (await readMigrations()).at(-1)?.number ?? 0;
  const { rows } = await db.pool
    .query<{ current: number }>(
      'select coalesce(max(number), 0)::integer as current from countersign.migrations',
    )
    .catch((error: unknown) => {
      if (error instanceof Error && 'code' in error && (error.code === '42P01' || error.code === '3F000')) {
        return { rows: [{ current: 0 }] };
      }
      throw classified(error, 'connect');
    });
  const current = rows[0]?.current ?? 0;
  if (current < wanted) {
    throw new CountersignError(
      'SCHEMA_MISSING',
      `The schema is at migration ${current}, this version needs ${wanted}; run "countersign migrate".`,
      {
        details: { current, wanted },
      },
    );
  }
  if (current > wanted) {
    throw new CountersignError(
      'SCHEMA_NEWER',
      `The schema is at migration ${current}, this version knows ${wanted}; upgrade countersign.`,
      {
        details: { current, wanted },
      },
    );
  }
}
