import pg from 'pg';
import { type EncodedCall, encodeCall, rowOf, type StepCall, type Steps, statementFor } from './steps.ts';

type Call = {
  encoded: EncodedCall;
  resolve: (row: unknown) => void;
  reject: (error: unknown) => void;
};
/**
 * The calls of one function: those that wait, whether their turn has been arranged, and how many statements have not let
 * the next one go yet.
 */
type Lane = { waiting: Call[]; arranged: boolean; underWay: number };

/** Calls in one statement. */
const MOST = 16;
/** How long one statement may keep the next of its lane waiting, and a batch may wait for a lock. */
const PATIENCE_MS = 100;

/**
 * Group commit for protocol steps: calls of one function that are made in the same turn of the event loop, or while
 * another is under way, travel as one statement, one transaction. A call that meets no other goes at once and alone.
 *
 * What each call means is unchanged: a batch does what its calls would have done one after the other, or nothing. When
 * the server refuses it (one of its calls fails, or waits for a lock longer than 100 ms), nothing has happened, and each
 * call is made alone, so that none suffers from another. When no answer comes, each call's outcome is unknown, as it
 * would be alone.
 */
export class Batches {
  readonly #lanes = new Map<string, Lane>();
  readonly #pool: pg.Pool;
  readonly #alone: (statement: pg.QueryConfig) => Promise<{ rows: unknown[] }>;

  /**
   * @param options.pool its connections have a lock_timeout, see `LOCK_TIMEOUT`. @param options.alone runs the statement
   * of one call, as long as it takes.
   */
  constructor(options: {
    pool: pg.Pool;
    alone: (statement: pg.QueryConfig) => Promise<{ rows: unknown[] }>;
  }) {
    this.#pool = options.pool;
    this.#alone = options.alone;
  }

  /** @returns the call's row. @throws what `pg` throws. */
  async call<Name extends keyof Steps>(name: Name, ask: StepCall<Name>): Promise<unknown> {
    const encoded = encodeCall(ask);
    const lane = this.#lanes.get(name) ?? { waiting: [], arranged: false, underWay: 0 };
    this.#lanes.set(name, lane);
    return new Promise((resolve, reject) => {
      lane.waiting.push({ encoded, resolve, reject });
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
    const calls = lane.waiting.splice(0, MOST);
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
        const { rows } = await this.#pool.query(
          statementFor(
            name,
            calls.map(({ encoded }) => encoded),
          ),
        );
        const answers = calls.map((_, n) => rowOf(rows, n));
        calls.forEach(({ resolve }, n) => {
          resolve(answers[n]);
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
      calls.map(({ encoded, resolve, reject }) =>
        this.#alone(statementFor(name, [encoded]))
          .then(({ rows }) => rowOf(rows, 0))
          .then(resolve, reject),
      ),
    );
  }
}

/** For the `options` of a batch pool's connections. */
export const LOCK_TIMEOUT = `-c lock_timeout=${PATIENCE_MS}`;

/**
 * Did the server itself say no to the statement? Then its transaction is rolled back. Codes that may come with the end
 * of a connection or of the server, or from a commit that failed half way, say nothing of the kind.
 */
function wasRolledBack(error: unknown): boolean {
  return error instanceof pg.DatabaseError && !/^(08|40003|53100|57P|58|XX)/.test(error.code ?? '08');
}
