/**
 * Somebody holds the database, not the keys (S27): ciphertext in another place, or damaged, is quarantined before a byte
 * of it is read, and told apart from what is whole but not for this worker.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { KeyRing } from '../../src/seal/index.ts';
import {
  actionOf,
  approve,
  approvedRun,
  argumentsOf,
  checkpointAt,
  expectQuarantined,
  fleet,
  pausedAt,
  put,
  type Run,
  resume,
  sealedAt,
  twoRuns,
  useSealedStage,
} from '../support/sealed-stage.ts';

useSealedStage();

describe('S27: ciphertext in another place, or damaged', () => {
  type Blob = (mine: Run, others: Run) => Promise<Buffer>;
  const damages: [string, string, Blob][] = [
    ['of another tenant’s run', 'globex', async (_mine, others) => sealedAt(checkpointAt(others, 1))],
    ['of another run', 'acme', async (_mine, others) => sealedAt(checkpointAt(others, 1))],
    ['of another pause of the same run', 'acme', async (mine) => sealedAt(checkpointAt(mine, 0))],
    [
      'of another column',
      'acme',
      async (mine) => sealedAt(argumentsOf('acme', (await actionOf(mine.runId)).id)),
    ],
    ['with one bit flipped', 'acme', async (mine) => flipped(await sealedAt(checkpointAt(mine, 1)), -20)],
    [
      'with one bit of its header flipped',
      'acme',
      async (mine) => flipped(await sealedAt(checkpointAt(mine, 1)), 8),
    ],
    ['cut short', 'acme', async (mine) => (await sealedAt(checkpointAt(mine, 1))).subarray(0, -1)],
    ['empty', 'acme', async () => Buffer.alloc(0)],
  ];

  it.each(damages)('a checkpoint %s: quarantined before a byte is read', async (_what, tenant, blob) => {
    const [run, others] = await twoRuns(['acme', tenant]);
    await put(checkpointAt(run, 1), await blob(run, others));
    await resume(run.runId, ['quarantined']);
    await expectQuarantined(run.runId, 'SEAL_BROKEN');
  });

  it('the arguments of two actions, swapped: quarantined, nothing runs', async () => {
    const [one, two] = await twoRuns();
    const places = [
      argumentsOf('acme', (await actionOf(one.runId)).id),
      argumentsOf('acme', (await actionOf(two.runId)).id),
    ] as const;
    const sealed = [await sealedAt(places[0]), await sealedAt(places[1])] as const;
    await put(places[0], sealed[1]);
    await put(places[1], sealed[0]);
    await resume(one.runId, ['quarantined']);
    await expectQuarantined(one.runId, 'SEAL_BROKEN');
    await resume(two.runId, ['quarantined']);
    await expectQuarantined(two.runId, 'SEAL_BROKEN');
  });

  it('a receipt in another action’s place answers for nobody', async () => {
    const [one, two] = await twoRuns(['acme', 'acme'], 2);
    await fleet.rows(
      `update countersign.actions a set sealed_result = b.sealed_result from countersign.actions b
       where a.id = $1 and b.id = $2`,
      [(await actionOf(one.runId)).id, (await actionOf(two.runId)).id],
    );
    // Force the replay of the first segment, which asks the ledger for its first action again.
    await fleet.rows('update countersign.runs set segment = 1 where id = $1', [one.runId]);
    await resume(one.runId, ['quarantined', 'completed', 'awaiting_approval']);
    const [run] = await fleet.rows('select status, reason from countersign.runs where id = $1', [one.runId]);
    expect(run).toEqual({ status: 'quarantined', reason: 'SEAL_BROKEN' });
  });
});

describe('intact, but not for this worker', () => {
  it('a seal of a newer version is parked, not quarantined, and nothing runs', async () => {
    const run = await approvedRun();
    const place = checkpointAt(run, 1);
    const whole = await sealedAt(place);
    const newer = Buffer.from(whole);
    newer[4] = 9;
    const end = 7 + (newer[6] ?? 0);
    newer.writeUInt32BE(crc32(newer.subarray(0, end)), end);
    await put(place, newer);
    await resumeUntilReason(run.runId, 'SEAL_VERSION_UNSUPPORTED', fleet.keys);
    await expectParkedThenCompleted(run.runId, 'SEAL_VERSION_UNSUPPORTED', () => put(place, whole));
  });

  it.each([
    ['state', { state: true, review: false }],
    ['review', { state: false, review: true }],
  ] as const)(
    'without the %s key the run is parked with no attempt spent, and goes on when the key is back',
    async (_which, lost) => {
      const run = await approvedRun();
      const other = KeyRing.generate();
      const keys = KeyRing.parse({
        state: lost.state ? other.state : fleet.keySpec.state,
        review: lost.review ? other.review : fleet.keySpec.review,
      });
      await resumeUntilReason(run.runId, 'KEY_MISSING', keys);
      await expectParkedThenCompleted(run.runId, 'KEY_MISSING', async () => []);
    },
  );

  async function resumeUntilReason(runId: string, reason: string, keys: KeyRing): Promise<void> {
    const worker = await fleet.worker({ keys });
    try {
      for (const end = Date.now() + 20_000; Date.now() < end; await sleep(20)) {
        const [run] = await fleet.rows<{ reason: string }>(
          'select reason from countersign.runs where id = $1',
          [runId],
        );
        if (run?.reason === reason) return;
      }
      throw new Error(`the run was not parked for ${reason}`);
    } finally {
      await worker.stop();
    }
  }

  async function expectParkedThenCompleted(
    runId: string,
    reason: string,
    mend: () => Promise<unknown>,
  ): Promise<void> {
    const kinds = await fleet.rows<{ kind: string; data: { reason?: string } }>(
      "select kind, data from countersign.events where run_id = $1 and kind in ('run_parked', 'security_alert')",
      [runId],
    );
    expect(kinds).toContainEqual({ kind: 'run_parked', data: { reason } });
    expect(kinds.map(({ kind }) => kind)).not.toContain('security_alert');
    expect(await actionOf(runId)).toMatchObject({ state: 'prepared', attempt: 0 });
    const [run] = await fleet.rows('select attempts_in_round from countersign.runs where id = $1', [runId]);
    expect(run).toEqual({ attempts_in_round: 0 });
    await mend();
    const worker = await fleet.worker();
    await pausedAt(runId, 2);
    await approve(runId);
    await fleet.until(runId, 'completed', 20_000);
    expect(await actionOf(runId)).toMatchObject({ state: 'succeeded', attempt: 1 });
    await worker.stop();
  }
});

function flipped(sealed: Buffer, at: number): Buffer {
  const copy = Buffer.from(sealed);
  const index = at < 0 ? copy.length + at : at;
  copy[index] = (copy[index] ?? 0) ^ 1;
  return copy;
}
