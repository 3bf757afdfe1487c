import type { ApprovalCard } from '../approvals/index.ts';
import { visibleJson, visibleText } from '../visible-text.ts';
import { facts, fromNow, Lines, moment } from './output.ts';

/** The characters on a card that a reader would not see, or would see elsewhere, as `U+202E`. */
export function hiddenOn(card: ApprovalCard): string[] {
  const { target, review } = card.review;
  const texts = [target, ...Object.values(review).map((value) => (typeof value === 'string' ? value : ''))];
  const hidden = [
    ...texts.flatMap((text) => visibleText(text).hidden),
    ...visibleJson(card.review.arguments).hidden,
  ];
  return [...new Set(hidden)];
}

/** What a reviewer reads before the decision, with every hidden character written out. */
export function cardText(card: ApprovalCard): string {
  const { review } = card;
  const { summary, undo, ...more } = review.review;
  const hidden = hiddenOn(card);
  const warning =
    hidden.length === 0
      ? []
      : [
          `  WARNING: this card holds characters that do not show or that reorder text: ${hidden.join(', ')}.`,
        ];
  const { identical } = card;
  const before =
    identical === null
      ? []
      : [
          `  CAREFUL: the same operation ${identical.state === 'succeeded' ? 'has been done' : 'may have been done'} already, as action ${identical.actionId} of run ${identical.runId} (${moment(new Date(identical.sentAt))}).`,
        ];
  const votes = card.quorum === 1 ? '' : `, ${card.votes} of ${card.quorum} votes`;
  const by = card.decidedBy === null ? '' : ` by ${card.decidedBy}`;
  return [
    `Approval ${card.id} (${visibleText(`${card.state}${by}`).text})`,
    facts([
      ['summary', summary],
      ['undo', undo],
      ...Object.entries(more).map(
        ([name, value]) => [name, new Lines(visibleJson(value).text)] as [string, Lines],
      ),
      ['tool', `${review.tool}, version ${review.toolVersion}; if its outcome is lost: ${review.recovery}`],
      ['target', review.target],
      ['arguments', new Lines(visibleJson(review.arguments).text)],
      ['digest', card.digest],
      ['policy', `${card.policy}${votes}`],
      ['decide before', `${moment(card.decideBefore)} (${fromNow(card.decideBefore)})`],
      ['run', card.runId],
      ['fingerprint', card.fingerprint],
    ]),
    ...warning,
    ...before,
  ].join('\n');
}
