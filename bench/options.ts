import { parseArgs } from 'node:util';
import type { Backend } from './round.ts';

export const USAGE = `usage: npm run bench -- [--runs N] [--quick] [--json] [--backend redis|embedded|both]

  --runs N    runs resumed per round (default 2000)
  --quick     one short round of everything, to see that it works; README.md is left alone
  --json      one JSON object on stdout instead of the table
  --backend   BullMQ on Redis (REDIS_URL, or a private redis-server), on its Postgres backend, or both (default)
`;

export type BenchOptions = {
  runs: number;
  quick: boolean;
  json: boolean;
  backends: Backend[];
  /** Rounds of each side at each setting; medians are reported. */
  rounds: number;
  concurrency: number;
  warmUp: number;
  decisions: number;
};

/** @throws RangeError naming the flag; whatever parseArgs throws. Null: help was asked for. */
export function readOptions(args: string[]): BenchOptions | null {
  const { values } = parseArgs({
    args,
    options: {
      runs: { type: 'string', default: '2000' },
      quick: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      backend: { type: 'string', default: 'both' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    return null;
  }
  const runs = Number(values.runs);
  if (!Number.isInteger(runs) || runs < 1 || runs > 100_000) {
    throw new RangeError('--runs is a whole number from 1 to 100000');
  }
  const { backend, quick, json } = values;
  if (backend !== 'redis' && backend !== 'embedded' && backend !== 'both') {
    throw new RangeError('--backend is redis, embedded or both');
  }
  return {
    runs,
    quick,
    json,
    backends: backend === 'both' ? ['redis', 'embedded'] : [backend],
    rounds: quick ? 1 : 3,
    concurrency: 32,
    warmUp: Math.min(1_000, Math.ceil(runs / 2)),
    decisions: quick ? 20 : 200,
  };
}
