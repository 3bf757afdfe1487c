import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import {
  assertLoopback,
  dropConnections,
  duplicateJobs,
  judgeRuns,
  killWorker,
  momentOf,
  type RunVerdict,
  runsSince,
  scopeOf,
  untilAtRest,
} from '../../chaos/index.ts';
import { type Config, readConfig } from '../../config.ts';
import { effectsAtProvider } from '../../dev/index.ts';
import { CountersignError } from '../../errors.ts';
import { readFleetFile } from '../../fleet-file.ts';
import { assertSchema, type Database, openDatabase } from '../../postgres/index.ts';
import { assertRedisSafe, countForeignKeys, forgetJobs, openResumeQueue } from '../../queue/index.ts';
import { KeyRing } from '../../seal/index.ts';
import { leaf, refuseLeftovers, withGlobals } from '../command.ts';
import { globalsOf, print, type Shown, table } from '../output.ts';
import { duration, share } from '../values.ts';

type CommonFlags = { settle: number; notLoopback?: boolean };

/** What a command has made, for a person and for a program. */
type Made = {
  /** `[what, how often]` */
  rows: readonly (readonly [what: string, times: number])[];
  done: Record<string, number | string>;
  /** Runs that were given something, and are judged whatever they do. */
  given?: readonly string[];
};

type Stage = { config: Config; db: Database; tenant: string | null };

/** How long after its end a run is still sent copies of its job. */
const ENDED_WITHIN_MS = 60_000;
/** How often copies are published. */
const ROUND_MS = 1_000;
const COPIES_A_ROUND = 1_000;
const ALL = 1_000_000;

/** chaos: makes trouble, waits until the fleet has recovered, and says what the checker found. */
export function addChaos(program: Command): void {
  const chaos = withGlobals(
    program.command('chaos').description('make trouble on purpose, and see that nothing comes of it'),
  )
    .usage('[options] <verb>')
    .allowExcessArguments()
    .allowUnknownOption()
    .action(() => {
      refuseLeftovers(chaos, 'chaos');
      throw new CountersignError('USAGE', `Say which trouble: ${verbsOf(chaos)}. See --help.`, {
        details: { kind: 'noCommand' },
      });
    });

  trouble(chaos, 'duplicates', 'deliver the jobs of a random share of the runs again and again')
    .option('--rate <SHARE>', 'of the runs that have not ended, or just now; each second', share, 0.3)
    .option('--for <DURATION>', 'how long', duration, 30_000)
    .action((flags: CommonFlags & { rate: number; for: number }, command: Command) =>
      makeAndJudge(command, flags, (stage) => duplicates(stage, flags)),
    );

  trouble(chaos, 'kill-workers', 'kill -9 workers that `countersign dev` has started, one after the other')
    .option('--every <DURATION>', 'one each time', duration, 2_000)
    .option('--for <DURATION>', 'how long', duration, 30_000)
    .action((flags: CommonFlags & { every: number; for: number }, command: Command) =>
      makeAndJudge(command, flags, (stage) => killWorkers(stage, flags)),
    );

  trouble(
    chaos,
    'flush-redis',
    'empty the fleet’s Redis database; without Redis, the table of jobs in Postgres',
  ).action((flags: CommonFlags, command: Command) => makeAndJudge(command, flags, flushRedis));

  trouble(chaos, 'drop-connections', 'end every connection of the fleet to Postgres').action(
    (flags: CommonFlags, command: Command) => makeAndJudge(command, flags, drop),
  );
}

function trouble(parent: Command, name: string, description: string): Command {
  return leaf(parent, name, description)
    .option('--settle <DURATION>', 'how long the fleet may take to come to rest afterwards', duration, 30_000)
    .option('--not-loopback', 'also where Postgres, Redis or the provider are on another machine');
}

function verbsOf(chaos: Command): string {
  return chaos.commands.map((command) => command.name()).join(', ');
}

async function makeAndJudge(
  command: Command,
  flags: CommonFlags,
  make: (stage: Stage) => Promise<Made>,
): Promise<void> {
  const config = await readConfig();
  if (flags.notLoopback !== true) {
    assertLoopback({
      DATABASE_URL: config.databaseUrl,
      REDIS_URL: config.redisUrl,
      'the provider’s URL': config.fleet?.providerUrl ?? null,
    });
  }
  // A name that is not the fleet's: what drops its connections must not drop this one.
  const db = openDatabase({ url: config.databaseUrl, role: null, max: 4, name: 'chaos' });
  try {
    await assertSchema(db);
    const { tenant } = await scopeOf(db, globalsOf(command).tenant, config.tenant);
    const since = await momentOf(db);
    const made = await make({ config, db, tenant });
    const runs = await runsSince(db, { tenant, since, given: made.given ?? [] });
    const restless = await untilAtRest(db, { tenant, runs, withinMs: flags.settle });
    const violations = await judgeRuns(db, {
      runs,
      restless,
      settleMs: flags.settle,
      since,
      effectsOf: config.fleet === null ? async () => [] : effectsAtProvider(config.fleet.providerUrl),
      keys: config.reviewKeySpec === null ? null : KeyRing.parse({ review: config.reviewKeySpec }),
    });
    const whose = tenant === null ? '' : ` of tenant ${tenant}`;
    const where = config.fleet === null ? 'Postgres alone' : 'Postgres and the provider';
    const looked = [`runs${whose} looked at, in ${where}`, runs.length] as const;
    print(command, shown(made, looked, violations));
    process.exitCode = violations.length === 0 ? 0 : 1;
  } finally {
    await db.close();
  }
}

function shown(
  made: Made,
  looked: readonly [what: string, runs: number],
  violations: readonly RunVerdict[],
): Shown {
  const found = violations.flatMap((verdict) => verdict.found.map((text) => [verdict.run, text]));
  return {
    json: { done: made.done, runs: looked[1], violations },
    text: [
      table(['WHAT', 'TIMES'], [...made.rows, looked, ['violations', found.length]]),
      ...(found.length === 0 ? [] : ['', table(['RUN', 'VIOLATION'], found)]),
    ].join('\n'),
  };
}

/** Each second for as long as asked, at least once. */
async function duplicates(stage: Stage, flags: { rate: number; for: number }): Promise<Made> {
  const { config, db, tenant } = stage;
  const { databaseUrl, redisUrl } = config;
  if (redisUrl !== null) {
    await assertRedisSafe(redisUrl);
  }
  const queue = openResumeQueue({
    redisUrl,
    postgresUrl: databaseUrl,
    name: config.queue,
    onError: () => undefined,
  });
  const given = new Set<string>();
  let copies = 0;
  try {
    await repeat(flags.for, ROUND_MS, async () => {
      const jobs = await duplicateJobs(db, queue, {
        tenant,
        share: flags.rate,
        endedWithinMs: ENDED_WITHIN_MS,
        atMost: COPIES_A_ROUND,
      });
      copies += jobs.length;
      for (const { runId } of jobs) {
        given.add(runId);
      }
    });
  } finally {
    await queue.close();
  }
  return {
    rows: [
      ['jobs delivered again', copies],
      ['runs whose job that was', given.size],
    ],
    done: { command: 'duplicates', queue: queue.backend, duplicates: copies, duplicatedRuns: given.size },
    given: [...given],
  };
}

async function killWorkers({ config }: Stage, flags: { every: number; for: number }): Promise<Made> {
  if (config.fleet === null) {
    throw new CountersignError(
      'CHAOS_REFUSED',
      `Only workers that \`countersign dev\` of this machine has started are killed, and none runs in ${config.home}.`,
      { details: { home: config.home } },
    );
  }
  let kills = 0;
  let nobody = 0;
  await repeat(flags.for, flags.every, async () => {
    const fleet = await readFleetFile(config.home);
    const killed = fleet === null ? null : killWorker(fleet.pids);
    kills += killed === null ? 0 : 1;
    nobody += killed === null ? 1 : 0;
  });
  return {
    rows: [
      ['workers killed', kills],
      ['nobody there to kill', nobody],
    ],
    done: { command: 'kill-workers', kills, nobody },
  };
}

async function flushRedis({ config }: Stage): Promise<Made> {
  const { databaseUrl, redisUrl } = config;
  if (redisUrl === null) {
    const jobs = await forgetJobs({ redisUrl, postgresUrl: databaseUrl });
    return {
      rows: [['jobs forgotten (there is no Redis: the queue is a table in Postgres)', jobs]],
      done: { command: 'flush-redis', queue: 'postgres', forgotten: jobs },
    };
  }
  await assertRedisSafe(redisUrl);
  const foreign = await countForeignKeys(redisUrl, config.queue);
  if (foreign > 0) {
    throw new CountersignError(
      'CHAOS_REFUSED',
      `That Redis database holds ${foreign} key(s) of somebody else, which would be lost; give the fleet a database of its own.`,
      { details: { field: 'REDIS_URL', foreign } },
    );
  }
  const keys = await forgetJobs({ redisUrl, postgresUrl: databaseUrl });
  return {
    rows: [['keys forgotten by Redis', keys]],
    done: { command: 'flush-redis', queue: 'redis', forgotten: keys },
  };
}

async function drop({ db }: Stage): Promise<Made> {
  const connections = await dropConnections(db, ALL);
  return {
    rows: [['connections dropped', connections]],
    done: { command: 'drop-connections', connections },
  };
}

/** At once, and again as long as the time lasts. */
async function repeat(forMs: number, everyMs: number, act: () => Promise<void>): Promise<void> {
  const end = performance.now() + forMs;
  for (;;) {
    await act();
    const left = end - performance.now();
    if (left <= 0) {
      return;
    }
    await sleep(Math.min(everyMs, left));
    if (performance.now() >= end) {
      return;
    }
  }
}
