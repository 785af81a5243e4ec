#!/usr/bin/env bash
# The program's error handlers run equally often under Pinion and alone. This holds for all handles and
# counts that it gives MPI, and all fates of requests that it freed.
. "$(dirname "$0")/common.bash"

ranks 1 "$programs/mpi_errors" >"$work/plain" 2>"$work/err" || fail "without Pinion: $(tail -n 3 "$work/plain" "$work/err")"
[ "$(wc -l <"$work/plain")" -ge 70 ] || fail "without Pinion: $(wc -l <"$work/plain") lines"
for options in "--tune threshold=1" "--retention on-demand" "--tune intranode=off"; do
  under "$options" 1 "$programs/mpi_errors" || fail "$options: status $?: $(tail -n 3 "$work/out" "$work/err")"
  cmp -s "$work/plain" "$work/out" || fail "$options: $(diff "$work/plain" "$work/out" | head -n 10)"
  books_balance "$options"
done

[ "$failures" -eq 0 ]
