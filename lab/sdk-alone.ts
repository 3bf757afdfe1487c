/** What the SDK does by itself, each step in an OS process of its own. */
import { type Child, startChild } from './child.ts';
import type { Cleanup } from './cleanup.ts';
import { countedKind, type Provider } from './provider-process.ts';
import type { Resumed } from './sdk-process.ts';

const MODULE = new URL('./sdk-process.js', import.meta.url);

/** "At the same time": two workers that got the same job from a queue are no further apart. */
const TOGETHER_MS = 10;
/** A busy machine may start one of the two late; then it is tried again with a new state. */
const TRIES = 10;

type Experiment = { world: { providerUrl: string; kind: string }; count: () => Promise<number> };

async function experiment(provider: Provider, kind: string): Promise<Experiment> {
  return { world: { providerUrl: provider.url, kind }, count: await countedKind(provider, kind) };
}

/** Every step of a run in a new process, which is gone before the next step begins. */
function inOwnProcess<T>(cleanup: Cleanup, work: (child: Child) => Promise<T>): Promise<T> {
  return cleanup.scope((inner) => work(startChild(inner, { module: MODULE })));
}

/** One process pauses, another decides, a third resumes. Returns the effects after the pause and after the end. */
export async function pauseDecideResume(
  cleanup: Cleanup,
  provider: Provider,
  kind: string,
  decision: { verdict: 'approve' } | { verdict: 'reject'; message: string },
): Promise<{ paused: number; ended: number }> {
  const { world, count } = await experiment(provider, kind);
  const stateText = await inOwnProcess(cleanup, (child) => child.call<string>('pause', world));
  const paused = await count();
  const decided = await inOwnProcess(cleanup, (child) =>
    child.call<string>('decide', { world, stateText, decision }),
  );
  await inOwnProcess(cleanup, async (child) => {
    await child.call('open', { world, stateText: decided });
    await child.call<Resumed>('resume');
  });
  return { paused, ended: await count() };
}

/** Two worker processes resume one approved state, started within 10 ms of each other. Returns the effects. */
export async function resumeTwice(cleanup: Cleanup, provider: Provider): Promise<number> {
  const workers = [startChild(cleanup, { module: MODULE }), startChild(cleanup, { module: MODULE })];
  for (let attempt = 1; attempt <= TRIES; attempt += 1) {
    const { world, count } = await experiment(provider, `sdk-alone-twice-${'x'.repeat(attempt)}`);
    const stateText = await inOwnProcess(cleanup, (child) => child.call<string>('pause', world));
    const decision = { verdict: 'approve' };
    const decided = await inOwnProcess(cleanup, (child) =>
      child.call<string>('decide', { world, stateText, decision }),
    );
    await Promise.all(workers.map((worker) => worker.call('open', { world, stateText: decided })));
    const resumed = await Promise.all(workers.map((worker) => worker.call<Resumed>('resume')));
    const [first = 0, second = 0] = resumed.map(({ startedAtMs }) => startedAtMs);
    if (Math.abs(first - second) <= TOGETHER_MS) {
      return count();
    }
  }
  throw new Error(`in ${TRIES} tries the two workers never started within ${TOGETHER_MS} ms of each other`);
}
