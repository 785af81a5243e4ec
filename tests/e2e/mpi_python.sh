#!/usr/bin/env bash
# MPI that an interpreter loads late: Debian's mpi4py.
only_family=openmpi
. "$(dirname "$0")/common.bash"
python=/usr/bin/python3
$python -c 'import mpi4py' 2>/dev/null || exit 77

exchange=$(dirname "$0")/../intercept/mpi/exchange.py

for retention in observe on-demand leave-pinned lru helper; do
  under "--retention $retention" 2 $python "$exchange" || fail "$retention: status $?: $(cat "$work/err")"
  verified || fail "$retention: $(cat "$work/out" "$work/err")"
  books_balance "$retention"
  "$pinion" report "$work/log" >"$work/report" 2>&1
  one_line "$work/report" | grep -Eq 'module MPI < exchange.py:1[0-9] in <module> \(other lines with this call are the same site\)' ||
    fail "$retention: call sites: $(cat "$work/report")"
  report_says "$retention" 'r.acquires.total >= 60 and r.ranks == 2'
done

[ "$failures" -eq 0 ]
