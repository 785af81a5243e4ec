# Shared by the end-to-end scripts of MPI programs. Sourced with the build directory as first argument. Each
# script is run once for every installed family of MPI, named by `family`, both at the same time:
# launchers wait more than they compute. A script for one family sets `only_family=openmpi` before it sources
# this, one that depends on times `one_by_one=yes`. With `heavy_session=yes` the script and its ranks
# (by `$work/heavy PROGRAM`) weigh more than other work where they may: the kernel shares cores by session,
# independent of a process's niceness, and launchers give ranks sessions.
weigh='echo -12 >/proc/self/autogroup'
if [ -n "${heavy_session:-}" ] && [ -z "${heavy:-}" ]; then
  heavy=yes exec setsid --wait bash -c "{ $weigh; } 2>/dev/null; exec \"\$0\" \"\$@\"" "$0" "$@"
fi
if [ -z "${family:-}" ]; then
  ran=0 failed=0
  output=$(mktemp -d)
  trap 'rm -rf "$output"' EXIT
  read -ra families <<<"${only_family:-openmpi mpich}"
  for family in "${families[@]}"; do
    {
      family=$family "$0" "$@" >"$output/$family" 2>&1
      echo $? >"$output/$family.status"
    } &
    [ -z "${one_by_one:-}" ] || wait
  done
  wait
  for family in "${families[@]}"; do
    echo "== $family"
    cat "$output/$family"
    case $(cat "$output/$family.status") in
      0) ran=1 ;;
      77) ;;
      *) ran=1 failed=1 ;;
    esac
  done
  [ $ran -eq 1 ] || exit 77
  exit $failed
fi
source "$(dirname "${BASH_SOURCE[0]}")/script.bash"
pinion=$build/bin/pinion
preload=$build/lib/libpinion-preload.so
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# The first family that was found has the plain names (cmake/mpi_families.cmake).
suffix=
if [ -d "$build/bin/tests-$family" ]; then suffix=-$family; fi
programs=$build/bin/tests$suffix
# What a script tries in turn begins with another one under a second family. With PINION_TEST_SCALE above 1 `all` is set.
turn=0 all=
[ -z "$suffix" ] || turn=1
case ${PINION_TEST_SCALE:-1} in 1 | 0*) ;; *) all=yes ;; esac
examples=$build/bin/examples$suffix
mpirun=$(command -v mpirun.$family || command -v mpirun) && [ -x "$programs/mpi_counted" ] || exit 77
"$mpirun" --version >"$work/version" 2>&1
case $family in
  openmpi) grep -q 'Open MPI\|OpenRTE' "$work/version" || exit 77; launch=("$mpirun" --oversubscribe) ;;
  mpich)
    grep -q HYDRA "$work/version" || exit 77
    launch=("$mpirun")
    # Ubuntu 24.04's library asks PMIx for its world, which its launcher does not speak: each rank is alone.
    ! ldd "$programs/mpi_counted" | finds libpmix || exit 77
    ;;
esac

if [ -n "${heavy_session:-}" ]; then
  printf '#!/bin/sh\n{ %s; } 2>/dev/null\nexec "$@"\n' "$weigh" >"$work/heavy"
  chmod +x "$work/heavy"
fi

# ranks N PROGRAM ARGUMENTS...
ranks() {
  local n=$1
  shift
  timeout 240 "${launch[@]}" -n "$n" "$@"
}

# to OUT ERR COMMAND...: runs it. A launcher ends by a SIGPIPE of its own now and then, in plain runs too: that is
# tried again.
to() {
  local status
  for _ in 1 2 3 4 5; do
    "${@:3}" >"$1" 2>"$2"
    status=$?
    [ $status -eq 141 ] || break
  done
  return $status
}

# fresh_run ARGUMENTS...: pinion run with a log of its own in $work/log. The device is `pin` where the arguments name none:
# by default Pinion would only measure.
device=pin
fresh_run() {
  rm -rf "$work/log"
  PINION=device=$device,minimum-gain=0${PINION:+,$PINION} timeout 240 "$pinion" run --log "$work/log" "$@"
}

# under OPTIONS N PROGRAM ARGUMENTS...: the program with these options in every rank, its log in $work/log, its
# output in $work/out and $work/err.
under() {
  local options=$1 n=$2
  shift 2
  # shellcheck disable=SC2086
  to "$work/out" "$work/err" fresh_run $options -- "${launch[@]}" -n "$n" "$@"
}

# hpcc_under OPTIONS: HPCC on a small problem finds its answers right, in two ranks. The script goes on in $work.
hpcc_under() {
  local scripts
  scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
  cd "$work" || exit 1
  "$scripts/hpcc-input" --small . >/dev/null
  under "$1" 2 hpcc || fail "hpcc: status $?: $(cat "$work/err")"
  grep -q '^Success=1$' hpccoutf.txt || fail "hpcc says no"
}

# The strategies that a program is tried under, in `retentions`: on demand, which leaves nothing to chance, and one of the
# others in turn, or every one.
others=(helper leave-pinned lru observe)
others_turn=$turn
choose_retentions() {
  retentions=(on-demand "${others[others_turn++ % ${#others[@]}]}")
  [ -z "$all" ] || retentions=(on-demand "${others[@]}")
}

verified() { grep -q '\bverified$' "$work/out"; }

# what_is EXPRESSION [LOG]: of the report, a Python object `r` (`r.acquires.total`).
what_is() {
  "$pinion" report "${2:-$work/log}" --json >"$work/json" 2>"$work/report-error" || { cat "$work/report-error"; return 1; }
  python3 -c '
import json, sys
from types import SimpleNamespace
r = json.load(open(sys.argv[1]), object_hook=lambda o: SimpleNamespace(**o))
print(eval(sys.argv[2]))' "$work/json" "$1"
}

# report_says WHAT EXPRESSION: which must be true.
report_says() {
  local answer
  answer=$(what_is "$2")
  [ "$answer" = True ] || fail "$1: not so: $2 ($answer): $(what_is '(r.acquires, r.registered_bytes, r.registrations, r.deregistrations, r.registration_failures, r.pinned_at_exit_bytes)')"
}

# True for every run that ended in order.
books_balance() {
  report_says "$1" '(sum([r.acquires.hits, r.acquires.waits, r.acquires.misses, r.acquires.bounced, r.acquires.observed]) == r.acquires.total and
    r.registrations == r.deregistrations and r.registration_failures == 0 and r.pinned_at_exit_bytes == 0 and
    all(rank.complete for rank in r.per_rank))'
}
