/**
 * The outside of a run: the client that starts it and the person who decides, both of whom simply ask again when they
 * get no answer. They know nothing of faults; nobody gives the fleet a command.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Effect, Violation } from '../src/checker/index.ts';
import { explain } from '../src/runs/index.ts';
import type { Lane } from './lane.ts';
import { effectsOf } from './observe.ts';
import type { Scenario } from './scenarios.ts';
import { PERMISSION, VERSION } from './workflows.ts';

export type Story = {
  ended: boolean;
  /** What was seen last, for the report of a run that did not recover. */
  status: string | null;
  /** Actions whose outcome the person told us. */
  judged: Set<string>;
  /** Where `explain` told a person who looked something that was not so. */
  found: Violation[];
};

type Seen = {
  id: string;
  status: string;
  pending: string[];
  approved: string[];
  unknown: { id: string; attempt: number; overdue: boolean }[];
};

const ENDED = ['completed', 'failed', 'cancelled', 'superseded'];
/** Nothing moves from here without an operator: there is nothing to wait for. */
const GIVEN_UP = ['dead_lettered', 'quarantined'];

/** parameter: tenant. Open actions that only a person can judge come with whether their attempt can still be on its way. */
const SEEN = `
  select r.id, r.status,
    coalesce((select jsonb_agg(p.id order by p.id) from countersign.approvals p where p.run_id = r.id and p.state = 'pending'), '[]') as pending,
    coalesce((select jsonb_agg(p.id order by p.id) from countersign.approvals p where p.run_id = r.id and p.state = 'approved'), '[]') as approved,
    coalesce((select jsonb_agg(jsonb_build_object('id', a.id, 'attempt', a.attempt, 'overdue', a.absent_after < clock_timestamp()))
      from countersign.actions a where a.run_id = r.id and a.state = 'outcome_unknown' and a.recovery = 'manual'), '[]') as unknown
  from countersign.runs r where r.tenant = $1`;

/** Where a person on call would ask what has happened. */
const PUZZLING = new Set(['awaiting_reconciliation', 'parked', 'dead_lettered']);

/** Plays client and person until the run has ended or the bound has passed. */
export async function playStory(lane: Lane, scenario: Scenario, tenant: string): Promise<Story> {
  const story: Story = { ended: false, status: null, judged: new Set(), found: [] };
  const end = performance.now() + lane.place.pace.boundMs;
  const person = new Person(lane, scenario, tenant, story);
  while (performance.now() < end) {
    const seen = await look(lane, tenant);
    if (seen !== null && seen.status !== story.status && PUZZLING.has(seen.status)) {
      story.found.push(...(await askForExplanation(lane, tenant, seen.id)));
    }
    story.status = seen?.status ?? null;
    if (seen !== null && ENDED.includes(seen.status)) {
      story.ended = true;
      return story;
    }
    const isReplayed = seen?.status === 'dead_lettered' && scenario.person === 'replays';
    if (seen !== null && GIVEN_UP.includes(seen.status) && !isReplayed) {
      return story;
    }
    if (!(await person.act(seen))) {
      await sleep(lane.place.pace.stepMs);
    }
  }
  return story;
}

/** What is said to be so must have been so before it was asked for; what is said not to be, must not be so after. */
async function askForExplanation(lane: Lane, tenant: string, runId: string): Promise<Violation[]> {
  const before = await effectsOf(lane, tenant);
  const { actions } = await explain(lane.reader, { tenant, runId });
  const after = await effectsOf(lane, tenant);
  return actions.flatMap(({ id, happened, state }) => {
    const isIn = (effects: readonly Effect[]) => effects.some(({ key }) => key === id);
    const wrong = (happened === 'no' && isIn(before)) || (happened === 'yes' && !isIn(after));
    return wrong
      ? [`I10: while it was ${state}, explain said of action ${id}: ${happened}, and it was not so`]
      : [];
  });
}

export async function look(lane: Lane, tenant: string): Promise<Seen | null> {
  const { rows } = await lane.admin.pool.query<Seen>({ name: 'seen', text: SEEN, values: [tenant] });
  return rows[0] ?? null;
}

class Person {
  readonly #lane: Lane;
  readonly #scenario: Scenario;
  readonly #tenant: string;
  readonly #story: Story;

  constructor(lane: Lane, scenario: Scenario, tenant: string, story: Story) {
    this.#lane = lane;
    this.#scenario = scenario;
    this.#tenant = tenant;
    this.#story = story;
  }

  /** Does what is to be done now. Returns false when there is nothing, or when no answer came. */
  async act(seen: Seen | null): Promise<boolean> {
    const tenant = this.#tenant;
    if (seen === null) {
      return this.#start();
    }
    if (seen.status === 'dead_lettered') {
      await this.#lane.provider.client.create(PERMISSION, { mark: tenant }, { idempotencyKey: tenant });
      return this.#ask('replay', { tenant });
    }
    const [due] = seen.unknown.filter(({ overdue }) => overdue);
    if (due !== undefined) {
      const verdict = await this.#askProvider(due.id);
      this.#story.judged.add(due.id);
      return this.#ask('resolve', { tenant, actionId: due.id, attempt: due.attempt, verdict });
    }
    const [revocable] = seen.approved;
    if (this.#scenario.person === 'revokes' && revocable !== undefined) {
      return this.#ask('revoke', { tenant, approvalId: revocable });
    }
    const [approvalId] = seen.pending;
    if (seen.status !== 'awaiting_approval' || approvalId === undefined) {
      return false;
    }
    if (this.#scenario.person === 'cancels') {
      return this.#ask('cancel', { tenant, runId: seen.id });
    }
    const verdict = this.#scenario.person === 'rejects' ? 'reject' : 'approve';
    const decided = await this.#ask('decide', { tenant, approvalId, verdict });
    // At once: a worker may be faster all the same, and then the decision stands.
    return decided && this.#scenario.person === 'revokes'
      ? this.#ask('revoke', { tenant, approvalId })
      : decided;
  }

  #start(): Promise<boolean> {
    return this.#ask('start', {
      tenant: this.#tenant,
      workflow: this.#scenario.workflow,
      version: VERSION,
      input: this.#tenant,
      key: 'the one run',
      session: this.#scenario.session === true ? 'conversation' : null,
    });
  }

  /** A person looks at the provider's own books, where everything that happened is written. */
  async #askProvider(key: string): Promise<'succeeded' | 'not_executed'> {
    const { effects } = await this.#lane.provider.client.find('manual', key);
    return effects.length > 0 ? 'succeeded' : 'not_executed';
  }

  /** Whoever plays the api just then; false when the answer did not come in time, or was an error. */
  async #ask(method: string, parameters: unknown): Promise<boolean> {
    const api = this.#lane.fleet.all('api').at(-1);
    if (api === undefined) {
      return false;
    }
    const answer = api.call(method, parameters).then(
      () => true,
      () => false,
    );
    return Promise.race([answer, sleep(this.#lane.place.pace.clientMs, false)]);
  }
}
