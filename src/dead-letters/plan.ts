import { type Database, readAsTenant } from '../postgres/index.ts';
import type { DeadLetter } from './list.ts';

/** What the ledger would do with one action if its run went on now, and why. */
export type PlannedAction = {
  actionId: string;
  tool: string;
  plan: 'reuse_receipt' | 'reconcile' | 'dispatch' | 'wait_for_decision' | 'wait_for_person' | 'refuse';
  why: string;
};

type Row = {
  id: string;
  tool: string;
  state: string;
  reason: string | null;
  recovery: string;
  gated: boolean;
  approval: string | null;
  in_time: boolean | null;
};

/** parameter: run id. The actions a claim would load: those of the current checkpoint and after. */
const ACTIONS = `
  select a.id, a.tool, a.state, a.reason, a.recovery, a.gated, p.state as approval, clock_timestamp() < p.execute_before as in_time
  from countersign.actions a join countersign.runs r on r.tenant = a.tenant and r.id = a.run_id
  left join lateral (select q.state, q.execute_before from countersign.approvals q
    where q.tenant = a.tenant and q.action_id = a.id order by q.created_at desc limit 1) p on true
  where a.run_id = $1 and a.segment >= r.segment - 1 order by a.created_at, a.id`;

/** A dry run: reads, decides nothing, changes nothing. */
export async function planReplay(db: Database, tenant: string, letter: DeadLetter): Promise<PlannedAction[]> {
  const rows = await readAsTenant(
    db,
    tenant,
    async (tx) => (await tx.query(ACTIONS, [letter.runId])).rows as Row[],
  );
  return rows.map((row) => ({ actionId: row.id, tool: row.tool, ...planFor(row) }));
}

function planFor(row: Row): Pick<PlannedAction, 'plan' | 'why'> {
  switch (row.state) {
    case 'succeeded':
    case 'failed':
    case 'abandoned':
      return {
        plan: 'reuse_receipt',
        why: `it is settled (${row.state}); the stored answer is given again, nothing is sent`,
      };
    case 'not_executed':
      return { plan: 'refuse', why: `it was not executed (${row.reason}) and stays so` };
    case 'dispatched':
    case 'outcome_unknown':
      return row.recovery === 'manual'
        ? { plan: 'wait_for_person', why: 'its outcome is unknown and only a person can say' }
        : {
            plan: 'reconcile',
            why:
              row.recovery === 'idempotent'
                ? 'its outcome is unknown; the same key is sent again while the provider remembers it'
                : 'its outcome is unknown; the provider is asked first',
          };
    default:
      return planForPrepared(row);
  }
}

function planForPrepared(row: Row): Pick<PlannedAction, 'plan' | 'why'> {
  if (!row.gated) {
    return { plan: 'dispatch', why: 'it needs no decision and was never sent' };
  }
  if (row.approval === 'pending' || row.approval === null) {
    return { plan: 'wait_for_decision', why: 'a person has not decided yet' };
  }
  return row.approval === 'approved' && row.in_time === true
    ? { plan: 'dispatch', why: 'it is approved and inside its execution window' }
    : {
        plan: 'refuse',
        why: `its approval is ${row.approval === 'approved' ? 'past its execution window' : row.approval}`,
      };
}
