#!/usr/bin/env bash
# Calls that the program's error handlers, attribute functions and cancellations leave: by exceptions and jumps, out of any call,
# as without Pinion. Afterwards the thread is served.
. "$(dirname "$0")/common.bash"

for by in '' cancel; do
  # MPICH's calls cannot be cancelled.
  [ "$by$family" != cancelmpich ] || continue
  # Launchers call it an error that a rank ends without MPI_Finalize.
  ranks 1 "$programs/mpi_left" $by >"$work/plain" 2>"$work/err"
  sed -i '/^end$/q' "$work/plain"
  [ "$(tail -n 1 "$work/plain")" = end ] || fail "without Pinion: $(tail -n 3 "$work/plain" "$work/err")"
  [ "$(grep -cE 'caught, then right|cancelled 1' "$work/plain")" -ge "$([ -n "$by" ] && echo 1 || echo 8)" ] || fail "without Pinion: $(cat "$work/plain")"
  for options in "" "--retention observe" "--retention on-demand" "--retention leave-pinned"; do
    under "$options" 1 "$programs/mpi_left" $by
    sed '/^end$/q' "$work/out" >"$work/left"  # the rest is the launcher's
    cmp -s "$work/plain" "$work/left" || fail "$options $by: $(diff "$work/plain" "$work/left" | head -n 10)"
  done
done

[ "$failures" -eq 0 ]
