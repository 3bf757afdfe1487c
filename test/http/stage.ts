/** The api before a small fleet, with callers of two tenants. The provider is a counter in this process. */
import { createHash, randomBytes } from 'node:crypto';
import { Agent } from '@openai/agents';
import { z } from 'zod';
import type { ApiToken } from '../../src/config.ts';
import type { Role } from '../../src/fleet-file.ts';
import { type Api, action, manual, runApi, workflow } from '../../src/index.ts';
import { createLog, type Log } from '../../src/log.ts';
import { KeyRing } from '../../src/seal/index.ts';
import { scriptedModel, scriptedProvider } from '../fixtures/scripted.ts';
import { createFleet, type Fleet } from '../support/fleet.ts';

export type Answer = { status: number; body: Record<string, unknown>; headers: Headers };

export type Stage = {
  fleet: Fleet;
  api: Api;
  /** What was paid, in order. */
  paid: unknown[];
  /** Tokens by `tenant/subject`. */
  tokens: Record<Who, string>;
  ask(who: Who | null, method: string, path: string, body?: unknown): Promise<Answer>;
  /** As bytes, with headers of one's own. */
  send(method: string, path: string, init: RequestInit): Promise<Answer>;
  /** Starts a run of tenant acme and waits for its approval's id. */
  pausedRun(workflow?: string): Promise<{ runId: string; approvalId: string; fingerprint: string }>;
  close(): Promise<void>;
};

const CALLERS = {
  'acme/paula': ['producer'],
  'acme/rita': ['reviewer'],
  'acme/rolf': ['reviewer'],
  'acme/olga': ['operator'],
  'umbrella/boss': ['producer', 'reviewer', 'operator'],
  'fleet/prometheus': ['metrics'],
} as const satisfies Record<string, readonly Role[]>;

export type Who = keyof typeof CALLERS;

export async function createStage(name: string, options: { log?: Log } = {}): Promise<Stage> {
  const paid: unknown[] = [];
  const fleet = await createFleet([payWorkflow('pay', '1h', paid), payWorkflow('pay-soon', '400ms', paid)], {
    name,
    backend: 'embedded',
  });
  const entries = Object.entries(CALLERS).map(([who, roles]) => {
    const [tenant = '', subject = ''] = who.split('/');
    const token = randomBytes(16).toString('base64url');
    const sha256 = createHash('sha256').update(token).digest('hex');
    return { who, token, entry: { sha256, tenant, subject, roles } satisfies ApiToken };
  });
  const api = await runApi({
    databaseUrl: fleet.url,
    keys: KeyRing.parse({ review: fleet.keySpec.review }),
    tokens: entries.map(({ entry }) => entry),
    log: options.log ?? createLog(name, 'silent'),
  });
  await fleet.relay();
  await fleet.worker();
  const tokens = Object.fromEntries(entries.map(({ who, token }) => [who, token])) as Record<Who, string>;

  const send = async (method: string, path: string, init: RequestInit): Promise<Answer> => {
    const response = await fetch(`${api.url}${path}`, { ...init, method });
    const text = await response.text();
    return { status: response.status, body: JSON.parse(text), headers: response.headers };
  };
  const ask = (who: Who | null, method: string, path: string, body?: unknown) =>
    send(method, path, {
      headers: {
        ...(who === null ? {} : { authorization: `Bearer ${tokens[who]}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  return {
    fleet,
    api,
    paid,
    tokens,
    ask,
    send,
    async pausedRun(workflowName = 'pay') {
      const started = await ask('acme/paula', 'POST', '/v1/runs', { workflow: workflowName, input: 'pay' });
      const runId = String(started.body.runId);
      await fleet.until(runId, 'awaiting_approval');
      const [row] = await fleet.rows<{ id: string; fingerprint: string }>(
        'select id, fingerprint from countersign.approvals where run_id = $1',
        [runId],
      );
      return { runId, approvalId: row?.id ?? '', fingerprint: row?.fingerprint ?? '' };
    },
    async close() {
      await api.stop();
      await fleet.close();
    },
  };
}

function payWorkflow(name: string, expiresIn: '1h' | '400ms', paid: unknown[]) {
  const pay = action({
    name: 'pay',
    description: 'Pay somebody',
    parameters: z.object({ to: z.string(), amount: z.number() }),
    execute: (args) => {
      paid.push(args);
      return `paid ${args.to}`;
    },
    recovery: manual(),
    review: ({ to, amount }) => ({ summary: `Pay ${amount} to ${to}` }),
    approval: { policy: 'payments', expiresIn },
  });
  const model = scriptedModel((turn) =>
    turn === 0 ? [{ name: 'pay', arguments: { to: 'acme', amount: 10 } }] : 'done',
  );
  return workflow({
    name,
    version: '1',
    context: z.strictObject({ order: z.string().optional() }),
    agent: () => new Agent({ name: 'Payer', tools: [pay] }),
    modelProvider: scriptedProvider(model),
  });
}
