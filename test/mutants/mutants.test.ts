/** The checker checks: each rule of the protocol is taken out in turn, and the checker must notice. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { MUTANTS } from './mutants.ts';
import { SCHEDULES, type ScheduleName } from './schedules.ts';
import { type Mutation, Stage } from './stage.ts';

async function play(name: ScheduleName, mutations: readonly Mutation[]): Promise<string[]> {
  const stage = await Stage.open(mutations);
  try {
    return await stage.violations(await SCHEDULES[name](stage));
  } finally {
    await stage.close();
  }
}

describe('the checker checks', () => {
  it.concurrent.each(Object.keys(SCHEDULES) as ScheduleName[])(
    'the protocol as it is has no violation when %s',
    async (name) => {
      expect(await play(name, [])).toEqual([]);
    },
  );

  it.concurrent.each(MUTANTS)('$name: caught by $caught when $schedule', async (mutant) => {
    const found = await play(mutant.schedule, mutant.mutations);
    expect(found.filter((violation) => violation.startsWith(`${mutant.caught}:`))).not.toEqual([]);
  });

  it('every mutant is listed in the README with the schedule that kills it', () => {
    const listed = readFileSync(path.join(import.meta.dirname, 'README.md'), 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('| ') && !line.startsWith('| rule'));
    expect(listed).toEqual(
      MUTANTS.map(({ name, schedule, caught }) => `| ${name} | ${schedule} | ${caught} |`),
    );
  });

  it('every schedule is there for some mutant', () => {
    const used = new Set<string>(MUTANTS.map(({ schedule }) => schedule));
    expect(Object.keys(SCHEDULES).filter((name) => !used.has(name))).toEqual([]);
  });
});
