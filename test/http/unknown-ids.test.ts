/** S24: who reaches for what is not theirs leaves a trace, and the trace tells nothing of whose it is. */
import { randomUUID } from 'node:crypto';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createStage, type Stage } from './stage.ts';

type Line = Record<string, unknown>;
const lines: Line[] = [];
let stage: Stage;
beforeAll(async () => {
  const log = pino(
    { level: 'warn' },
    new Writable({
      write(chunk, _encoding, done) {
        lines.push(JSON.parse(String(chunk)) as Line);
        done();
      },
    }),
  );
  stage = await createStage('unknown ids', { log });
});
afterAll(() => stage?.close());

it('every verb on an id that the caller’s tenant does not have is logged with who, what and which id, alike for a foreign and a made-up one', async () => {
  const { runId, approvalId, fingerprint } = await stage.pausedRun();
  const events = () => stage.fleet.rows('select n, kind from countersign.events where run_id = $1', [runId]);
  const before = await events();
  const verbs = (run: string, approval: string): [method: string, path: string, body?: unknown][] => [
    ['GET', `/v1/runs/${run}`],
    ['GET', `/v1/runs/${run}/explanation`],
    ['POST', `/v1/runs/${run}/cancel`],
    ['GET', `/v1/approvals/${approval}`],
    ['POST', `/v1/approvals/${approval}/decisions`, { verdict: 'approve', fingerprint }],
    ['POST', `/v1/approvals/${approval}/revocation`],
  ];
  const trace = async (run: string, approval: string): Promise<Line[]> => {
    lines.length = 0;
    for (const [method, path, body] of verbs(run, approval)) {
      expect((await stage.ask('umbrella/boss', method, path, body)).status).toBe(404);
    }
    return lines.map(({ time: _time, pid: _pid, hostname: _hostname, request: _request, ...line }) => line);
  };
  const foreign = await trace(runId, approvalId);
  const nowhere = [randomUUID(), randomUUID()] as const;
  const madeUp = await trace(...nowhere);
  expect(foreign).toHaveLength(6);
  expect(foreign[0]).toEqual({
    level: 40,
    method: 'GET',
    route: '/v1/runs/:id',
    code: 'RUN_NOT_FOUND',
    id: runId,
    tenant: 'umbrella',
    subject: 'boss',
    msg: expect.any(String),
  });
  const masked = (found: Line[], ids: readonly string[]) =>
    ids.reduce((text, id) => text.replaceAll(id, '<id>'), JSON.stringify(found));
  expect(masked(foreign, [runId, approvalId])).toBe(masked(madeUp, nowhere));
  expect(JSON.stringify(foreign)).not.toContain('acme');
  expect(await events()).toEqual(before);
});

it('an id that is no id of ours is not repeated in the log', async () => {
  lines.length = 0;
  await stage.ask('umbrella/boss', 'GET', '/v1/runs/some%20text%20of%20the%20caller');
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatchObject({ code: 'RUN_NOT_FOUND', id: null, subject: 'boss' });
});
