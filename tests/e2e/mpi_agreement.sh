#!/usr/bin/env bash
# Leave-pinned and oracle, computed from any run's log, agree with the real registrations of a run of
# leave-pinned, or on demand.
only_family=openmpi
. "$(dirname "$0")/common.bash"
[ -x "$examples/fft3d" ] || exit 77

bytes() { what_is "[r.registered_bytes.$1]" | tr -d '[]'; }

# near PERCENT A B
near() { python3 -c 'import sys; p, a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > p / 100 * max(a, b))' "$@"; }

run() {
  under "--retention $1 --device emulated" 2 "${@:2}" || fail "$*: $(cat "$work/err")"
  books_balance "$*"
}

# agree PROGRAM ARGUMENTS...: a leave-pinned run against itself, computed; then the values that runs of other strategies compute.
# Means are over time, which two runs on a machine with other work to do spend differently: best of 12, and 5 percent.
# Leaves `peak`, of the leave-pinned run.
agree() {
  local mean
  for _ in $(seq 12); do
    run leave-pinned "$@"
    peak=$(bytes peak) mean=$(bytes mean)
    near 2 "$peak" "$(bytes leave_pinned_peak)" && near 2 "$mean" "$(bytes leave_pinned_mean)" ||
      fail "leave-pinned, itself: $*: $(what_is r.registered_bytes)"
    run helper "$@"
    near 2 "$peak" "$(bytes leave_pinned_peak)" || fail "helper: $*: leave-pinned $peak: $(what_is r.registered_bytes)"
    near 5 "$mean" "$(bytes leave_pinned_mean)" && return
  done
  fail "$*: mean of leave-pinned $mean, computed from a helper run $(bytes leave_pinned_mean)"
}

# agree_others PROGRAM ARGUMENTS...: the same of strategies that keep nothing, after agree.
# On demand is the oracle but for how long the registration itself takes: on a busy machine, so long that ranks overlap
# otherwise. Best of 5.
agree_others() {
  run observe "$@"
  near 2 "$peak" "$(bytes leave_pinned_peak)" || fail "observe: $*: leave-pinned $peak: $(what_is r.registered_bytes)"
  for _ in 1 2 3 4 5; do
    run on-demand "$@"
    near 2 "$peak" "$(bytes leave_pinned_peak)" || fail "on-demand: $*: leave-pinned $peak: $(what_is r.registered_bytes)"
    near 2 "$(bytes peak)" "$(bytes oracle_peak)" && near 10 "$(bytes mean)" "$(bytes oracle_mean)" && return
  done
  fail "on demand and oracle: $*: $(what_is r.registered_bytes)"
}

# Any transfer uses two of fft3d's three arrays: a third less for the oracle, and for a helper that finds a processor in time.
# On a machine with far more work than processors it finds none; then the oracle alone is checked.
overloaded() { awk -v processors="$(nproc)" '{ exit !($1 > 2 * processors) }' /proc/loadavg; }
# saves_a_third PROGRAM ARGUMENTS...: after a run of its under the helper.
saves_a_third() {
  for _ in $(seq 10); do
    report_says fft3d '0.65 < r.registered_bytes.oracle_peak / r.registered_bytes.leave_pinned_peak < 0.68'
    [ "$(what_is 'r.registered_bytes.peak < 0.70 * r.registered_bytes.leave_pinned_peak')" = True ] && return
    run helper "$@"
  done
  overloaded || fail "fft3d: $(what_is r.registered_bytes)"
}

fft=("$examples/fft3d" --grid 128x128x64 --iterations 30)
agree "${fft[@]}"
saves_a_third "${fft[@]}"
agree_others "${fft[@]}"
halo=("$examples/halo" --tile 2048 --steps 30)
agree "${halo[@]}"
agree_others "${halo[@]}"

[ "$failures" -eq 0 ]
