/** A person with the reviewer's rights: reads cards, decides on what they show. */
import { type ApprovalCard, decide, listApprovals, showApproval } from '../../src/approvals/index.ts';
import type { Fleet } from './fleet.ts';

const TENANT = 'acme';

/** The pending cards of a run, oldest first. */
export async function cardsOf(fleet: Fleet, runId: string): Promise<ApprovalCard[]> {
  const pending = await listApprovals(fleet.api, { tenant: TENANT, limit: 500 });
  return Promise.all(
    pending
      .filter((approval) => approval.runId === runId)
      .map(({ id }) => showApproval(fleet.api, fleet.keys, { tenant: TENANT, approvalId: id })),
  );
}

export type Word = { verdict: 'approve' | 'reject'; words?: string | undefined; subject?: string };

export function decideCard(fleet: Fleet, card: ApprovalCard, { verdict, words, subject = 'alice' }: Word) {
  return decide(fleet.api, fleet.keys, {
    tenant: TENANT,
    approvalId: card.id,
    verdict,
    subject,
    fingerprint: card.fingerprint,
    words,
  });
}

/** What a card's arguments say, for picking one among several. */
export function argumentsOf(card: ApprovalCard): Record<string, unknown> {
  return card.review.arguments as Record<string, unknown>;
}

/** The one pending card whose arguments have `to`. */
export function cardFor(cards: readonly ApprovalCard[], to: string): ApprovalCard {
  const found = cards.filter((card) => argumentsOf(card).to === to);
  if (found.length !== 1 || found[0] === undefined) {
    throw new Error(`${found.length} pending cards pay ${to}, wanted 1`);
  }
  return found[0];
}
