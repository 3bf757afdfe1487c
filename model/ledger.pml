/*
 * The protocol as the SQL functions in migrations/ carry it: one run with one gated action, and everything that may
 * go wrong around it. Every `inline` is the SQL function of the same name (test/model/model.test.ts holds that), and
 * every `atomic` block is one committed transaction, or one step of the world. Between two blocks anything may happen:
 * a slow network, a frozen process, a stale worker that wakes up.
 *
 * Recovery kinds: lookup (default), -DBY_PERSON (lookup without settlesWithin), -DIDEMPOTENT, -DMANUAL, -DTRANSACTIONAL.
 * Faults come in budgets (-DCRASHES=1 …; none by default), at any moment and in any combination.
 * -DDROP_… is a dropped assumption, -DMUT_… a mutant: the code without one of its rules.
 * README.md says what is modelled, what is not, and which test guards each of them.
 */

#ifndef CRASHES
#define CRASHES 0          /* resume workers that die, at any step                                   */
#endif
#ifndef LOSSES
#define LOSSES 0           /* holds that run out under a live worker (frozen, cut off)                */
#endif
#ifndef DUPS
#define DUPS 0             /* jobs delivered twice                                                     */
#endif
#ifndef FLUSHES
#define FLUSHES 0          /* Redis emptied: jobs and lease                                            */
#endif
#ifndef DROPS
#define DROPS 0            /* requests that never reach the provider                                   */
#endif
#ifndef LOST_REPLIES
#define LOST_REPLIES 0     /* the provider commits, then the connection breaks                         */
#endif
#ifndef REFUSALS
#define REFUSALS 0         /* the provider refuses                                                     */
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0         /* the worker stops waiting; request and answer may still arrive            */
#endif
#ifndef PAUSES
#define PAUSES 0           /* the worker freezes between intend and send until its window has passed   */
#endif
#ifndef EARLY_ASKS
#define EARLY_ASKS 0       /* look-ups before an absence counts                                        */
#endif
#ifndef ERRORS
#define ERRORS 0           /* segments that end with a transient error                                 */
#endif
#ifndef CANCELS
#define CANCELS 0          /* somebody asks to cancel                                                  */
#endif
#ifndef IDENTICALS
#define IDENTICALS 0       /* an identical action of another run is in the open for a while            */
#endif
#ifndef REPLAYS
#define REPLAYS 0          /* dead letters that an operator puts back                                  */
#endif
#ifndef MAX_CLAIMS
#define MAX_CLAIMS 3       /* claims without progress before the run is given up                       */
#endif
#ifndef ATTEMPT_BUDGET
#define ATTEMPT_BUDGET 3   /* how often an idempotent key is sent by itself                            */
#endif
#ifndef RECONCILERS
#define RECONCILERS 1
#endif
#ifndef PERSONS
#define PERSONS 1          /* people who may say what became of an unknown action                      */
#endif

#define MAX_ATTEMPT 6
#define MAX_JOBS    2
#define NOBODY      0

mtype = { READY, RUNNING, AWAITING_APPROVAL, AWAITING_RECONCILIATION, PARKED, DEAD_LETTERED, COMPLETED, CANCELLED };
mtype = { NONE, PENDING, APPROVED, CONSUMED, REJECTED, REVOKED, EXPIRED, INVALIDATED };
mtype = { PREPARED, DISPATCHED, OUTCOME_UNKNOWN, SUCCEEDED, FAILED, NOT_EXECUTED, ABANDONED };
mtype = { succeeded, failed, never_sent, unknown, absent, abandoned };               /* what settle_actions is told */
mtype = { by_worker, by_lookup, by_person };
mtype = { claimed, stale, dispatched, receipt, refused, held, decide_again, fenced, settled, kept, contradiction, conflict, done };
mtype = { ON_WIRE, UNHEARD, RECEIPT, REFUSED, BROKEN, LATE_ON_WIRE, LATE_RECEIPT, LATE_REFUSED };  /* one provider call */

/* ---- Postgres ---- */
#ifdef FROM_START
mtype status   = READY;
mtype approval = NONE;
byte  wake     = 1;
bool  minted   = false;    /* the response that asks for the action is journaled                      */
#else
mtype status   = AWAITING_APPROVAL;
mtype approval = PENDING;
byte  wake     = 1;
bool  minted   = true;
#endif
mtype action   = PREPARED;
byte  epoch    = 0;        /* grows with each claim: the fence                                         */
bool  hold     = false;    /* held_until has not passed                                                */
byte  tries    = 0;        /* attempts_in_round                                                        */
bool  cancel_requested = false;
byte  attempt  = 0;        /* the action's latest dispatch                                             */
bool  waits_for_identical = false;                                        /* held_by                   */
bool  overtaken = false;   /* an identical action has succeeded since the decision                     */
byte  proven   = 0;        /* idempotent: how many attempts have a never_sent receipt                  */
bool  person_called = false;                                              /* reconcile_after is null   */

/* ---- the database clock ---- */
bool  due = false;         /* reconcile_after has passed                                               */
byte  past_deadline = 0;   /* deadline_at has passed for all attempts up to this one                   */
byte  past_grace = 0;      /* absent_after has passed for all attempts up to this one                  */
bool  undecided_too_long = false;                                         /* decide_before has passed  */
bool  late = false;        /* execute_before has passed                                                */

/* ---- Redis: may lose anything ---- */
chan  jobs = [MAX_JOBS] of { byte };                                      /* each names a wake         */
byte  lease = NOBODY;      /* advice                                                                   */

/* ---- what lives in a worker's memory ---- */
byte  working_on[3];       /* the epoch each worker believes to hold                                   */

/* ---- the outside world ---- */
mtype call[MAX_ATTEMPT];
byte  effects = 0;
bool  lagging = false;     /* committed, not yet visible to a look-up                                  */
bool  key_refused = false; /* the provider keeps a refusal under the key                               */
bool  forgotten = false;   /* the key's lifetime has passed                                            */
byte  identical = 0;       /* another run's identical action: 0 not yet, 1 in the open, 2 settled       */

/* ---- the properties: always 0, so that an assertion says whose it is; README.md says what each promises ---- */
#ifndef ONLY_COUNT
#define ONLY_COUNT 0       /* 1: look at the number of effects alone, not at what the ledger says of them */
#endif
hidden byte P1_one_effect = 0;
hidden byte P2_decided = 0;
hidden byte P3_one_owner = 0;
hidden byte P4_truth = ONLY_COUNT;
hidden byte P5_not_given_up = 0;
hidden byte P6_not_stranded = 0;
#define must(p, truth)  assert(p || (truth))

/* ---- ghosts: for the properties only ---- */
byte  doors = 0;           /* live workers between intend and send, inside their window                */

byte crashes = CRASHES, losses = LOSSES, dups = DUPS, flushes = FLUSHES, drops = DROPS, lost_replies = LOST_REPLIES;
byte refusals = REFUSALS, timeouts = TIMEOUTS, pauses = PAUSES, early_asks = EARLY_ASKS, errors = ERRORS;
byte cancels = CANCELS, replays = REPLAYS;

/* Scratch of one atomic block; never read in another. */
hidden mtype outcome;
hidden mtype next;
hidden mtype wanted;

#if defined(IDEMPOTENT)
#define is_idempotent   true
#else
#define is_idempotent   false
#endif
#if defined(IDEMPOTENT) || defined(MANUAL) || defined(BY_PERSON) || defined(TRANSACTIONAL)
#define reissue_automatic false
#else
#define reissue_automatic true
#endif
#if defined(IDEMPOTENT) || defined(MANUAL) || defined(TRANSACTIONAL)
#define has_lookup      false
#else
#define has_lookup      true
#endif

#define ended           (status == COMPLETED || status == CANCELLED)
#define in_the_open     (action == DISPATCHED || action == OUTCOME_UNKNOWN)
#define has_receipt     (action == SUCCEEDED || action == FAILED || action == ABANDONED)
#define withdrawn       (approval == REJECTED || approval == EXPIRED || approval == REVOKED || approval == INVALIDATED)
#define lease_busy      (lease != NOBODY && lease != me)
#define heard(a)        (call[a] == ON_WIRE || call[a] == LATE_ON_WIRE || call[a] == UNHEARD)
#define wire_is_empty   (!heard(1) && !heard(2) && !heard(3) && !heard(4) && !heard(5))
#define announce        if :: len(jobs) < MAX_JOBS -> jobs!!wake :: else fi
#define leave_door      if :: my_attempt > past_deadline -> doors-- :: else fi

#ifdef MUT_NO_EPOCH
#define is_fenced       (status != RUNNING && status != COMPLETED)
#else
#define is_fenced       (my_epoch != epoch || status != RUNNING)
#endif
#ifdef HARM_ONLY           /* do not look at epochs: wait for the damage that a stale writer does */
#define not_stale       must(P3_one_owner, status != COMPLETED && status != CANCELLED)
#else
#define not_stale       must(P3_one_owner, my_epoch == epoch && status == RUNNING)
#endif

/* May an attempt whose outcome is open be sent again under the same key? */
#ifdef MUT_REPEAT_AT_ONCE
#define is_due          true
#else
#define is_due          (due && !person_called)
#endif
#ifdef MUT_REPEAT_LATE
#define in_time         true
#else
#define in_time         (!late)
#endif
#define may_repeat      (is_idempotent && attempt < ATTEMPT_BUDGET && is_due && !forgotten && \
                         approval == CONSUMED && in_time)

#define computed_status ( (cancel_requested && !in_the_open) -> CANCELLED : \
                        ( (in_the_open && (cancel_requested || !may_repeat)) -> AWAITING_RECONCILIATION : \
                        ( (waits_for_identical && action == PREPARED && identical == 1) -> AWAITING_RECONCILIATION : \
                        ( (approval == PENDING) -> AWAITING_APPROVAL : READY ) ) ) )

/* ---------------------------------------------------------------- 0002_runs.sql */

inline close_run() {
    if :: approval == PENDING || approval == APPROVED -> approval = INVALIDATED :: else fi;
    if
    :: action == PREPARED ->
           must(P5_not_given_up, cancel_requested);
           must(P4_truth, effects == 0); action = NOT_EXECUTED
    :: else
    fi
}

/* THE computed status. release: the caller owned the running run and lets go. */
inline settle_run_status(release) {
    if
    :: ended || (status == DEAD_LETTERED && !cancel_requested) || (status == RUNNING && !(release)) -> skip
    :: else ->
           wanted = computed_status;
           if
           :: wanted == status || (status == DEAD_LETTERED && wanted != CANCELLED) -> skip
           :: else ->
                  if :: wanted == CANCELLED -> close_run() :: else fi;
                  status = wanted; hold = false;
                  if :: wanted == READY -> wake++; announce :: else fi
           fi;
           wanted = 0
    fi
}

inline dead_letter_run() {
    status = DEAD_LETTERED; hold = false;
#ifndef MUT_CANCELLED_IS_GIVEN_UP
    settle_run_status(false)                                   /* cancelled, if asked and nothing is in the open */
#endif
}

/* A delivery that would be answered "held" is not taken: its job is delayed. */
#ifdef MUT_HOLD_IGNORED
#define would_be_held   false
#else
#define would_be_held   (jobs?[eval(wake)] && status == RUNNING && (hold || lease_busy))
#endif

inline claim_runs() {
    if
    :: my_wake < wake || (status != READY && status != RUNNING) -> outcome = stale
    :: else ->
           if
           :: tries >= MAX_CLAIMS -> dead_letter_run(); outcome = stale
           :: else ->
                  must(P3_one_owner, status == READY || !hold);          /* nobody takes a run that is held */
                  status = RUNNING; epoch++; tries++; hold = true;
                  outcome = claimed
           fi
    fi
}

inline release_run(refund) {
    if
    :: is_fenced -> skip
    :: else ->
           not_stale;
           if
           :: refund && tries > 0 -> tries--
           :: else
           fi;
           if
           :: !(refund) && tries >= MAX_CLAIMS -> dead_letter_run()
           :: else -> settle_run_status(true)
           fi
    fi
}

inline finish_runs() {
    if
    :: is_fenced -> skip
    :: else ->
           not_stale;
           if
           :: in_the_open -> settle_run_status(true)
           :: else ->
                  close_run(); status = COMPLETED; hold = false; tries = 0;
                  must(P4_truth, action != SUCCEEDED || effects == 1);
                  must(P4_truth, action != NOT_EXECUTED || effects == 0)
           fi
    fi
}

inline cancel_run() {
    cancel_requested = true;
    settle_run_status(false)
}

/* One batched heartbeat of a worker: renews what is still its own, also when it has just run out. */
inline renew_holds(worker) { hold = true; lease = worker }

/* ---------------------------------------------------------------- 0003_actions.sql */

inline journal_response() {
    if
    :: is_fenced -> outcome = fenced
    :: else -> not_stale; minted = true; tries = (tries > 1 -> 0 : tries); outcome = done
    fi
}

inline close_action() {
    if
    :: action == PREPARED ->
           must(P5_not_given_up, withdrawn || cancel_requested);
           must(P4_truth, effects == 0); action = NOT_EXECUTED
    :: else
    fi
}

/*
 * Not a function of its own: the end of intend_actions. At this instant the decision stands, nobody has asked to stop,
 * no identical operation is in the open, and an attempt that is repeated is no longer its worker's own.
 */
#define dispatch_now \
    must(P2_decided, (approval == APPROVED || approval == CONSUMED) && !late); \
    must(P2_decided, !cancel_requested); \
    must(P2_decided, !overtaken); \
    must(P1_one_effect, identical != 1); \
    must(P4_truth, action == PREPARED || action == OUTCOME_UNKNOWN || past_deadline == attempt); \
    assert(attempt + 1 < MAX_ATTEMPT); \
    attempt++; my_attempt = attempt; approval = CONSUMED; action = DISPATCHED; \
    due = false; person_called = false; waits_for_identical = false; \
    outcome = dispatched

#if defined(MUT_NO_APPROVAL)
#define stands          true
#elif defined(MUT_CONSUMED_IS_ENOUGH)
#define stands          (approval == APPROVED || approval == CONSUMED)
#elif defined(MUT_APPROVAL_READ_BEFORE)
#define stands          saw_approval
#else
#define stands          (approval == APPROVED)
#endif
#ifdef MUT_CANCEL_NOT_OBEYED
#define stopped         false
#else
#define stopped         cancel_requested
#endif

#ifdef MUT_DECIDED_BEFORE_IS_ENOUGH
#define decided_again   true
#else
#define decided_again   (!overtaken)
#endif

inline refuse_undecided() {
    if :: attempt == 0 || withdrawn -> close_action() :: else fi;
    outcome = refused
}

inline intend_actions() {
    if
    :: is_fenced -> outcome = fenced
    :: else ->
           not_stale;
           if
           :: has_receipt -> outcome = receipt
           :: action == NOT_EXECUTED -> outcome = refused
           :: in_the_open ->
                  if
                  :: stopped || !may_repeat -> outcome = held
                  :: else -> dispatch_now
                  fi
           :: action == PREPARED && stopped -> close_action(); outcome = refused
           :: action == PREPARED && !stopped ->
#if !defined(MUT_CONSUMED_IS_ENOUGH) && !defined(MUT_APPROVAL_READ_BEFORE)
                  if :: approval == APPROVED && late -> approval = EXPIRED :: else fi;
#endif
                  if
                  :: !(stands) -> refuse_undecided()
                  :: else ->
                         if
                         :: identical == 1 -> waits_for_identical = true; outcome = held
                         :: identical != 1 && !(decided_again) -> outcome = decide_again
                         :: else -> outcome = dispatched; dispatch_now
                         fi
                  fi
           fi
    fi
}

/*
 * What is known about one attempt: compare-and-set on (attempt, open state), never fenced.
 * source: by_worker, by_lookup or by_person. own: the caller is a worker that names its epoch, and it is the current
 * one; it then lets go in this transaction. in_grace: the look-up began after absent_after.
 */
#if defined(MUT_NO_CAS)
#define current(a)      true
#define cas_open        true
#elif defined(MUT_CAS_ON_STATE_ONLY)
#define current(a)      true
#define cas_open        in_the_open
#else
#define current(a)      ((a) == attempt)
#define cas_open        in_the_open
#endif
#ifdef MUT_STALE_ANSWER
#define answers_now(a)  in_the_open
#else
#define answers_now(a)  (current(a) && action == OUTCOME_UNKNOWN)
#endif
#ifdef MUT_NEVER_SENT_CLOSES_ALL
#define all_never_sent  true
#else
#define all_never_sent  (!is_idempotent || attempt == proven)
#endif
#ifdef MUT_PERSON_IN_HASTE
#define person_may      true
#else
#define person_may      (past_grace == attempt)
#endif

#ifdef MUT_SUSPEND_IN_TWO_STEPS
#define lets_go         (next == PREPARED)
#else
#define lets_go         (next == OUTCOME_UNKNOWN || next == PREPARED)
#endif

inline keep_evidence(named, told, source) {
    outcome = kept;
    if
    :: told == succeeded && (action == FAILED || action == NOT_EXECUTED || action == ABANDONED ||
           (named != attempt && !is_idempotent)) ->
           outcome = contradiction;
           /* the only word that may turn out wrong; and a look-up that began before the newest attempt was sent
              cannot tell whose effect it found: it warns, without saying that there are two */
           must(P4_truth, action == ABANDONED || (source == by_lookup && named != attempt))
    :: told == absent && answers_now(named) ->                 /* an attempt is its worker's until its deadline */
           must(P4_truth, action == OUTCOME_UNKNOWN || past_deadline == attempt);
           action = OUTCOME_UNKNOWN                            /* and asked again later */
    :: else
    fi
}

inline follow_settlement() {
    if
#if !defined(MUT_NO_HAND_BACK) && !defined(MUT_CONSUMED_IS_ENOUGH)
    :: next == PREPARED && approval == CONSUMED -> approval = APPROVED
#endif
    :: next == SUCCEEDED && approval == APPROVED -> approval = CONSUMED
    :: else
    fi;
    if
    :: (next == SUCCEEDED || next == FAILED) && status == RUNNING && tries > 1 -> tries = 0
    :: else
    fi
}

inline settle_actions(named, told, source, own, in_grace) {
    if :: told == never_sent && is_idempotent -> proven++ :: else fi;
    if
    :: told == succeeded && (current(named) || is_idempotent) && (cas_open || action == PREPARED) -> next = SUCCEEDED
    :: told == failed && current(named) && cas_open -> next = FAILED
    :: told == abandoned && current(named) && action == OUTCOME_UNKNOWN -> next = ABANDONED
    :: told == never_sent && current(named) && cas_open -> next = (all_never_sent -> PREPARED : OUTCOME_UNKNOWN)
    :: told == absent && current(named) && source == by_person && action == OUTCOME_UNKNOWN && person_may ->
           next = PREPARED
    :: told == absent && current(named) && source == by_lookup && cas_open && in_grace && reissue_automatic ->
           next = PREPARED
    :: told == unknown && current(named) && action == DISPATCHED -> next = OUTCOME_UNKNOWN
    :: else -> next = 0
    fi;
    if
    :: next == 0 -> keep_evidence(named, told, source)
    :: else ->
           must(P4_truth, in_the_open || (action == PREPARED && next == SUCCEEDED)); /* a proven outcome never moves */
           must(P4_truth, next != SUCCEEDED || effects == 1);
           must(P4_truth, next != FAILED || effects == 0);
           must(P4_truth, next != PREPARED || effects == 0);               /* "proven not executed" is true */
           action = next; due = false; person_called = false;
           follow_settlement();
           outcome = settled
    fi;
    if
    :: outcome == settled || (told == absent && answers_now(named)) -> settle_run_status(own && (lets_go))
    :: else
    fi;
    next = 0
}

/* ---------------------------------------------------------------- 0004_approvals.sql */

inline request_approvals() { assert(action == PREPARED); approval = PENDING }

inline pause_run() {
    if :: is_fenced -> skip :: else -> not_stale; request_approvals(); tries = 0; settle_run_status(true) fi
}

inline decide_approval(verdict) {
    assert(approval == PENDING);
    approval = verdict; overtaken = false;
    if :: verdict == REJECTED -> close_action() :: else fi;
    settle_run_status(false)
}

/* The decision was taken before an identical action succeeded: it is superseded, and the action asked for anew. */
inline request_again() {
    if
    :: is_fenced -> skip
    :: else ->
           not_stale;
           if
           :: approval == APPROVED -> request_approvals(); overtaken = false; undecided_too_long = false; late = false
           :: else
           fi;
           tries = 0; settle_run_status(true)
    fi
}

inline expire_approval() { approval = EXPIRED; close_action() }

inline revoke_approval() { approval = REVOKED; close_action(); settle_run_status(false) }

#define lapsed          ((approval == PENDING && undecided_too_long) || (approval == APPROVED && late))
#define calls_person    (is_idempotent && in_the_open && due && !person_called && (cancel_requested || !may_repeat))
#ifdef MUT_SWEEP_READY_ONLY
#define quiet           (status == READY)
#else
#define quiet           (status == READY || (status == RUNNING && !hold))
#endif

#ifdef MUT_SWEEP_IGNORES_WAITING
#define sees_waiting    false
#else
#define sees_waiting    (!ended && status != DEAD_LETTERED && status != RUNNING && computed_status != status)
#endif

inline sweep_run() {
    if :: lapsed -> expire_approval() :: else fi;
    settle_run_status(false);
    if :: status == AWAITING_RECONCILIATION && calls_person -> person_called = true; action = OUTCOME_UNKNOWN :: else fi;
    if :: quiet && !(jobs??[eval(wake)]) -> announce :: else fi
}

/* ---------------------------------------------------------------- 0005_loops.sql, 0006_operators.sql */

inline load_action_to_reconcile() {
    if
    :: action == DISPATCHED ->
           action = OUTCOME_UNKNOWN;
           if :: is_idempotent -> due = true :: else fi;
           settle_run_status(false)
    :: else
    fi
}

inline replay_dead_letter() { status = PARKED; tries = 0; settle_run_status(false) }

/* seen: the attempt the person has looked at. */
inline resolve_action(seen, verdict) {
    if
    :: action != OUTCOME_UNKNOWN -> outcome = conflict
#ifndef MUT_PERSON_NAMES_NO_ATTEMPT
    :: action == OUTCOME_UNKNOWN && seen != attempt -> outcome = conflict
#endif
    :: else -> settle_actions(attempt, verdict, by_person, false, false)
    fi
}

/* ---------------------------------------------------------------- the processes */

proctype Worker(byte me)
{
    byte  my_wake = 0, my_epoch = 0, my_attempt = 0;
    mtype told = 0;
    bool  transient = false;
#ifdef MUT_APPROVAL_READ_BEFORE
    bool  saw_approval = false;
#endif

end_idle:
    atomic {                                                   /* a delivery: lease asked, run claimed */
        len(jobs) > 0 && !would_be_held ->
        jobs?my_wake;
        claim_runs();
        if
        :: outcome == claimed -> my_epoch = epoch; working_on[me] = epoch; lease = me
        :: else -> goto over                                   /* counted, acknowledged */
        fi
    }
#ifdef FROM_START
    if
    :: atomic { crashes > 0 -> goto dies }
    :: atomic { approval == NONE && !minted -> journal_response(); if :: outcome == fenced -> goto over :: else fi }
    :: approval != NONE || minted
    fi;
    if
    :: atomic { crashes > 0 -> goto dies }
    :: atomic { approval == NONE -> pause_run(); goto over }
    :: approval != NONE
    fi;
#endif
#ifdef MUT_APPROVAL_READ_BEFORE
    saw_approval = (approval == APPROVED && !late);
#endif

    /* intend ------------------------------------------------------------------ */
    if
    :: atomic { crashes > 0 -> goto dies }
    :: atomic { errors > 0 -> errors--; transient = true; goto let_go }
    :: atomic {
           intend_actions();
           if
           :: outcome == dispatched ->
#ifdef TRANSACTIONAL
                  /* the effect is in the ledger's own database: intend, effect and receipt are this one transaction */
                  effects++; must(P1_one_effect, effects <= 1);
                  settle_actions(my_attempt, succeeded, by_worker, true, false); goto finish
#else
                  doors++
#endif
           :: outcome == receipt || outcome == refused -> goto finish
           :: outcome == held -> goto let_go
           :: outcome == decide_again -> goto ask_again
           :: else -> goto over                                /* fenced */
           fi
       }
    fi;

    /* call the provider: inside the send window of the attempt, or not at all --- */
#if defined(DROP_SENDER_BLIND)
    if
    :: atomic { crashes > 0 -> leave_door; goto dies }
    :: atomic { call[my_attempt] = ON_WIRE; leave_door }
    fi;
#else
    if
    :: atomic { crashes > 0 -> leave_door; goto dies }
    :: my_attempt <= past_deadline -> goto window_missed
    :: atomic { my_attempt > past_deadline && pauses > 0 -> pauses--; leave_door; goto window_missed }
#if defined(DROP_SENDER_CHECKS)
    :: my_attempt > past_deadline -> atomic { call[my_attempt] = ON_WIRE; leave_door }
#else
    :: atomic { my_attempt > past_deadline -> call[my_attempt] = ON_WIRE; leave_door }
#endif
    fi;
#endif

    /* settle ------------------------------------------------------------------- */
    if
    :: atomic { crashes > 0 -> call[my_attempt] = (call[my_attempt] == ON_WIRE -> UNHEARD : 0); goto dies }
    :: atomic { call[my_attempt] == RECEIPT -> told = succeeded; call[my_attempt] = 0; goto settle }
    :: atomic { call[my_attempt] == REFUSED -> told = failed; call[my_attempt] = 0; goto settle }
    :: atomic { call[my_attempt] == BROKEN -> told = unknown; call[my_attempt] = 0; goto settle }
    :: atomic { timeouts > 0 && call[my_attempt] != BROKEN ->
           timeouts--; told = unknown;
           call[my_attempt] = (call[my_attempt] == ON_WIRE -> LATE_ON_WIRE :
               (call[my_attempt] == RECEIPT -> LATE_RECEIPT : LATE_REFUSED));
           goto settle }
    fi;

window_missed:
    if
    :: atomic { crashes > 0 -> goto dies }
    :: atomic { told = never_sent; goto settle }
    fi;

    atomic {
        skip;
settle:                                                        /* one block with what led here */
#ifdef MUT_RECEIPT_FENCED
        if
        :: my_epoch != epoch ->                                /* no proof is thrown away while the outcome is open */
               must(P4_truth, !in_the_open || told == unknown); outcome = fenced
        :: else -> settle_actions(my_attempt, told, by_worker, true, false)
        fi;
#else
        settle_actions(my_attempt, told, by_worker, my_epoch == epoch, false);
#endif
        if
        :: (told == succeeded || told == failed) && outcome == settled -> told = 0; goto finish
        :: else -> told = 0                                    /* let go already, unless the word was only kept */
        fi
    };
#ifdef MUT_SUSPEND_IN_TWO_STEPS
    atomic { if :: !is_fenced -> status = AWAITING_RECONCILIATION; hold = false :: else fi; goto over };
#endif
let_go:
    if
    :: atomic { crashes > 0 && status == RUNNING && my_epoch == epoch -> goto dies }
    :: atomic { release_run(!transient); goto over }
    fi;

ask_again:
    if
    :: atomic { crashes > 0 && status == RUNNING && my_epoch == epoch -> goto dies }
    :: atomic { request_again(); goto over }
    fi;

finish:
    if
    :: atomic { crashes > 0 && status == RUNNING && my_epoch == epoch -> goto dies }
    :: atomic { finish_runs(); goto over }
    fi;

    atomic {
        skip;
dies:                                                          /* its hold runs out, its job comes back or is lost */
        crashes--;
        if :: my_epoch == epoch && status == RUNNING -> hold = false :: else fi;
        if :: len(jobs) < MAX_JOBS -> jobs!!my_wake :: true fi;
        goto over
    };
    atomic {
        skip;
over:
        if :: lease == me -> lease = NOBODY :: else fi;
        working_on[me] = 0; my_wake = 0; my_epoch = 0; my_attempt = 0; transient = false;
        goto end_idle
    }
}

/* An answer that came after its worker had stopped waiting. It names no epoch. */
#define is_late(a)      (call[a] == LATE_RECEIPT || call[a] == LATE_REFUSED)
active proctype LateAnswer()
{
    byte  a = 0;
    mtype told = 0;
end_idle:
    do
    :: atomic {
           if
           :: is_late(1) -> a = 1 :: is_late(2) -> a = 2 :: is_late(3) -> a = 3
           :: is_late(4) -> a = 4 :: is_late(5) -> a = 5
           fi;
           told = (call[a] == LATE_RECEIPT -> succeeded : failed);
           call[a] = 0; settle_actions(a, told, by_worker, false, false); a = 0; told = 0
       }
    od
}

/* Loads a due action, asks, settles: three steps. As many as there are may ask at once. */
proctype Reconciler()
{
    byte  asked_about = 0;
    bool  in_grace = false;
    mtype answer = 0;
end_idle:
    atomic {
        (action == DISPATCHED && past_deadline == attempt) ||
        (has_lookup && action == OUTCOME_UNKNOWN &&
            ((past_grace == attempt && reissue_automatic) || (effects > 0 && !lagging) || early_asks > 0)) ->
        load_action_to_reconcile();
        if
        :: has_lookup -> asked_about = attempt; in_grace = (past_grace == attempt);
               if :: !in_grace && early_asks > 0 -> early_asks-- :: else fi
        :: else -> goto end_idle                               /* nobody can be asked */
        fi
    };
    atomic { answer = (effects > 0 && !lagging -> succeeded : absent) };
    atomic {
#ifdef DROP_GRACE
        settle_actions(asked_about, answer, by_lookup, false, true);
#else
        settle_actions(asked_about, answer, by_lookup, false, in_grace);
#endif
        asked_about = 0; in_grace = false; answer = 0; goto end_idle
    }
}

/* A named person: looks at an unknown attempt, and later says what became of it. */
#if defined(DROP_PERSON_PATIENCE) || defined(PERSON_AT_ONCE)
#define may_look        (past_grace == attempt || early_asks > 0)
#else
#define may_look        (past_grace == attempt)
#endif
#if defined(IDEMPOTENT)
#define asks_person     (person_called || status == DEAD_LETTERED)
#elif defined(MANUAL) || defined(BY_PERSON) || defined(PERSON_MEDDLES)
#define asks_person     true
#else
#define asks_person     false
#endif
proctype Person()
{
    byte  seen = 0;
    mtype verdict = 0;
end_idle:
    atomic {
        action == OUTCOME_UNKNOWN && asks_person && may_look ->
        if :: past_grace < attempt -> early_asks-- :: else fi;
        seen = attempt;
        if
        :: effects > 0 -> verdict = succeeded
        :: effects == 0 -> verdict = absent
        :: verdict = abandoned
        fi;
#ifdef PERSON_AT_ONCE
        goto says
#endif
    };
    atomic {
        skip;
says:   resolve_action(seen, verdict); seen = 0; verdict = 0; goto end_idle
    }
}

active proctype Sweeper()
{
end_idle:
    do
    :: atomic {
           lapsed ||
           sees_waiting ||
           (status == AWAITING_RECONCILIATION && calls_person) ||
           (quiet && len(jobs) < MAX_JOBS && !(jobs??[eval(wake)])) ->
           sweep_run()
       }
    od
}

active proctype Reviewer()
{
    mtype verdict = 0;
end_idle:
    atomic {
        approval == PENDING ->
        if :: verdict = APPROVED :: verdict = REJECTED :: undecided_too_long = true; goto may_revoke fi;
        decide_approval(verdict); verdict = 0
    };
may_revoke:
    if                                                         /* until consumed, and again once handed back */
    :: atomic { approval == APPROVED -> revoke_approval() }
    :: skip
    fi;
#if IDENTICALS > 0
    goto end_idle                                              /* asked again */
#endif
}

active proctype Operator()
{
end_idle:
    do
    :: atomic { cancels > 0 && !ended -> cancels--; cancel_run() }
    :: atomic { replays > 0 && status == DEAD_LETTERED -> replays--; replay_dead_letter() }
    od
}

active proctype Clock()
{
end_idle:
    do
    :: atomic { in_the_open && past_deadline < attempt && (doors == 0 || pauses > 0) ->
           if :: doors > 0 -> pauses-- :: else fi;
           doors = 0; past_deadline = attempt }
#ifdef DROP_GRACE
    :: atomic { in_the_open && past_deadline == attempt && past_grace < attempt -> past_grace = attempt }
#else
    /* T1: past the grace nothing of the key is on the wire, or committed and invisible */
    :: atomic { in_the_open && past_deadline == attempt && past_grace < attempt && wire_is_empty && !lagging ->
           past_grace = attempt }
#endif
#ifdef IDEMPOTENT
    :: atomic { in_the_open && !due && !person_called && (past_deadline == attempt || action == OUTCOME_UNKNOWN) ->
           due = true }
#endif
#ifdef KEY_LIFETIME
#if defined(DROP_LIFETIME_MARGIN)
    :: atomic { attempt > 0 && !forgotten -> forgotten = true }
#elif defined(MUT_MARGIN_WITHOUT_SEND_WINDOW)
    :: atomic { attempt > 0 && !forgotten && wire_is_empty -> forgotten = true }
#else
    :: atomic { attempt > 0 && !forgotten && wire_is_empty && doors == 0 -> forgotten = true }
#endif
#endif
    :: atomic { lease != NOBODY && !hold -> lease = NOBODY }
    od
}

active proctype Deadline()                                     /* the approval's: passes some day, or never */
{
    if :: atomic { approval != NONE && approval != PENDING -> late = true } :: skip fi
}

active proctype Environment()
{
end_idle:
    do
    :: atomic { dups > 0 && len(jobs) < MAX_JOBS -> dups--; jobs!!wake }
    :: atomic { flushes > 0 && (len(jobs) > 0 || lease != NOBODY) -> flushes--; lease = NOBODY;
                do :: len(jobs) > 0 -> jobs?_ :: else -> break od }
    :: atomic { losses > 0 && hold -> losses--; hold = false; if :: lease = NOBODY :: skip fi }
    :: atomic { status == RUNNING && !hold && working_on[1] == epoch -> renew_holds(1) }
    :: atomic { status == RUNNING && !hold && working_on[2] == epoch -> renew_holds(2) }
#if IDENTICALS > 0
    :: atomic { identical == 0 && !in_the_open -> identical = 1 }
    :: atomic { identical == 1 -> identical = 2;
                if :: overtaken = (approval == APPROVED) :: skip fi }   /* it succeeded, or did not */
#endif
    od
}

/* The provider serves a request when it likes. */
#ifdef DROP_REFUSAL_KEPT
#define remember        skip
#else
#define remember        key_refused = is_idempotent
#endif
active proctype Provider()
{
    byte  a = 0;
    mtype says = 0;
end_idle:
    do
    :: atomic {
           if :: heard(1) -> a = 1 :: heard(2) -> a = 2 :: heard(3) -> a = 3 :: heard(4) -> a = 4 :: heard(5) -> a = 5 fi;
           if
           :: drops > 0 -> drops--; says = BROKEN
           :: refusals > 0 && !(is_idempotent && (effects > 0 || key_refused)) -> refusals--; remember; says = REFUSED
           :: is_idempotent && key_refused -> says = REFUSED
           :: is_idempotent && effects > 0 && !forgotten -> says = RECEIPT  /* same key: the first answer again */
           :: !(is_idempotent && (key_refused || (effects > 0 && !forgotten))) ->
                  effects++;
                  must(P1_one_effect, effects <= 1);
                  must(P4_truth, action != NOT_EXECUTED && action != FAILED);  /* nobody was told otherwise */
                  lagging = has_lookup; says = RECEIPT
           fi;
           if
           :: call[a] == UNHEARD -> call[a] = 0
           :: call[a] == LATE_ON_WIRE -> call[a] = (says == RECEIPT -> LATE_RECEIPT :
                                                   (says == REFUSED -> LATE_REFUSED : 0))
           :: call[a] == LATE_ON_WIRE -> call[a] = 0           /* its worker has died since */
           :: call[a] == ON_WIRE -> call[a] = says
           :: call[a] == ON_WIRE && says != BROKEN && lost_replies > 0 -> lost_replies--; call[a] = BROKEN
           fi;
           a = 0; says = 0
       }
    :: atomic { lagging -> lagging = false }                   /* the look-up catches up */
    od
}

/* P6: nothing can move any more; then the run has arrived. A cancelled run has not arrived by being given up. */
#define arrived         (ended || (status == DEAD_LETTERED && replays == 0 && !cancel_requested))
#ifndef LIVENESS
active proctype Stranded()
{
end_idle:
    timeout -> must(P6_not_stranded, arrived && (!ended || !in_the_open))
}
#endif

init {
    atomic {
        run Worker(1); run Worker(2);
        run Reconciler();
#if RECONCILERS == 2
        run Reconciler();
#endif
        run Person();
#if PERSONS == 2
        run Person();
#endif
#ifdef FROM_START
        jobs!1
#endif
    }
}

#ifdef LIVENESS
ltl P7_arrives { <> (arrived) }
#endif
