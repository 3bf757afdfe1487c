/**
 * The worker a user would write: one SELECT, `RunState.fromString`, `run`, one UPDATE with `state.toString()`. A job
 * that comes twice acts twice; an effect whose UPDATE is lost happens again.
 */
import { Runner, RunState } from '@openai/agents';
import { answerCalls } from '../lab/answer.ts';
import { type Database, openDatabase } from '../src/index.ts';
import { provider, unsafeAgent } from './agent.ts';
import { takeEffects } from './effects.ts';
import { profiling } from './profiling.ts';
import { tellProgress } from './progress.ts';
import { type Address, openUnsafeWorker } from './unsafe-queue.ts';

export type UnsafeWorkerOptions = Address & { concurrency: number };

/** parameter: id. */
const LOAD = 'select prompt, state from unsafe_runs where id = $1';
/** parameters: id, state, status. */
const SAVE = 'update unsafe_runs set state = $2, status = $3 where id = $1';

const counts = { paused: 0, completed: 0 };
const runner = new Runner({ modelProvider: provider, tracingDisabled: true });
const agent = unsafeAgent();

async function carry(db: Database, id: string): Promise<void> {
  const { rows } = await db.pool.query<{ prompt: string; state: string | null }>({
    name: 'load',
    text: LOAD,
    values: [id],
  });
  const row = rows[0];
  if (row === undefined) {
    throw new Error(`no run ${id}`);
  }
  const result = await runner.run(agent, row.state === null ? row.prompt : await approved(row.state));
  const paused = result.interruptions.length > 0;
  await db.pool.query({
    name: 'save',
    text: SAVE,
    values: [id, result.state.toString(), paused ? 'paused' : 'completed'],
  });
  counts[paused ? 'paused' : 'completed'] += 1;
}

async function approved(stateText: string) {
  const state = await RunState.fromString(agent, stateText);
  for (const item of state.getInterruptions()) {
    state.approve(item);
  }
  return state;
}

let stop = async (): Promise<void> => undefined;

answerCalls(
  {
    start({ concurrency, ...address }: UnsafeWorkerOptions): void {
      // The pool that Countersign's worker has.
      const db = openDatabase({ url: address.databaseUrl, role: null, max: Math.min(concurrency + 2, 20) });
      const worker = openUnsafeWorker(address, concurrency, (id) => carry(db, id));
      stop = async () => {
        await worker.close();
        await db.close();
      };
      tellProgress(() => counts);
    },
    takeEffects,
    ...profiling,
  },
  () => stop(),
);
