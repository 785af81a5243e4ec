#!/usr/bin/env bash
# Derived types with gaps: what they touch is registered, and nothing of the gaps, which are unmapped.
. "$(dirname "$0")/common.bash"
[ "$(getconf PAGESIZE)" -le 65536 ] || exit 77

# Each case by itself: its leases, and the bytes that leave-pinned ends with.
while read -r name leases bytes <&3; do
  under "--retention leave-pinned" 2 "$programs/mpi_gaps" "$name" || fail "$name: status $?: $(cat "$work/out" "$work/err")"
  verified || fail "$name: $(cat "$work/out")"
  books_balance "$name"
  report_says "$name" "r.acquires.total == 2 * $leases and r.registered_bytes.peak == 2 * $bytes"
done 3< <("$programs/mpi_gaps" --list)

# All of them in one process: handles are used for one type after the other.
total=$("$programs/mpi_gaps" --list | awk '{ n += $2 } END { print 2 * n }')
choose_retentions
for retention in "${retentions[@]}"; do
  under "--retention $retention" 2 "$programs/mpi_gaps" || fail "$retention: status $?: $(cat "$work/out" "$work/err")"
  verified || fail "$retention: $(cat "$work/out")"
  books_balance "$retention"
  report_says "$retention" "r.acquires.total == $total"
done

# Blocks below the threshold are leased like others where all of it is.
under "--retention on-demand --tune threshold=1" 2 "$programs/mpi_gaps" small many || fail "small: status $?: $(cat "$work/out" "$work/err")"
verified || fail "small: $(cat "$work/out")"
books_balance "small"
report_says "small" 'r.acquires.total >= 2 * 2 * 5 * (16 + 1)'

[ "$failures" -eq 0 ]
