/**
 * The lab: what happens to a paused, approved tool call when its job is delivered twice, with the real SDK in real
 * processes, counted where it matters: at the provider. Exit code 1 when a number is not the one we promise.
 */
import { parseArgs } from 'node:util';
import { type Cleanup, withCleanup } from './cleanup.ts';
import { startProvider } from './provider-process.ts';
import { emptyRedisDatabase } from './redis-database.ts';
import { pauseDecideResume, resumeTwice } from './sdk-alone.ts';
import { resumeTwiceWithLedger } from './with-ledger.ts';

const USAGE = `usage: npm run lab -- [--json] [--redis URL]

  --json       one JSON object on stdout instead of the table
  --redis URL  BullMQ on this Redis (default REDIS_URL; without either, BullMQ on the embedded Postgres)
`;

/** In the order of the table. */
const EXPERIMENTS = {
  before_approval: { expected: 0, what: 'SDK alone: paused, nobody has decided yet' },
  after_resume: { expected: 1, what: 'SDK alone: approved in one process, resumed in another' },
  after_rejection: { expected: 0, what: 'SDK alone: rejected in one process, resumed in another' },
  sdk_alone_replayed_twice: { expected: 2, what: 'SDK alone: two workers resume the same approved state' },
  with_ledger_replayed_twice: { expected: 1, what: 'Countersign: two workers, the job delivered five times' },
} as const;

type Effects = Record<keyof typeof EXPERIMENTS, number>;

async function countEffects(cleanup: Cleanup, redisUrl: string | null): Promise<Effects> {
  const provider = await startProvider(cleanup);
  const approved = await pauseDecideResume(cleanup, provider, 'approved', { verdict: 'approve' });
  const rejected = await pauseDecideResume(cleanup, provider, 'rejected', {
    verdict: 'reject',
    message: 'not on a Friday',
  });
  const twice = await resumeTwice(cleanup, provider);
  const roomUrl = redisUrl === null ? null : await emptyRedisDatabase(cleanup, redisUrl);
  const ledger = await resumeTwiceWithLedger(cleanup, provider, roomUrl);
  return {
    before_approval: approved.paused,
    after_resume: approved.ended,
    after_rejection: rejected.ended,
    sdk_alone_replayed_twice: twice,
    with_ledger_replayed_twice: ledger.effects,
  };
}

function table(effects: Effects, backend: string): string {
  const names = Object.keys(EXPERIMENTS) as (keyof Effects)[];
  const rows = names.map((name) => {
    const { expected, what } = EXPERIMENTS[name];
    const mark = effects[name] === expected ? 'ok' : `WRONG, expected ${expected}`;
    return `${what.padEnd(56)}${name.padEnd(28)}${String(effects[name]).padStart(7)}   ${mark}`;
  });
  const head = `${`Effects at the provider (queue on ${backend})`.padEnd(56)}${''.padEnd(28)}effects`;
  return [head, '─'.repeat(head.length + 6), ...rows, ''].join('\n');
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      redis: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const redisUrl = values.redis ?? (process.env.REDIS_URL || null);
  const effects = await withCleanup((cleanup) => countEffects(cleanup, redisUrl));
  const backend = redisUrl === null ? 'embedded Postgres' : 'Redis';
  process.stdout.write(values.json ? `${JSON.stringify(effects)}\n` : table(effects, backend));
  const names = Object.keys(EXPERIMENTS) as (keyof Effects)[];
  return names.every((name) => effects[name] === EXPERIMENTS[name].expected) ? 0 : 1;
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    const usage =
      error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');
    process.stderr.write(
      `lab: ${error instanceof Error ? error.message : String(error)}\n${usage ? USAGE : ''}`,
    );
    process.exitCode = usage ? 2 : 1;
  },
);
