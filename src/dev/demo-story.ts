import { setTimeout as sleep } from 'node:timers/promises';
import type { ReleaseClient } from '../../examples/release-service/index.ts';
import type { ApprovalCard } from '../approvals/index.ts';
import { CountersignError } from '../errors.ts';
import { publishDuplicates } from '../outbox/index.ts';
import type { Database } from '../postgres/index.ts';
import type { ResumeQueue } from '../queue/index.ts';
import { type Explanation, listClaims, type RunClaim } from '../runs/index.ts';
import { visibleJson, visibleLines, visibleText } from '../visible-text.ts';
import type { ApiClient } from './api-client.ts';

/** What the demo found, for a program. */
export type DemoReport = {
  runId: string;
  approvalId: string;
  /** SHA-256 of the arguments that were approved, and that ran. */
  digest: string;
  /** The key the provider was sent; the same in every attempt. */
  operationKey: string;
  /** What the provider committed under that key, and how often it was asked to. */
  effects: number;
  calls: number;
  /** Extra copies of the resume job that were delivered. */
  duplicates: number;
  killedPid: number;
  /** The process that carried the run to its end. */
  finishedBy: number;
  status: string;
  output: unknown;
  explanation: Explanation;
  tookMs: number;
};

export type DemoStage = {
  api: ApiClient;
  provider: ReleaseClient;
  db: Database;
  queue: ResumeQueue;
  tenant: string;
  /** Process ids of the fleet, by name. */
  pids: () => Record<string, number>;
  narrate: (line: string) => void;
  signal: AbortSignal;
};

const GATE = 'demo';
const INPUT = 'deploy v2.4.1 to production';
const POLL_MS = 100;

/** Plays the main job, telling what happens, and checks every claim it makes. @throws DEMO_FAILED */
export async function playDemo(stage: DemoStage): Promise<DemoReport> {
  const began = performance.now();
  const { api, provider, tenant, narrate, db, queue } = stage;
  const runId = await startRun(stage);
  const card = await approve(stage, runId);
  const key = card.actionId;
  await provider.waitFor('held', { kind: 'releases', timeoutMs: 30_000 });
  const held = await commitsOf(stage, key);
  check(held.commits === 1, `the provider had committed ${held.commits} times before the kill, not once`);
  narrate('4. The worker has called the provider. The provider has COMMITTED, and its answer is held back:');
  narrate('   the effect has happened, and nobody on our side knows.');

  await publishDuplicates(db, queue, { tenant, runId, copies: 1 });
  narrate('5. The same resume job is delivered a second time, on purpose.');
  const killedPid = await killHolder(stage, runId);
  await provider.openGate(GATE);

  const run = await until(stage, 'the run to complete', 60_000, async () => {
    const seen = await api.run(runId);
    return seen.status === 'completed' ? seen : null;
  });
  const claims = await listClaims(db, { tenant, runId });
  check(
    claims.some((claim) => claim.takenOver),
    'no worker took over from the killed one: the kill came too late to prove anything',
  );
  const finishedBy = pidOf(claims.at(-1));
  narrate(
    `7. The other worker (pid ${finishedBy}) took over, found the action "outcome unknown" and did not guess.`,
  );
  narrate('   The reconciler asked the provider by the same key, found the effect, and the run went on.');
  await publishDuplicates(db, queue, { tenant, runId, copies: 1 });
  narrate('8. And the job a third time, after the end.');
  // One job stays: the killed worker's, which the queue believes to be under way until its own lock runs out.
  await until(stage, 'the copies to be taken', 30_000, async () =>
    (await queue.depth()) <= 1 ? true : null,
  );

  const { calls, commits } = await commitsOf(stage, key);
  const explanation = await api.explanation(runId);
  narrate('');
  narrate(`The provider, for key ${key}: ${calls} call(s), ${commits} effect(s).`);
  narrate(`The run: ${visibleText(String(run.output)).text}`);
  narrate('');
  narrate(visibleLines(explanation.text));
  check(commits === 1, `there were ${commits} effects, not exactly one`);
  check(finishedBy !== killedPid, 'the killed worker finished the run');
  const tookMs = Math.round(performance.now() - began);
  narrate('');
  narrate(`Exactly one effect, ${(tookMs / 1_000).toFixed(1)} s after the start.`);
  return {
    runId,
    approvalId: card.id,
    digest: card.digest,
    operationKey: key,
    effects: commits,
    calls,
    duplicates: 2,
    killedPid,
    finishedBy,
    status: run.status,
    output: run.output,
    explanation,
    tookMs,
  };
}

async function startRun({ api, provider, narrate }: DemoStage): Promise<string> {
  await provider.holdGate(GATE);
  await provider.fault({
    kind: 'releases',
    fault: { type: 'wait_for_gate', gate: GATE, when: 'after_commit' },
  });
  const { runId } = await api.start({
    workflow: 'release',
    input: INPUT,
    key: `demo-${process.pid}-${Date.now()}`,
  });
  narrate(`1. Started run ${runId} of workflow release: "${INPUT}".`);
  return runId;
}

/** Waits for the pause, shows the card, and decides on exactly that card. */
async function approve(stage: DemoStage, runId: string): Promise<ApprovalCard> {
  const { api, provider, narrate } = stage;
  const pending = await until(stage, 'the run to pause', 30_000, async () =>
    (await api.approvals()).find((approval) => approval.runId === runId),
  );
  const card = await api.approval(pending.id);
  const { review } = card;
  check((await provider.counts()).calls === 0, 'the provider was called before anybody had decided');
  narrate(
    '2. The agent asked for deploy_release. The run is paused, nothing has been sent. The reviewer sees:',
  );
  narrate(`     ${visibleText(review.review.summary).text}`);
  narrate(`     ${visibleJson(review.arguments).text.replaceAll('\n', '\n     ')}`);
  narrate(`     digest ${card.digest}`);
  await api.decide(card.id, { verdict: 'approve', fingerprint: card.fingerprint });
  narrate(`3. Approved (${card.id}): these arguments, under this policy, and nothing else.`);
  return card;
}

/** Finds the process that holds the run, and takes it away. */
async function killHolder(stage: DemoStage, runId: string): Promise<number> {
  const claims = await listClaims(stage.db, { tenant: stage.tenant, runId });
  const pid = pidOf(claims.at(-1));
  const [name] = Object.entries(stage.pids()).find(([, known]) => known === pid) ?? [];
  check(name !== undefined, `the run is held by pid ${pid}, which is none of this demo's workers`);
  // The copy is on its way: let the other worker meet the live hold first.
  await sleep(300, undefined, { signal: stage.signal });
  process.kill(pid, 'SIGKILL');
  stage.narrate(
    `6. kill -9 ${pid} (${name}), the worker that was waiting for the answer. Now the answer is let go, to nobody.`,
  );
  return pid;
}

async function commitsOf({ provider }: DemoStage, key: string): Promise<{ calls: number; commits: number }> {
  return (await provider.counts()).byKey[key] ?? { calls: 0, commits: 0 };
}

/** A worker's name is `host/pid`. */
function pidOf(claim: RunClaim | undefined): number {
  const pid = Number(claim?.workerName?.split('/').at(-1));
  check(Number.isInteger(pid) && pid > 0, 'nobody knows which process carried the run');
  return pid;
}

async function until<T>(
  { signal }: DemoStage,
  what: string,
  timeoutMs: number,
  look: () => Promise<T | null | undefined>,
): Promise<T> {
  const end = performance.now() + timeoutMs;
  for (;;) {
    const seen = await look();
    if (seen !== null && seen !== undefined) {
      return seen;
    }
    check(performance.now() < end, `waited ${timeoutMs / 1_000} s for ${what}`);
    await sleep(POLL_MS, undefined, { signal });
  }
}

function check(holds: boolean, otherwise: string): asserts holds {
  if (!holds) {
    throw new CountersignError('DEMO_FAILED', `The demo failed: ${otherwise}.`);
  }
}
