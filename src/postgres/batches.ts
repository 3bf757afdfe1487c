import pg from 'pg';

type Values = readonly unknown[];
type Call = {
  values: Values;
  resolve: (rows: unknown[]) => void;
  reject: (error: unknown) => void;
};
/**
 * The calls of one function: those that wait, whether their turn has been arranged, and how many statements have not let
 * the next one go yet.
 */
type Lane = { waiting: Call[]; arranged: boolean; underWay: number };

/** Calls in one statement. A power of two, as every batch is, so that a connection prepares few statements. */
const MOST = 16;
/** How long one statement may keep the next of its lane waiting, and a batch may wait for a lock. */
const PATIENCE_MS = 100;

/** A statement that calls `name` several times, the rows of each call numbered. */
function textFor(name: string, arity: number, calls: number): string {
  const call = (n: number) => {
    const parameters = Array.from({ length: arity }, (_, i) => `$${n * arity + i + 1}`);
    return `select ${n} as call_number, ${name}.* from countersign.${name}(${parameters.join(', ')})`;
  };
  return Array.from({ length: calls }, (_, n) => call(n)).join(' union all ');
}

/**
 * Group commit for protocol steps: calls of one function that are made in the same turn of the event loop, or while
 * another is under way, travel as one statement, one transaction. A call that meets no other goes at once and alone.
 *
 * What each call means is unchanged: a batch does what its calls would have done one after the other, or nothing. When
 * the server refuses it (one of its calls fails, or waits for a lock longer than 100 ms), nothing has happened, and each
 * call is made alone, so that none suffers from another. When no answer comes, each call's outcome is unknown, as it
 * would be alone.
 *
 * The first two parameters must be the tenant and the run: calls are sorted by them, so that two batches that lock the
 * same runs do it in the same order.
 */
export class Batches {
  readonly #lanes = new Map<string, Lane>();
  readonly #texts = new Map<string, string>();
  readonly #pool: pg.Pool;
  readonly #alone: (name: string, values: Values) => Promise<unknown[]>;

  /**
   * @param options.pool its connections have a lock_timeout, see `LOCK_TIMEOUT`. @param options.alone one call, as long
   * as it takes.
   */
  constructor(options: { pool: pg.Pool; alone: (name: string, values: Values) => Promise<unknown[]> }) {
    this.#pool = options.pool;
    this.#alone = options.alone;
  }

  /** @throws what `pg` throws. */
  call(name: string, values: Values): Promise<unknown[]> {
    const lane = this.#lanes.get(name) ?? { waiting: [], arranged: false, underWay: 0 };
    this.#lanes.set(name, lane);
    return new Promise((resolve, reject) => {
      lane.waiting.push({ values, resolve, reject });
      if (!lane.arranged) {
        lane.arranged = true;
        setImmediate(() => {
          lane.arranged = false;
          this.#next(name, lane);
        });
      }
    });
  }

  #next(name: string, lane: Lane): void {
    if (lane.underWay > 0 || lane.waiting.length === 0) {
      return;
    }
    const count = Math.min(MOST, 2 ** Math.floor(Math.log2(lane.waiting.length)));
    const calls = lane.waiting.splice(0, count);
    lane.underWay += 1;
    let letGo = (): void => {
      letGo = () => undefined;
      clearTimeout(timer);
      lane.underWay -= 1;
      this.#next(name, lane);
    };
    const timer = setTimeout(() => letGo(), PATIENCE_MS);
    void this.#send(name, calls).finally(() => letGo());
  }

  async #send(name: string, calls: Call[]): Promise<void> {
    if (calls.length > 1) {
      try {
        const answers = await this.#together(name, calls);
        calls.forEach(({ resolve }, n) => {
          resolve(answers[n] ?? []);
        });
        return;
      } catch (error) {
        if (!wasRolledBack(error)) {
          for (const { reject } of calls) {
            reject(error);
          }
          return;
        }
      }
    }
    await Promise.all(
      calls.map(({ values, resolve, reject }) => this.#alone(name, values).then(resolve, reject)),
    );
  }

  /** @returns the rows of each call. */
  async #together(name: string, calls: Call[]): Promise<unknown[][]> {
    calls.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
    const arity = calls[0]?.values.length ?? 0;
    const statement = `cs_${name}_${calls.length}`;
    const text = this.#texts.get(statement) ?? textFor(name, arity, calls.length);
    this.#texts.set(statement, text);
    const result = await this.#pool.query<{ call_number: number }>({
      name: statement,
      text,
      values: calls.flatMap(({ values }) => values),
    });
    const answers: unknown[][] = calls.map(() => []);
    for (const { call_number: number, ...row } of result.rows) {
      answers[number]?.push(row);
    }
    return answers;
  }
}

/** For the `options` of a batch pool's connections. */
export const LOCK_TIMEOUT = `-c lock_timeout=${PATIENCE_MS}`;

function keyOf({ values: [tenant, run] }: Call): string {
  return `${tenant} ${run}`;
}

/**
 * Did the server itself say no to the statement? Then its transaction is rolled back. Codes that may come with the end
 * of a connection or of the server, or from a commit that failed half way, say nothing of the kind.
 */
function wasRolledBack(error: unknown): boolean {
  return error instanceof pg.DatabaseError && !/^(08|40003|53100|57P|58|XX)/.test(error.code ?? '08');
}
