/**
 * Where the time of a resume goes: `node dist/bench/profile.js [--runs N] [--backend redis|embedded] [--side safe|unsafe]`.
 * One worker, one round: the worker's CPU profile by package, Postgres by function and statement, Redis by command, and
 * the stations of the latency. For people who make Countersign faster; the bench itself is main.ts.
 */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { withCleanup } from '../lab/cleanup.ts';
import { openDatabase } from '../src/index.ts';
import { openRedis } from '../src/queue/index.ts';
import { summariseProfile } from './cpu-profile.ts';
import { monotonicMs } from './effects.ts';
import { type Backend, type Observer, runRound, type Side } from './round.ts';
import { startServers } from './servers.ts';
import { percentile } from './summary.ts';

const SETTINGS = {
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.track': 'all',
  track_functions: 'all',
};
const FUNCTIONS = `select funcname, calls, total_time, self_time from pg_stat_user_functions order by self_time desc limit 40`;
const STATEMENTS = `select calls, total_exec_time, total_plan_time, toplevel, left(regexp_replace(query, '\\s+', ' ', 'g'), 150) as query
  from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname = current_database() order by total_exec_time desc limit 45`;
const COMMITS = `select xact_commit::int as commits from pg_stat_database where datname = current_database()`;
/** When each station was reached, by the database's clock, in ms since the epoch. */
const STATIONS = `
  select r.id, extract(epoch from d.at) * 1000 as decided, extract(epoch from c.at) * 1000 as claimed,
    extract(epoch from x.at) * 1000 as dispatched, extract(epoch from o.created_at) * 1000 as announced,
    extract(epoch from o.sent_at) * 1000 as marked
  from countersign.runs r
  join countersign.events d on d.tenant = r.tenant and d.run_id = r.id and d.kind = 'decision_approved'
  join countersign.events c on c.tenant = r.tenant and c.run_id = r.id and c.kind = 'run_claimed' and c.n > d.n
  join countersign.events x on x.tenant = r.tenant and x.run_id = r.id and x.kind = 'action_dispatched'
  join lateral (select * from countersign.outbox o where o.tenant = r.tenant and o.run_id = r.id order by position desc limit 1) o on true
  order by d.at desc limit $1`;

type Row = Record<string, string | number>;

async function query(databaseUrl: string, text: string, values: unknown[] = []): Promise<Row[]> {
  const db = openDatabase({ url: databaseUrl, role: null, max: 1 });
  try {
    return (await db.pool.query(text, values)).rows as Row[];
  } finally {
    await db.close();
  }
}

async function redisInfo(redisUrl: string, reset: boolean): Promise<string[]> {
  const redis = openRedis(redisUrl, () => undefined, 'blocking');
  try {
    if (reset) {
      await redis.config('RESETSTAT');
    }
    return (await redis.info('commandstats')).split('\r\n').filter((line) => line.startsWith('cmdstat'));
  } finally {
    redis.disconnect();
  }
}

function observerFor(side: Side, runs: number, folder: string): Observer {
  let commits = 0;
  const file = path.join(folder, `${side}.cpuprofile`);
  return {
    async begin({ fleet, databaseUrl, redisUrl }) {
      await query(databaseUrl, 'create extension if not exists pg_stat_statements');
      await query(databaseUrl, 'select pg_stat_statements_reset(), pg_stat_reset()');
      if (redisUrl !== null) {
        await redisInfo(redisUrl, true);
      }
      await new Promise((resolve) => setTimeout(resolve, 1_200));
      commits = Number((await query(databaseUrl, COMMITS))[0]?.commits);
      await fleet.workers[0]?.call('startProfile');
    },
    async end({ fleet, databaseUrl, redisUrl }) {
      await fleet.workers[0]?.call('stopProfile', file);
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      const after = Number((await query(databaseUrl, COMMITS))[0]?.commits);
      console.log(`\n# ${side}: ${((after - commits) / runs).toFixed(2)} commits per resume`);
      const { packages, functions } = await summariseProfile(file);
      const perResume = ({ name, ms }: { name: string; ms: number }) =>
        `${((ms / runs) * 1_000).toFixed(0).padStart(7)} µs  ${name}`;
      console.log(
        `\n## worker, self time per resume by package\n${packages.slice(0, 30).map(perResume).join('\n')}`,
      );
      console.log(`\n## by function\n${functions.slice(0, 60).map(perResume).join('\n')}`);
      console.log('\n## Postgres functions, µs per resume: calls, total, self');
      for (const row of await query(databaseUrl, FUNCTIONS)) {
        const us = (key: string) => ((Number(row[key]) / runs) * 1_000).toFixed(0).padStart(7);
        console.log(
          `${(Number(row.calls) / runs).toFixed(2).padStart(7)} ${us('total_time')} ${us('self_time')}  ${row.funcname}`,
        );
      }
      console.log('\n## Postgres statements, µs per resume: calls, execution, planning');
      for (const row of await query(databaseUrl, STATEMENTS)) {
        const us = (key: string) => ((Number(row[key]) / runs) * 1_000).toFixed(0).padStart(7);
        console.log(
          `${(Number(row.calls) / runs).toFixed(2).padStart(7)} ${us('total_exec_time')} ${us('total_plan_time')} ${row.toplevel ? '*' : ' '} ${row.query}`,
        );
      }
      if (redisUrl !== null) {
        console.log(`\n## Redis\n${(await redisInfo(redisUrl, false)).join('\n')}`);
      }
    },
    async after({ databaseUrl }, decidedAtMs, effects) {
      if (side === 'safe' && decidedAtMs.length > 0) {
        await printStations(
          databaseUrl,
          decidedAtMs,
          effects.slice(-decidedAtMs.length).map(({ atMs }) => atMs),
        );
      }
    },
  };
}

async function printStations(
  databaseUrl: string,
  decidedAtMs: readonly number[],
  effectAtMs: readonly number[],
): Promise<void> {
  const offset = performance.timeOrigin + performance.now() - monotonicMs();
  const rows = (await query(databaseUrl, STATIONS, [decidedAtMs.length])).reverse();
  const gap = (name: string, values: number[]) =>
    console.log(
      `${percentile(values, 50).toFixed(2).padStart(8)} ${percentile(values, 99).toFixed(2).padStart(8)}  ${name}`,
    );
  console.log('\n## stations of the latency, ms: p50, p99');
  gap(
    'decide() called → decision event',
    rows.map((row, i) => Number(row.decided) - offset - (decidedAtMs[i] ?? 0)),
  );
  gap(
    'decision event → outbox row',
    rows.map((row) => Number(row.announced) - Number(row.decided)),
  );
  gap(
    'outbox row → marked sent',
    rows.map((row) => Number(row.marked) - Number(row.announced)),
  );
  gap(
    'outbox row → claim event',
    rows.map((row) => Number(row.claimed) - Number(row.announced)),
  );
  gap(
    'claim event → dispatch event',
    rows.map((row) => Number(row.dispatched) - Number(row.claimed)),
  );
  gap(
    'dispatch event → effect',
    rows.map((row, i) => (effectAtMs[i] ?? 0) + offset - Number(row.dispatched)),
  );
}

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '1000' },
    backend: { type: 'string', default: 'redis' },
    side: { type: 'string', default: 'safe' },
  },
});
await withCleanup(async (cleanup) => {
  const runs = Number(values.runs);
  const side = values.side as Side;
  const folder = await mkdtemp(path.join(tmpdir(), 'countersign-profile-'));
  const servers = await startServers(cleanup, values.backend === 'redis', SETTINGS);
  const result = await runRound(
    cleanup,
    servers,
    {
      side,
      backend: values.backend as Backend,
      workers: 1,
      concurrency: 32,
      runs,
      warmUp: 1_000,
      decisions: 200,
    },
    observerFor(side, runs, folder),
  );
  console.log(
    `\n${result.resumesPerSecond.toFixed(0)}/s, ${JSON.stringify(result.cpu)}, p50 ${percentile(result.latenciesMs, 50).toFixed(1)} ms`,
  );
  console.log(`CPU profile: ${folder}`);
});
