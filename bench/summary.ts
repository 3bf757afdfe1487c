/** From rounds to the numbers that are reported: medians, and each ratio as Countersign over the unsafe worker. */
import type { CpuSeconds, RoundResult } from './round.ts';

/** Rounds of one side on one backend, by number of worker processes. */
export type SideRounds = { one: RoundResult[]; two: RoundResult[] };

export type CpuReport = CpuSeconds & { total: number };

export type SideReport = {
  resumes_per_second_1: number;
  resumes_per_second_2: number;
  /** Seconds per 1,000 resumes. `publisher`: Countersign's relay, or the unsafe side's producer. */
  cpu_1: CpuReport | null;
  cpu_2: CpuReport | null;
  p50_ms: number;
  p99_ms: number;
  state_chars: number;
};

export type BackendReport = {
  throughput_ratio_1: number;
  throughput_ratio_2: number;
  cpu_ratio: number | null;
  cpu_ratio_2: number | null;
  p50_ratio: number;
  p99_ratio: number;
  safe: SideReport;
  unsafe: SideReport;
  /** Over all rounds of both sides. */
  effects: RoundResult['effects'];
};

export function summarise(safe: SideRounds, unsafe: SideRounds): BackendReport {
  const ours = summariseSide(safe);
  const theirs = summariseSide(unsafe);
  const cpuRatio = (mine: CpuReport | null, other: CpuReport | null) =>
    mine === null || other === null ? null : ratio(mine.total, other.total);
  return {
    throughput_ratio_1: ratio(ours.resumes_per_second_1, theirs.resumes_per_second_1),
    throughput_ratio_2: ratio(ours.resumes_per_second_2, theirs.resumes_per_second_2),
    cpu_ratio: cpuRatio(ours.cpu_1, theirs.cpu_1),
    cpu_ratio_2: cpuRatio(ours.cpu_2, theirs.cpu_2),
    p50_ratio: ratio(ours.p50_ms, theirs.p50_ms),
    p99_ratio: ratio(ours.p99_ms, theirs.p99_ms),
    safe: ours,
    unsafe: theirs,
    effects: sumEffects([...safe.one, ...safe.two, ...unsafe.one, ...unsafe.two]),
  };
}

function summariseSide({ one, two }: SideRounds): SideReport {
  return {
    resumes_per_second_1: rounded(median(one.map((round) => round.resumesPerSecond))),
    resumes_per_second_2: rounded(median(two.map((round) => round.resumesPerSecond))),
    cpu_1: medianCpu(one),
    cpu_2: medianCpu(two),
    p50_ms: rounded(median(one.map((round) => percentile(round.latenciesMs, 50)))),
    p99_ms: rounded(median(one.map((round) => percentile(round.latenciesMs, 99)))),
    state_chars: one[0]?.stateChars ?? 0,
  };
}

/** Each part's own median; the total is the median of the rounds' totals. */
function medianCpu(rounds: readonly RoundResult[]): CpuReport | null {
  const measured = rounds.flatMap(({ cpu }) => (cpu === null ? [] : [cpu]));
  if (measured.length === 0) {
    return null;
  }
  const part = (key: keyof CpuSeconds) => rounded(median(measured.map((cpu) => cpu[key])));
  return {
    workers: part('workers'),
    publisher: part('publisher'),
    postgres: part('postgres'),
    redis: part('redis'),
    total: rounded(median(measured.map((cpu) => cpu.workers + cpu.publisher + cpu.postgres + cpu.redis))),
  };
}

function sumEffects(rounds: readonly RoundResult[]): RoundResult['effects'] {
  const sum = { runs: 0, once: 0, missing: 0, repeated: 0 };
  for (const { effects } of rounds) {
    sum.runs += effects.runs;
    sum.once += effects.once;
    sum.missing += effects.missing;
    sum.repeated += effects.repeated;
  }
  return sum;
}

export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** Nearest rank; of an even number of values the median is the mean of the two in the middle. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  if (percent === 50 && sorted.length > 0 && sorted.length % 2 === 0) {
    return ((sorted[sorted.length / 2 - 1] ?? 0) + (sorted[sorted.length / 2] ?? 0)) / 2;
  }
  return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)] ?? Number.NaN;
}

function ratio(ours: number, theirs: number): number {
  return rounded(ours / theirs);
}

function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
