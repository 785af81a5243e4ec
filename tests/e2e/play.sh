#!/usr/bin/env bash
# examples/play: patterns as real programs. Pinion sees the pattern's own bytes, leases and call sites.
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
emulated="--device emulated --nic connectx --time-budget off"

# refused WORDS ARGUMENTS...: one line with these words, and status 2.
refused() {
  local words=$1 status
  shift
  "$examples/play" "$@" >"$work/out" 2>&1
  status=$?
  [ $status -eq 2 ] && [ "$(wc -l <"$work/out")" -eq 1 ] && grep -q "^play: .*$words" "$work/out" ||
    fail "play $*: status $status: $(cat "$work/out")"
}

refused 'is required'
refused "no class 'Q'" ft:Q:1
refused 'unknown pattern' nothing:A:1
refused 'needs 2 ranks' ft:W:2
refused 'does not have' reuse:1M:1
refused '--gflops' ft:W:1 --gflops 0

# All of Pinion is inert in it.
! ldd "$examples/play" | finds libpinion || fail "play is linked with libpinion"
! nm -C "$examples/play" | finds 'pinion::\(Helper\|LeasePath\|memory_events\)::' || fail "play holds the engine"

# Every benchmark can be played.
for pattern in bt:S:4 sp:S:4 lu:S:2 cg:S:2 ft:S:2 mg:S:2 is:S:2; do
  to "$work/out" "$work/err" ranks "${pattern##*:}" "$examples/play" "$pattern" --turns 2 --gflops 10
  verified || fail "$pattern: $(cat "$work/out" "$work/err")"
done

# plays PATTERN ARGUMENTS...: in two ranks, as `under` has left it in $work.
plays() {
  under "$emulated" 2 "$examples/play" "$@"
  verified || fail "$*: $(cat "$work/out" "$work/err")"
  books_balance "$*"
}

# Two loops with a buffer and a site each, three turns of each in a turn, by a sender and a receiver.
plays nested:64K:2 --turns 4 --compute sleep
report_says nested 'r.acquires.total == 48 and sum(site.bytes for site in r.call_sites) == 48 * 65536'
report_says nested 'len(r.call_sites) == 2 * 2 and all(site.acquires == 12 for site in r.call_sites)'
report_says nested 'r.registered_bytes.leave_pinned_peak == 4 * 65536'

# A share of which four times would be more than all.
under "--device emulated --nic connectx --time-budget 40%" 2 "$examples/play" nested:64K:2 --turns 4 --compute sleep
"$pinion" report "$work/log" >"$work/report" 2>"$work/err" && ! [ -s "$work/err" ] || fail "40%: $(cat "$work/err")"

# Three arrays of 4 MiB a rank; two transforms before the six turns; two of the arrays in each all-to-all.
plays ft:W:2 --gflops 20
report_says ft 'r.acquires.total == 2 * 8 * 2 and sum(site.bytes for site in r.call_sites) == 32 * (4 << 20)'
report_says ft 'r.registered_bytes.leave_pinned_peak == 2 * 3 * (4 << 20)'
sites=$(sed -n 's/.*; \([0-9]*\) call sites.*/\1/p' "$work/out")
report_says ft "len(r.call_sites) == $sites and $sites > 1"

[ "$failures" -eq 0 ]
