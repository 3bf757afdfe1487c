/** One lane: a database, a queue, a provider and a fleet of its own, in which one schedule runs after another. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Cleanup } from '../lab/cleanup.ts';
import { type Database, openDatabase } from '../src/postgres/index.ts';
import { forgetJobs, prepareQueue } from '../src/queue/index.ts';
import { KeyRing } from '../src/seal/index.ts';
import { type Provider, startProvider } from '../test/support/provider.ts';
import { Fleet } from './fleet.ts';
import type { Pace } from './pace.ts';
import type { Place } from './role-process.ts';
import type { Servers } from './servers.ts';
import { PROVIDER_KINDS } from './workflows.ts';

export type Lane = {
  readonly name: string;
  readonly place: Place;
  readonly fleet: Fleet;
  /** As the login role: sees every tenant. For the checker and for asking how far a run is. */
  readonly admin: Database;
  /** As the api role, for `explain`. */
  readonly reader: Database;
  readonly provider: Provider;
  readonly keys: KeyRing;
  /** Forgets every job: the queue is expendable, and what one schedule left must not wake the next one. */
  forgetJobs(): Promise<void>;
  close(): Promise<void>;
};

/** Effects of transactional actions. No key is unique here: a second effect must be seen, not refused. */
const EFFECTS_TABLE = `
  create table public.effects (key uuid not null, body jsonb not null, at timestamptz not null default clock_timestamp());
  grant insert, select on public.effects to countersign_worker`;

/** @param index names the lane's database and its Redis database, 0 to 15. */
export async function openLane(
  cleanup: Cleanup,
  servers: Servers,
  options: { index: number; pace: Pace },
): Promise<Lane> {
  const name = `lane_${options.index}_${randomBytes(4).toString('hex')}`;
  const databaseUrl = await servers.createDatabase(name);
  const redisUrl = servers.redisUrl === null ? null : `${servers.redisUrl}/${options.index}`;
  const admin = openDatabase({ url: databaseUrl, role: null, max: 4, name: 'matrix' });
  const reader = openDatabase({ url: databaseUrl, role: 'countersign_api', max: 2, name: 'matrix' });
  await admin.pool.query(EFFECTS_TABLE);
  if (redisUrl === null) {
    await prepareQueue({ postgresUrl: databaseUrl });
  }
  const provider = await startProvider();
  for (const kind of PROVIDER_KINDS.filter((known) => known !== 'idempotent')) {
    await provider.client.setMode(kind, { dedupe: false });
  }
  const spec = KeyRing.generate();
  const place: Place = { databaseUrl, redisUrl, providerUrl: provider.url, keys: spec, pace: options.pace };
  const dir = await mkdtemp(join(tmpdir(), `countersign-${name}-`));
  const fleet = new Fleet(cleanup, { module: servers.roleProcess, dir }, place);
  await fleet.restore();
  const close = async (): Promise<void> => {
    await fleet.kill();
    await Promise.all([admin.close(), reader.close(), provider.stop()]);
    await rm(dir, { recursive: true, force: true });
    await servers.dropDatabase(databaseUrl);
  };
  return {
    name,
    place,
    fleet,
    admin,
    reader,
    provider,
    keys: KeyRing.parse(spec),
    forgetJobs: async () => void (await forgetJobs({ redisUrl, postgresUrl: databaseUrl })),
    close,
  };
}
