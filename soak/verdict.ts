/** The checker over a soak: each run when it has ended, and everything once more when all have. */
import type { Lane } from '../crash-matrix/lane.ts';
import { effectsOf, explainAll } from '../crash-matrix/observe.ts';
import { check, openerFor, readFacts, type Violation } from '../src/checker/index.ts';
import { type Crowd, expectedOf } from './crowd.ts';

/** Runs that have ended for good, or that nobody but an operator would move again. */
const ENDED = `
  select tenant from countersign.runs
  where status in ('completed', 'failed', 'cancelled', 'superseded', 'quarantined', 'dead_lettered')`;

/** Keys with more than one effect, wherever; none. */
const TWICE = 'select key from public.effects group by key having count(*) > 1';

const BATCH = 20;

export class Verdict {
  readonly violations: { run: string; found: Violation[] }[] = [];
  readonly #lane: Lane;
  readonly #crowd: Crowd;
  readonly #checked = new Set<string>();

  constructor(lane: Lane, crowd: Crowd) {
    this.#lane = lane;
    this.#crowd = crowd;
  }

  get checked(): number {
    return this.#checked.size;
  }

  /** Tells the crowd how many runs have ended, and checks those that were ended at the last call already. */
  async checkOnce(previous: ReadonlySet<string>): Promise<Set<string>> {
    const { rows } = await this.#lane.admin.pool.query<{ tenant: string }>(ENDED);
    const ended = new Set(rows.map(({ tenant }) => tenant));
    this.#crowd.countEnded(ended.size);
    // An announcement may still be on its way, a late receipt as well: a run is checked one look after it ended.
    const due = [...previous].filter((tenant) => !this.#checked.has(tenant));
    for (let at = 0; at < due.length; at += BATCH) {
      await Promise.all(due.slice(at, at + BATCH).map((tenant) => this.#checkRun(tenant)));
    }
    return ended;
  }

  async #checkRun(tenant: string): Promise<void> {
    const wish = this.#crowd.wishes.get(tenant);
    if (wish === undefined) {
      return;
    }
    const facts = await readFacts(this.#lane.admin, tenant);
    if (facts.outbox.some(({ sent, dead }) => !sent && !dead)) {
      return;
    }
    const found = check(facts, {
      effects: await effectsOf(this.#lane, tenant),
      expected: { ended: true, ...expectedOf(wish), judged: this.#crowd.judged },
      explanations: await explainAll(this.#lane, facts),
      opened: openerFor(this.#lane.keys, facts),
    });
    // Only now: a reading that failed is repeated.
    this.#checked.add(tenant);
    if (found.length > 0) {
      this.violations.push({ run: `${tenant} (${wish.workflow}, ${wish.word})`, found });
    }
  }

  /** When nobody does anything any more: no key has two effects, and no run was left out. */
  async finish(): Promise<void> {
    const found: Violation[] = [];
    const { byKey } = await this.#lane.provider.client.counts();
    const twice = Object.entries(byKey).filter(([, { commits }]) => commits > 1);
    found.push(...twice.map(([key, { commits }]) => `I4: ${commits} effects under the key ${key}`));
    const { rows } = await this.#lane.admin.pool.query<{ key: string }>(TWICE);
    found.push(...rows.map(({ key }) => `I4: more than one row under the key ${key}`));
    for (const tenant of this.#crowd.wishes.keys()) {
      if (!this.#checked.has(tenant)) {
        found.push(`I9: the run of ${tenant} has not ended, or not all of its announcements were sent`);
      }
    }
    found.push(...this.#lane.fleet.crashed().map(({ role, pid }) => `I9: ${role} ${pid} ended by itself`));
    if (found.length > 0) {
      this.violations.push({ run: 'all', found });
    }
  }
}
