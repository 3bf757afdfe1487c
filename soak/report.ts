/** What a soak has to say in the end. */
import type { ChaosCounts } from './chaos.ts';
import type { Memory } from './memory.ts';
import type { Verdict } from './verdict.ts';

export type Result = ChaosCounts & {
  runs: number;
  checked: number;
  seconds: number;
  violations: Verdict['violations'];
  memory: Memory[];
};

export function tell(result: Result): string {
  const { kills, duplicates, flushes, connectionDrops, providerFaults } = result;
  const lines = [
    `${result.runs} runs in ${result.seconds} s, ${result.checked} checked`,
    `${kills} processes killed, ${duplicates} jobs delivered again, the queue forgotten ${flushes} times, ${connectionDrops} connections dropped, ${providerFaults} provider faults`,
    ...result.memory.map(
      ({ role, pid, samples, growth, flat }) =>
        `live memory of ${role} ${pid}: ${samples.at(0)} to ${samples.at(-1)} MiB, ${growth === null ? 'too short a soak to judge' : `${flat ? 'flat' : 'GROWING'} (${growth} MiB)`}`,
    ),
    ...result.violations.flatMap(({ run, found }) => [run, ...found.map((text) => `  ${text}`)]),
    `${result.violations.length} violations`,
  ];
  return `${lines.join('\n')}\n`;
}

/** The exit code: 1 for a violation, and for memory that grows. */
export function codeOf({ violations, memory }: Pick<Result, 'violations' | 'memory'>): 0 | 1 {
  return violations.length === 0 && memory.every(({ flat }) => flat) ? 0 : 1;
}
