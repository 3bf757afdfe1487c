import { check, type Effect, type Facts, openerFor, readFacts, type Violation } from '../checker/index.ts';
import { isCountersignError } from '../errors.ts';
import { type Database, readAsTenant } from '../postgres/index.ts';
import { type Explanation, explain } from '../runs/index.ts';
import type { KeyRing } from '../seal/index.ts';
import { AT_REST, type RestlessRun, type WatchedRun } from './watched-runs.ts';

export type RunVerdict = { tenant: string; run: string; found: Violation[] };

/** Effects that some provider knows under these keys. Reads one that cannot be asked as an error, never as none. */
export type EffectsOf = (keys: readonly string[]) => Promise<Effect[]>;

export type VerdictOptions = {
  runs: readonly WatchedRun[];
  /** Those that the fleet had still something to do for when the waiting was over. */
  restless: readonly RestlessRun[];
  settleMs: number;
  /** By the database's clock, in ms: what had gone wrong before is not held against the trouble. */
  since: number;
  effectsOf: EffectsOf;
  /** To compare what ran with what was reviewed; null where there is no key. */
  keys: KeyRing | null;
};

const AT_ONCE = 4;
/** A run that moves while it is read is read again. */
const READINGS = 3;

/** The checker's verdict over runs of a fleet that is at work. Only those in which it found something. */
export async function judgeRuns(db: Database, options: VerdictOptions): Promise<RunVerdict[]> {
  const verdicts: RunVerdict[] = [];
  for (let at = 0; at < options.runs.length; at += AT_ONCE) {
    const some = options.runs.slice(at, at + AT_ONCE);
    verdicts.push(...(await Promise.all(some.map((run) => judgeRun(db, run, options)))));
  }
  return verdicts.filter(({ found }) => found.length > 0);
}

async function judgeRun(db: Database, run: WatchedRun, options: VerdictOptions): Promise<RunVerdict> {
  const { facts, effects, explanation } = await readStill(db, run, options.effectsOf);
  const restless = options.restless.find(({ id }) => id === run.id);
  const recent = facts.events.filter(({ at }) => at >= options.since);
  // Somebody has decided since: it is on its way again, and only what must always hold is asked of it.
  const moves = facts.runs.some(({ id, status }) => id === run.id && !AT_REST.includes(status));
  const happened = (...kinds: string[]) => recent.some(({ kind }) => kinds.includes(kind));
  const { opened, found } = openable(facts, options.keys);
  found.push(
    ...check(facts, {
      effects,
      onlySome: true,
      opened,
      explanations: explanation === null ? [] : [explanation],
      expected: {
        ended: restless === undefined && explanation !== null && !moves,
        ends: AT_REST,
        effects: null,
        contradiction: !happened('contradiction'),
        givenUp: !happened('run_dead_lettered'),
        alarm: !happened('security_alert', 'run_quarantined'),
      },
    }),
  );
  if (restless !== undefined) {
    found.push(
      `I9: not at rest ${options.settleMs / 1_000} s after the trouble: ${restless.status}; a longer --settle tells whether it still recovers`,
    );
  }
  return { tenant: run.tenant, run: run.id, found };
}

type Reading = { facts: Facts; effects: Effect[]; explanation: Explanation | null };

/**
 * Reads everything about a run while it stands still. Effects first: each of them was dispatched by the time that the
 * rows are read. Without an explanation when it would not stand still: then its rows alone are compared.
 */
async function readStill(db: Database, { tenant, id }: WatchedRun, effectsOf: EffectsOf): Promise<Reading> {
  for (let reading = 1; ; reading += 1) {
    const effects = await effectsOf(await keysOf(db, tenant, id));
    const facts = await readFacts(db, tenant, id);
    const explanation = await explain(db, { tenant, runId: id });
    const told = facts.events.filter(({ runId }) => runId === id).length;
    if (explanation.happened.length === told) {
      return { facts, effects, explanation };
    }
    if (reading === READINGS) {
      return { facts, effects, explanation: null };
    }
  }
}

const KEYS = 'select id from countersign.actions where run_id = $1';

async function keysOf(db: Database, tenant: string, run: string): Promise<string[]> {
  return readAsTenant(db, tenant, async (tx) => {
    const { rows } = await tx.query(KEYS, [run]);
    return (rows as { id: string }[]).map(({ id }) => id);
  });
}

/** What cannot be opened is told once for the run, and not compared. @throws KEY_MISSING */
function openable(
  facts: Facts,
  keys: KeyRing | null,
): { opened: ReturnType<typeof openerFor> | null; found: Violation[] } {
  if (keys === null) {
    return { opened: null, found: [] };
  }
  const opened = openerFor(keys, facts);
  try {
    facts.actions.map(opened);
    return { opened, found: [] };
  } catch (error) {
    if (isCountersignError(error, 'SEAL_BROKEN')) {
      return {
        opened: null,
        found: ['I2: what was reviewed, or what is to run, cannot be opened (SEAL_BROKEN)'],
      };
    }
    throw error;
  }
}
