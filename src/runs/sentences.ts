export type EventRow = { n: number; kind: string; data: Record<string, unknown>; at: Date };

/** One event in plain words: `12  2026-11-29 18:22:15.123  …`. Data holds ids and codes only, so nothing is hidden. */
export function sentenceOf(event: EventRow): string {
  const at = event.at.toISOString().replace('T', ' ').replace('Z', '');
  return `${String(event.n).padStart(3)}  ${at}  ${wordsFor(event.kind, event.data)}`;
}

function wordsFor(kind: string, data: Record<string, unknown>): string {
  const text = (key: string): string =>
    data[key] === undefined || data[key] === null ? '' : String(data[key]);
  const because = data.reason === undefined ? '' : ` (${text('reason')})`;
  const sentences: Record<string, () => string> = {
    run_started: () => `${text('by')} started ${text('workflow')}@${text('version')}.`,
    run_ready: () => `The run became ready and was announced (from ${text('from')}${because}).`,
    run_reannounced: () =>
      `The sweep announced it again (wake ${text('wake')}, ${text('status')}): the announcement or its worker was lost.`,
    run_claimed: () =>
      `Worker ${text('worker')} claimed it as epoch ${text('epoch')}, attempt ${text('attempt')}, from checkpoint ${text('segment')}${data.taken_over === true ? ', taking over from one that went silent' : ''}.`,
    run_awaiting_approval: () => 'It waits for a decision.',
    run_awaiting_reconciliation: () => `It waits for proof of an outcome${because}.`,
    run_parked: () => `It was parked${because}: no attempt spent.`,
    run_completed: () => `It completed (epoch ${text('epoch')}).`,
    run_failed: () => `It failed for good${because}.`,
    run_cancel_requested: () => `${text('by')} asked to cancel it.`,
    run_cancelled: () => 'It was cancelled.',
    run_quarantined: () => `It was quarantined${because}.`,
    run_dead_lettered: () =>
      `Its work was given up: ${text('class')} (${text('code')}), round ${text('round')}.`,
    security_alert: () =>
      `SECURITY: ${text('code')}${data.action === undefined ? '' : ` at action ${text('action')}`}.`,
    action_prepared: () =>
      `The model asked for ${text('tool')}; its key is ${text('action')}${data.refused === null || data.refused === undefined ? (data.gated === true ? ', and a person must decide' : ', no decision needed') : `, refused (${text('refused')})`}.`,
    checkpoint_stored: () => `Checkpoint ${text('number')} was stored.`,
    approval_requested: () =>
      `Approval ${text('approval')} was requested for action ${text('action')} under policy ${text('policy')}.`,
    approval_expired: () => `Approval ${text('approval')} expired.`,
    decision_approved: () => `${text('by')} approved action ${text('action')}.`,
    decision_rejected: () => `${text('by')} rejected action ${text('action')}.`,
    decision_vote_recorded: () => `${text('by')} voted to ${text('verdict')}; the quorum is not reached yet.`,
    revoke_revoked: () => `${text('by')} withdrew the approval of action ${text('action')}.`,
    action_dispatched: () =>
      `Action ${text('action')} was sent, attempt ${text('attempt')} (epoch ${text('epoch')}).`,
    action_held: () =>
      `Action ${text('action')} waits for the identical action ${text('by')}, whose outcome is open.`,
    action_succeeded: () =>
      `Action ${text('action')}, attempt ${text('attempt')}: proven done by ${text('source')}.`,
    action_failed: () => `Action ${text('action')}, attempt ${text('attempt')}: the provider refused it.`,
    action_outcome_unknown: () => `Action ${text('action')}: the outcome is unknown${because}.`,
    action_proven_not_executed: () =>
      `Action ${text('action')}, attempt ${text('attempt')}: proven not executed by ${text('source')}${because}; the approval was handed back.`,
    action_not_executed: () => `Action ${text('action')} will not be executed${because}.`,
    action_abandoned: () => `Action ${text('action')} was closed by a person without proof.`,
    action_waits_for_person: () => `Action ${text('action')} ${whyAPerson(data)}: a named person must look.`,
    action_asked: () => `The provider was asked about action ${text('action')}: ${text('answer')}${because}.`,
    action_ask_requested: () =>
      `${text('by')} asked to have the provider asked again about action ${text('action')}${data.refused === undefined ? ', with a fresh budget' : `; nothing changed (${text('refused').replaceAll('_', ' ')})`}.`,
    run_superseded: () => 'It was superseded: another run took its place.',
    run_restarted: () =>
      `${text('by')} started it from checkpoint ${text('checkpoint')} of run ${text('from')}.`,
    journal_superseded: () =>
      `The replay asked its model something else; ${text('responses')} stored response(s) count no more, nothing had been sent.`,
    replay_replayed: () =>
      `${text('by')} replayed it: round ${text('round')} is closed, a fresh budget begins.`,
    outbox_replayed: () => `${text('by')} put its dead announcement back.`,
    quarantine_released: () => `${text('by')} released it from quarantine.`,
    action_judged: () =>
      `${text('by')} judged action ${text('action')}, attempt ${text('attempt')}: ${text('verdict')}${data.refused === undefined ? '' : `; nothing changed (${text('refused').replaceAll('_', ' ')})`}.`,
    action_sender_unsure: () =>
      `The sender of attempt ${text('attempt')} of action ${text('action')} came back late and cannot say whether its request left; attempt ${text('current_attempt')} was sent meanwhile. Compare with the provider.`,
    approval_superseded: () =>
      `The approval of action ${text('action')} was taken before an identical action succeeded: somebody must decide again.`,
    contradiction: () =>
      `CONTRADICTION at action ${text('action')}: ${text('source')} has proof for attempt ${text('attempt')}, the ledger said ${text('state')}.`,
  };
  const decision = /^(decision|revoke)_(.+)$/.exec(kind);
  return (
    sentences[kind]?.() ??
    (decision === null
      ? kind.replaceAll('_', ' ')
      : `${text('by')} tried to ${text('verdict') || 'revoke'}: ${decision[2]?.replaceAll('_', ' ')}; nothing changed.`)
  );
}

function whyAPerson(data: Record<string, unknown>): string {
  switch (data.reason) {
    case 'LOOKUPS_SPENT':
      return `was asked about ${String(data.lookups)} times without proof (last answer ${String(data.answer)}${data.why === undefined ? '' : `, ${String(data.why)}`})`;
    case 'NOBODY_TO_ASK':
      return 'is of a kind that no machine can ask about';
    default:
      return 'may not be sent again (key lifetime, execution window or attempts spent)';
  }
}
