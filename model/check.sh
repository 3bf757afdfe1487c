#!/bin/sh
# Checks the model, and that every mutant of it is caught; one line each, exit 1 if one is not as expected.
#   sh model/check.sh         all of it: under ten minutes of one core, and it uses two
#   sh model/check.sh quick   those marked q below: about a minute
#   sh model/check.sh NAME…   just these
# JOBS=1 uses one core. Needs spin and a C compiler.
set -u
case $0 in */*) here=$(cd "${0%/*}" && pwd) ;; *) here=$(pwd) ;; esac

# q|-  name  holds | property that breaks  safety | live  flags
checks() { cat <<'LIST'
# the protocol, by its rules: every promise kept
q lookup-calm                holds safety
- lookup-faults              holds safety -DCRASHES=1 -DLOSSES=1 -DDROPS=1 -DTIMEOUTS=1 -DPAUSES=1 -DLOST_REPLIES=1
- lookup-deliveries          holds safety -DCRASHES=2 -DLOSSES=1 -DDUPS=1 -DFLUSHES=1 -DPAUSES=1 -DREPLAYS=1
- lookup-crash-everything    holds safety -DCRASHES=1 -DDUPS=1 -DFLUSHES=1 -DDROPS=1 -DTIMEOUTS=1 -DPAUSES=1 -DLOST_REPLIES=1 -DEARLY_ASKS=1 -DREPLAYS=1
- lookup-two-reconcilers     holds safety -DRECONCILERS=2 -DCRASHES=1 -DDROPS=1 -DTIMEOUTS=1 -DPAUSES=1 -DEARLY_ASKS=1
q lookup-quick               holds safety -DCRASHES=1 -DPAUSES=1 -DDROPS=1 -DLOST_REPLIES=1
- lookup-person-meddles      holds safety -DPERSON_MEDDLES -DLOSSES=1 -DPAUSES=1 -DTIMEOUTS=1 -DEARLY_ASKS=1
- by-person                  holds safety -DBY_PERSON -DPERSONS=2 -DCRASHES=1 -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- by-person-take-over        holds safety -DBY_PERSON -DLOSSES=1 -DPAUSES=1 -DTIMEOUTS=1
q idempotent-quick           holds safety -DIDEMPOTENT -DCRASHES=1 -DPAUSES=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- idempotent-take-over       holds safety -DIDEMPOTENT -DCRASHES=1 -DLOSSES=1 -DPAUSES=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- idempotent-refused         holds safety -DIDEMPOTENT -DREFUSALS=1 -DCRASHES=1 -DPAUSES=1 -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- idempotent-deliveries      holds safety -DIDEMPOTENT -DCRASHES=1 -DLOSSES=1 -DDUPS=1 -DFLUSHES=1 -DLOST_REPLIES=1
- idempotent-budget-spent    holds safety -DIDEMPOTENT -DATTEMPT_BUDGET=1 -DCRASHES=1 -DLOSSES=1 -DTIMEOUTS=1 -DLOST_REPLIES=1 -DREPLAYS=1
- idempotent-key-lifetime    holds safety -DIDEMPOTENT -DKEY_LIFETIME -DCRASHES=1 -DLOSSES=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- idempotent-no-clock        holds safety -DIDEMPOTENT -DDROP_SENDER_BLIND -DONLY_COUNT=1 -DLOSSES=1 -DPAUSES=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
q manual-quick               holds safety -DMANUAL -DCRASHES=1 -DPAUSES=1 -DTIMEOUTS=1
- manual-two-people          holds safety -DMANUAL -DPERSONS=2 -DREFUSALS=1 -DCRASHES=1 -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- manual-take-over           holds safety -DMANUAL -DPERSONS=2 -DCRASHES=1 -DLOSSES=1 -DPAUSES=1 -DTIMEOUTS=1
q manual-person-at-once      holds safety -DMANUAL -DPERSON_AT_ONCE -DEARLY_ASKS=1 -DDROPS=1 -DTIMEOUTS=1
q transactional              holds safety -DTRANSACTIONAL -DCRASHES=2 -DLOSSES=1 -DDUPS=1 -DFLUSHES=1 -DERRORS=1 -DCANCELS=1 -DREPLAYS=1 -DMAX_CLAIMS=2
q from-the-start             holds safety -DFROM_START -DMAX_CLAIMS=2 -DCRASHES=1 -DLOSSES=1 -DPAUSES=1
- from-the-start-given-up    holds safety -DFROM_START -DMAX_CLAIMS=2 -DERRORS=2 -DCRASHES=1 -DLOSSES=1 -DPAUSES=1 -DREPLAYS=1
- from-the-start-idempotent  holds safety -DFROM_START -DIDEMPOTENT -DCRASHES=1 -DLOSSES=1 -DDUPS=1 -DFLUSHES=1 -DLOST_REPLIES=1
q given-up-and-replayed      holds safety -DMAX_CLAIMS=1 -DERRORS=1 -DCRASHES=1 -DPAUSES=1 -DREPLAYS=2
q cancel-lookup              holds safety -DCANCELS=1 -DMAX_CLAIMS=2 -DCRASHES=1 -DPAUSES=1 -DTIMEOUTS=1 -DREPLAYS=1
q cancel-idempotent          holds safety -DIDEMPOTENT -DCANCELS=1 -DMAX_CLAIMS=2 -DCRASHES=1 -DPAUSES=1 -DTIMEOUTS=1 -DREPLAYS=1
- cancel-all-faults          holds safety -DIDEMPOTENT -DCANCELS=1 -DERRORS=1 -DCRASHES=1 -DPAUSES=1 -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1 -DREPLAYS=1
- cancel-manual              holds safety -DMANUAL -DCANCELS=1 -DERRORS=1 -DCRASHES=1 -DPAUSES=1 -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1 -DREPLAYS=1
q identical-quick            holds safety -DIDENTICALS=1 -DCRASHES=1 -DPAUSES=1
- cancel-take-over           holds safety -DIDEMPOTENT -DCANCELS=1 -DLOSSES=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- transactional-identical    holds safety -DTRANSACTIONAL -DIDENTICALS=1 -DCRASHES=1 -DLOSSES=1 -DCANCELS=1
- identical                  holds safety -DIDENTICALS=1 -DERRORS=1 -DCRASHES=1 -DPAUSES=1 -DDROPS=1 -DTIMEOUTS=1
- identical-take-over        holds safety -DIDENTICALS=1 -DCANCELS=1 -DLOSSES=1 -DTIMEOUTS=1 -DMAX_CLAIMS=2 -DREPLAYS=1

# every run arrives, under weak fairness, once faults stop
q arrives-lookup             holds live -DCRASHES=1 -DPAUSES=1
- arrives-lookup-faults      holds live -DCRASHES=1 -DPAUSES=1 -DDROPS=1 -DLOST_REPLIES=1
- arrives-lookup-take-over   holds live -DLOSSES=1 -DTIMEOUTS=1
- arrives-lookup-cancel      holds live -DCRASHES=1 -DTIMEOUTS=1 -DCANCELS=1 -DIDENTICALS=1 -DERRORS=1 -DMAX_CLAIMS=2 -DREPLAYS=1
q arrives-idempotent         holds live -DIDEMPOTENT -DCRASHES=1 -DPAUSES=1
- arrives-idempotent-faults  holds live -DIDEMPOTENT -DCRASHES=1 -DPAUSES=1 -DDROPS=1 -DLOST_REPLIES=1
- arrives-idempotent-over    holds live -DIDEMPOTENT -DLOSSES=1 -DTIMEOUTS=1
- arrives-manual-faults      holds live -DMANUAL -DCRASHES=1 -DPAUSES=1 -DDROPS=1 -DLOST_REPLIES=1
- arrives-manual-cancel      holds live -DMANUAL -DCRASHES=1 -DTIMEOUTS=1 -DCANCELS=1 -DERRORS=1 -DMAX_CLAIMS=2 -DREPLAYS=1

# an assumption about the world dropped
- drop-sender-checks         P1 safety -DDROP_SENDER_CHECKS -DONLY_COUNT=1 -DPAUSES=1 -DLOSSES=1
- drop-sender-blind          P1 safety -DDROP_SENDER_BLIND -DONLY_COUNT=1 -DPAUSES=1 -DLOSSES=1
- drop-grace                 P1 safety -DDROP_GRACE -DONLY_COUNT=1 -DTIMEOUTS=1
- drop-lifetime-margin       P1 safety -DDROP_LIFETIME_MARGIN -DONLY_COUNT=1 -DIDEMPOTENT -DKEY_LIFETIME -DTIMEOUTS=1
- drop-refusal-kept          P4 safety -DDROP_REFUSAL_KEPT -DIDEMPOTENT -DREFUSALS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- drop-person-patience       P4 safety -DDROP_PERSON_PATIENCE -DMANUAL -DTIMEOUTS=1 -DEARLY_ASKS=1
- told-not-executed          P4 safety -DIDEMPOTENT -DDROP_SENDER_BLIND -DATTEMPT_BUDGET=1 -DPAUSES=1 -DLOSSES=1

# mutants
q mutant-no-epoch            P3 safety -DMUT_NO_EPOCH -DLOSSES=1
- mutant-no-epoch-harm       P3 safety -DMUT_NO_EPOCH -DHARM_ONLY -DLOSSES=1
- mutant-hold-ignored        P3 safety -DMUT_HOLD_IGNORED -DDUPS=1
q mutant-no-approval         P2 safety -DMUT_NO_APPROVAL
- mutant-approval-read-before P2 safety -DMUT_APPROVAL_READ_BEFORE
- mutant-consumed-is-enough  P2 safety -DMUT_CONSUMED_IS_ENOUGH -DPAUSES=1
- mutant-repeat-late         P2 safety -DMUT_REPEAT_LATE -DIDEMPOTENT -DLOST_REPLIES=1
- mutant-cancel-not-obeyed   P2 safety -DMUT_CANCEL_NOT_OBEYED -DCANCELS=1
q mutant-no-hand-back        P5 safety -DMUT_NO_HAND_BACK -DPAUSES=1
- mutant-repeat-at-once      P4 safety -DMUT_REPEAT_AT_ONCE -DIDEMPOTENT -DLOSSES=1
- mutant-no-compare-and-set  P4 safety -DMUT_NO_CAS -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- mutant-cas-on-state-only   P1 safety -DMUT_CAS_ON_STATE_ONLY -DONLY_COUNT=1 -DRECONCILERS=2 -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
q mutant-stale-answer        P4 safety -DMUT_STALE_ANSWER -DPAUSES=1 -DEARLY_ASKS=1
- mutant-never-sent-closes-all P4 safety -DMUT_NEVER_SENT_CLOSES_ALL -DIDEMPOTENT -DLOST_REPLIES=1 -DPAUSES=1
- mutant-receipt-fenced      P4 safety -DMUT_RECEIPT_FENCED -DMANUAL -DLOSSES=1
- mutant-suspend-in-two-steps P6 safety -DMUT_SUSPEND_IN_TWO_STEPS -DMUT_SWEEP_IGNORES_WAITING -DTIMEOUTS=1 -DLOST_REPLIES=1
- mutant-sweep-ignores-waiting P6 safety -DMUT_SWEEP_IGNORES_WAITING -DIDENTICALS=1
q mutant-sweep-ready-only    P6 safety -DMUT_SWEEP_READY_ONLY -DCRASHES=1
- mutant-sweep-ready-only-l  P7 live -DMUT_SWEEP_READY_ONLY -DCRASHES=1
q mutant-person-names-no-attempt P4 safety -DMUT_PERSON_NAMES_NO_ATTEMPT -DMANUAL -DPERSONS=2 -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
- mutant-person-pays-twice   P1 safety -DMUT_PERSON_NAMES_NO_ATTEMPT -DONLY_COUNT=1 -DMANUAL -DPERSONS=2 -DDROPS=1 -DTIMEOUTS=1 -DLOST_REPLIES=1
q mutant-person-in-haste     P1 safety -DMUT_PERSON_IN_HASTE -DMANUAL -DPERSON_AT_ONCE -DEARLY_ASKS=1 -DTIMEOUTS=1 -DONLY_COUNT=1
q mutant-cancelled-is-given-up P6 safety -DMUT_CANCELLED_IS_GIVEN_UP -DCANCELS=1 -DMAX_CLAIMS=1 -DCRASHES=1
q mutant-decided-before-is-enough P2 safety -DMUT_DECIDED_BEFORE_IS_ENOUGH -DIDENTICALS=1
- mutant-margin-without-send-window P1 safety -DMUT_MARGIN_WITHOUT_SEND_WINDOW -DONLY_COUNT=1 -DIDEMPOTENT -DKEY_LIFETIME -DLOST_REPLIES=1
LIST
}

# check q|- NAME EXPECTED KIND FLAGS…: leaves its line in $work/NAME.line
check() {
  size=$1 name=$2 expected=$3 kind=$4; shift 4
  dir="$work/$name"; mkdir "$dir" && cd "$dir" || exit 2
  begun=$(date +%s)
  case $kind in
    live) build='-DCOLLAPSE -DNFAIR=4' search='-a -f -m400000'; set -- -DLIVENESS "$@" ;;
    *)    build='-DCOLLAPSE -DSAFETY' search='-m200000' ;;
  esac
  # The generated C is one very long function. Optimizing it pays for the long checks only, and without dead store
  # elimination, which alone would take longer than most of them.
  case $size$expected in -holds) build="$build -O1 -fno-tree-dse -fno-dse -fno-gcse" ;; *) build="$build -O0" ;; esac
  # shellcheck disable=SC2086
  spin -a "$@" "$here/ledger.pml" >spin.log 2>&1 &&
    ${CC:-cc} -DMEMLIM=3000 $build -w -o pan pan.c >cc.log 2>&1 &&
    { ./pan $search >out 2>&1 & pan=$!; wait "$pan"; }
  touch out
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
  if grep -q 'errors: 0' out && ! grep -q 'not completed\|max search depth' out; then got=holds
  elif grep -q 'acceptance cycle' out; then got=P7
  elif grep -q '^pan:1: assertion violated' out; then got=$(sed -n 's/^pan:1: assertion violated (*\(P[0-9]\)_.*/\1/p' out)
  fi
  mark=ok; [ "${got:-}" = "$expected" ] || mark=BAD
  case $expected in holds) want='expected to hold' ;; *) want="expected to break $expected" ;; esac
  printf '%-4s %-30s %-6s %s; %s states, %s s\n' "$mark" "$name" "${got:-?}" "$want" "${states:-?}" $(($(date +%s) - begun)) >"$work/$name.part"
  [ "$mark" = ok ] || cat spin.log cc.log out 2>&1 | head -5 >>"$work/$name.part"
  mv "$work/$name.part" "$work/$name.line"
  cd "$here" && rm -rf "$dir"
}

if [ "${1:-}" = --one ]; then                       # a child of the run below
  work=$2; shift 2
  echo $$ >"$work/$$.pid"
  trap 'kill "${pan:-}" 2>/dev/null; exit 143' TERM INT
  check "$@"
  exit
fi

missing=''
command -v spin >/dev/null 2>&1 || missing='spin'
command -v "${CC:-cc}" >/dev/null 2>&1 || missing="$missing cc"
if [ -n "$missing" ]; then
  echo "The model checker is missing here ($missing). Install it with: apt-get install spin gcc" >&2
  exit 3
fi

work=$(mktemp -d) || exit 2
export work
trap 'rm -rf "$work"' EXIT
trap 'kill "$pool" $(cat "$work"/*.pid) 2>/dev/null; sleep 0.2; exit 130' INT TERM
case ${1:-} in
  '')    checks >"$work/chosen" ;;
  quick) checks | grep '^[q#]' >"$work/chosen" ;;
  *)     for wanted in "$@"; do checks | grep "^[q-] $wanted " || { echo "no check is named $wanted" >&2; exit 2; }; done >"$work/chosen" ;;
esac
grep '^[q-]' "$work/chosen" | xargs -P "${JOBS:-2}" -L 1 sh "$here/check.sh" --one "$work" &
pool=$!
bad=0
while read -r mark name rest; do
  case $mark in
    q|-)
      while [ ! -f "$work/$name.line" ] && kill -0 "$pool" 2>/dev/null; do sleep 0.1; done
      [ -f "$work/$name.line" ] || { sleep 1; [ -f "$work/$name.line" ] || echo "BAD  $name was not checked" >"$work/$name.line"; }
      cat "$work/$name.line"
      case $(cat "$work/$name.line") in ok*) ;; *) bad=1 ;; esac ;;
    '#') echo "# $name $rest" ;;
    *) echo ;;
  esac
done <"$work/chosen"
wait "$pool" 2>/dev/null
exit $bad
