/** Many clients and reviewers at once: runs are started, decided, rejected, cancelled and judged until there are enough. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Lane } from '../crash-matrix/lane.ts';

const EFFECTS = {
  lookup: { a: 1 },
  idempotent: { a: 1 },
  manual: { a: 1 },
  transactional: { a: 1 },
  parallel: { a: 1, b: 1, c: 1 },
  nested: { a: 1 },
  segments: { a: 1, b: 1 },
  recorded: { a: 1 },
} as const;
type WorkflowName = keyof typeof EFFECTS;
const WORKFLOWS = Object.keys(EFFECTS) as WorkflowName[];

/** What is wanted of one run. A tenant of its own keeps its rows and its effects apart. */
export type Wish = { tenant: string; workflow: WorkflowName; word: 'approve' | 'reject' | 'cancel' };

/** How a run must end, and with which effects. */
export function expectedOf({ workflow, word }: Wish): {
  ends: string[];
  effects: Readonly<Record<string, number>>;
} {
  // Nobody is asked about `recorded`, so nobody can stop it either.
  if (workflow === 'recorded' || word === 'approve') {
    return { ends: ['completed'], effects: EFFECTS[workflow] };
  }
  return { ends: [word === 'cancel' ? 'cancelled' : 'completed'], effects: {} };
}

export type CrowdOptions = {
  runs: number;
  /** Runs under way at once. */
  width: number;
  random: () => number;
  stopping: AbortSignal;
};

const REJECTED = 0.1;
const CANCELLED = 0.05;
const PAUSE_MS = 50;
/** Asked at a time by everybody together. */
const BATCH = 40;

/** Pending approvals whose run waits for them. */
const PENDING = `
  select p.tenant, p.id, p.run_id as "runId" from countersign.approvals p
  join countersign.runs r on r.tenant = p.tenant and r.id = p.run_id
  where p.state = 'pending' and r.status = 'awaiting_approval' limit ${BATCH}`;

/** Actions that only a person can judge, once nothing of their attempt can be on its way any more. */
const UNKNOWN = `
  select tenant, id, attempt from countersign.actions where state = 'outcome_unknown' and recovery = 'manual'
    and absent_after < clock_timestamp() limit ${BATCH}`;

export class Crowd {
  readonly wishes = new Map<string, Wish>();
  readonly judged = new Set<string>();
  readonly #lane: Lane;
  readonly #options: CrowdOptions;
  #ended = 0;

  constructor(lane: Lane, options: CrowdOptions) {
    this.#lane = lane;
    this.#options = options;
  }

  get started(): number {
    return this.wishes.size;
  }

  /** Told by whoever looks at runs that have ended. */
  countEnded(runs: number): void {
    this.#ended = runs;
  }

  /** Starts runs until there are enough of them. */
  async startAll(): Promise<void> {
    const { runs, width, stopping } = this.#options;
    while (this.started < runs && !stopping.aborted) {
      if (this.started - this.#ended >= width) {
        await sleep(PAUSE_MS);
        continue;
      }
      const wish = this.#nextWish();
      this.wishes.set(wish.tenant, wish);
      await this.#untilAnswered('start', {
        tenant: wish.tenant,
        workflow: wish.workflow,
        input: wish.tenant,
        key: 'the one run',
        session: null,
      });
    }
  }

  #nextWish(): Wish {
    const { random } = this.#options;
    const workflow = WORKFLOWS[Math.floor(random() * WORKFLOWS.length)] ?? 'lookup';
    const lot = random();
    const word = lot < REJECTED ? 'reject' : lot < REJECTED + CANCELLED ? 'cancel' : 'approve';
    return { tenant: `soak-${this.started + 1}`, workflow, word };
  }

  /** Decides whatever waits for a person, until told that everything is over. */
  async decideAll(over: AbortSignal): Promise<void> {
    while (!over.aborted) {
      const asked = (await this.#decideOnce()) + (await this.#judgeOnce());
      await sleep(asked === 0 ? PAUSE_MS : 0);
    }
  }

  async #decideOnce(): Promise<number> {
    const rows = await this.#rows<{ tenant: string; id: string; runId: string }>(PENDING);
    await Promise.all(
      rows.map(({ tenant, id, runId }) => {
        const word = this.wishes.get(tenant)?.word ?? 'approve';
        return word === 'cancel'
          ? this.#ask('cancel', { tenant, runId })
          : this.#ask('decide', { tenant, approvalId: id, verdict: word });
      }),
    );
    return rows.length;
  }

  async #judgeOnce(): Promise<number> {
    const rows = await this.#rows<{ tenant: string; id: string; attempt: number }>(UNKNOWN);
    for (const { tenant, id, attempt } of rows) {
      const { effects } = await this.#lane.provider.client.find('manual', id);
      this.judged.add(id);
      await this.#ask('resolve', {
        tenant,
        actionId: id,
        attempt,
        verdict: effects.length > 0 ? 'succeeded' : 'not_executed',
      });
    }
    return rows.length;
  }

  /** A drop of connections hits us as well; the next look will do. */
  async #rows<Row>(sql: string): Promise<Row[]> {
    return this.#lane.admin.pool.query(sql).then(
      ({ rows }) => rows as Row[],
      () => [],
    );
  }

  async #untilAnswered(method: string, parameters: unknown): Promise<void> {
    while (!(await this.#ask(method, parameters))) {
      await sleep(PAUSE_MS);
    }
  }

  async #ask(method: string, parameters: unknown): Promise<boolean> {
    const api = this.#lane.fleet.all('api').at(-1);
    const answer = api?.call(method, parameters).then(
      () => true,
      () => false,
    );
    return answer ?? false;
  }
}
