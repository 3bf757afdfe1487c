/**
 * The protocol with one rule taken out, and which invariant of the checker must then complain.
 *
 * Two mutants of the review are not here. "Intend accepts a consumed approval" changes nothing: a prepared action never
 * has one, because the proof that hands the action back hands the decision back in the same statement; that statement
 * is mutated instead. "Unknown is settled and the run suspended in two steps" leaves, after a crash in between, a held
 * run that the sweep finds: slower, and not wrong.
 */
import type { ScheduleName } from './schedules.ts';
import type { Mutation } from './stage.ts';

export type Mutant = {
  name: string;
  mutations: readonly Mutation[];
  schedule: ScheduleName;
  /** How the complaint begins. */
  caught: string;
};

/** The fence as it stands in the functions of a run's owner. */
const FENCE = "if r.epoch is distinct from c.epoch or r.status <> 'running' then";
const NO_FENCE = "if r.status <> 'running' then";

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'intend compares no epoch',
    mutations: [{ inside: 'intend_actions', from: FENCE, to: NO_FENCE }],
    schedule: 'a stale worker sends',
    caught: 'I3',
  },
  {
    name: 'pause compares no epoch',
    mutations: [
      {
        inside: 'pause_run',
        from: "if r.epoch is distinct from p_epoch or r.status <> 'running' or",
        to: "if r.status <> 'running' or",
      },
    ],
    schedule: 'a stale worker pauses',
    caught: 'I3',
  },
  {
    name: 'finish compares no epoch',
    mutations: [{ inside: 'finish_runs', from: FENCE, to: NO_FENCE }],
    schedule: 'a stale worker finishes',
    caught: 'I3',
  },
  {
    name: 'the journal compares no epoch',
    mutations: [{ inside: 'journal_response', from: FENCE.replace('c.epoch', 'p_epoch'), to: NO_FENCE }],
    schedule: 'a stale worker stores a response',
    caught: 'I3',
  },
  {
    name: 'the claim looks at no hold',
    mutations: [
      {
        inside: 'claim_runs',
        from: "elsif r.status = 'running' and (not expired or not c.take_over) then",
        to: 'elsif false then',
      },
    ],
    schedule: 'two deliveries at once',
    caught: 'I3',
  },
  {
    name: 'intend asks for no decision',
    mutations: [
      {
        inside: 'intend_actions',
        from: 'elsif a.gated and (p.state',
        to: 'elsif false and (p.state',
      },
    ],
    schedule: 'a gated action is called before anybody was asked',
    caught: 'I1',
  },
  {
    name: 'intend knows no last moment',
    mutations: [{ inside: 'intend_actions', from: 'or at_time >= p.execute_before', to: '' }],
    schedule: 'an approval is used after its last moment',
    caught: 'I1',
  },
  {
    name: 'a decision has no deadline',
    mutations: [
      {
        inside: 'decide_approval',
        from: 'elsif at_time >= p.decide_before then',
        to: 'elsif false then',
      },
    ],
    schedule: 'a decision comes too late',
    caught: 'I1',
  },
  {
    name: 'a decision may be taken again',
    mutations: [
      { inside: 'decide_approval', from: "elsif p.state <> 'pending' then", to: 'elsif false then' },
    ],
    schedule: 'two people decide',
    caught: 'I5',
  },
  {
    name: 'one vote is a quorum',
    mutations: [{ inside: 'decide_approval', from: 'yes >= p.quorum', to: 'yes >= 1' }],
    schedule: 'one of two people approves',
    caught: 'I5',
  },
  {
    name: 'intend ignores a cancel',
    mutations: [
      {
        inside: 'intend_actions',
        from: 'elsif r.cancel_requested_at is not null then',
        to: 'elsif false then',
      },
    ],
    schedule: 'a run is asked to stop and its worker goes on',
    caught: 'I1',
  },
  {
    name: 'intend compares no digest',
    mutations: [
      {
        inside: 'intend_actions',
        from: 'a.effective_digest is not null and a.effective_digest is distinct from c.effective_digest',
        to: 'false',
      },
    ],
    schedule: 'the call is not the one that was reviewed',
    caught: 'I2',
  },
  {
    name: 'settling names no attempt',
    mutations: [
      { inside: 'settle_actions', from: 'a.attempt = k.attempt as current', to: 'true as current' },
    ],
    schedule: 'evidence about an earlier attempt comes late',
    caught: 'I4',
  },
  {
    name: 'an absence counts at any time',
    mutations: [{ inside: 'settle_actions', from: 'k.asked_at > a.absent_after', to: 'true' }],
    schedule: 'a look-up is answered while the request is under way',
    caught: 'I4',
  },
  {
    name: 'an absence does not hand the decision back',
    mutations: [
      {
        inside: 'follow_settlement',
        from: "update approvals t set state = 'approved' where",
        to: "update approvals t set state = 'approved' where false and",
      },
    ],
    schedule: 'an action is proven absent and sent again',
    caught: 'I4',
  },
  {
    name: 'settling is fenced by the epoch',
    mutations: [
      {
        inside: 'settle_actions',
        from: 'on a.tenant = p_tenant and a.id = k.action and a.run_id = k.run',
        to: 'on a.tenant = p_tenant and a.id = k.action and a.run_id = k.run and coalesce(k.epoch = t.epoch, true)',
      },
    ],
    schedule: 'a worker loses its hold during the call',
    caught: 'I6',
  },
  {
    name: 'identical operations may be in the open together',
    mutations: [
      { statement: 'drop index countersign."an operation is in the open once"' },
      { inside: 'intend_actions', from: 'perform pg_advisory_xact_lock(', to: 'perform abs(' },
    ],
    schedule: 'two runs ask for the same operation at once',
    caught: 'I4',
  },
  {
    name: 'the sweep looks at ready runs only',
    mutations: [
      {
        inside: 'sweep_run',
        from: "if after = 'ready' or (after = 'running' and r.held_until < clock_timestamp()) then",
        to: "if after = 'ready' then",
      },
    ],
    schedule: 'a worker dies and nobody says so',
    caught: 'I9',
  },
  {
    name: 'a ready run is not announced',
    mutations: [{ inside: 'settle_run_status', from: "if wanted = 'ready' then", to: 'if false then' }],
    schedule: 'a run becomes ready',
    caught: 'I9',
  },
  {
    name: 'the journal is not read',
    mutations: [
      { inside: 'load_segments', from: 'm.take = 0', to: 'false' },
      { inside: 'journal_response', from: 'm.take = 0', to: 'false' },
      { statement: 'alter table countersign.model_calls drop constraint model_calls_pkey' },
    ],
    schedule: 'a segment is carried twice',
    caught: 'I4',
  },
  {
    name: 'a journal with effects is given up',
    mutations: [{ inside: 'supersede_journal', from: 'a.attempt > 0', to: 'false' }],
    schedule: 'a replay asks something else after an effect',
    caught: 'I4',
  },
  {
    name: 'a run may end with an open outcome',
    mutations: [{ inside: 'finish_runs', from: 'if c.open then', to: 'if false then' }],
    schedule: 'a run ends with an outcome that nobody knows',
    caught: 'I6',
  },
  {
    name: 'a contradiction is silent',
    mutations: [
      {
        inside: 'keep_evidence',
        from: "c.outcome = 'succeeded' and (a.state in ('failed'",
        to: "false and (a.state in ('failed'",
      },
    ],
    schedule: 'a receipt comes for what was called absent',
    caught: 'I6',
  },
  {
    name: 'a key lives for ever',
    mutations: [{ inside: 'may_repeat', from: 'a.key_lifetime_ms is null', to: 'true' }],
    schedule: 'a provider forgets a key',
    caught: 'I4',
  },
  {
    name: 'a key’s last moment leaves out the send window',
    mutations: [
      { inside: 'may_repeat', from: '(a.send_within_ms + a.call_timeout_ms)', to: 'a.call_timeout_ms' },
    ],
    schedule: 'a provider forgets a key while the request waits to be sent',
    caught: 'I4',
  },
  {
    name: 'a person’s word is applied to any attempt',
    mutations: [
      { inside: 'resolve_action', from: 'a.attempt <> p_attempt', to: 'false' },
      {
        inside: 'resolve_action',
        from: "'attempt', p_attempt, 'outcome'",
        to: "'attempt', a.attempt, 'outcome'",
      },
    ],
    schedule: 'two people looked for the same attempt',
    caught: 'I4',
  },
  {
    name: 'a person’s “not executed” counts at any time',
    mutations: [
      { inside: 'resolve_action', from: 'clock_timestamp() <= a.absent_after', to: 'false' },
      { inside: 'settle_actions', from: 'clock_timestamp() > a.absent_after', to: 'true' },
    ],
    schedule: 'a person looks while the request is under way',
    caught: 'I4',
  },
  {
    name: 'a decision stands though an identical action has succeeded since',
    mutations: [{ inside: 'intend_actions', from: 'o.settled_at > (q.approval).decided_at', to: 'false' }],
    schedule: 'both of two identical actions are approved at once',
    caught: 'I4',
  },
  {
    name: 'a run that was asked to stop is given up',
    mutations: [
      { inside: 'dead_letter_run', from: 'if r.cancel_requested_at is not null then', to: 'if false then' },
    ],
    schedule: 'a run is asked to stop and its last worker dies',
    caught: 'I9',
  },
  {
    name: 'an event does not name the one before',
    mutations: [
      {
        inside: 'append_events',
        from: "e.data, at_time, coalesce(head.digest, '\\x'),",
        to: "e.data, at_time, '\\x',",
      },
    ],
    schedule: 'two deliveries at once',
    caught: 'I10',
  },
];
