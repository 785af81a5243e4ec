#!/usr/bin/env bash
# Programs that end badly, logs that cannot be written: the program ends as it does alone, and the report
# uses the logs that exist.
. "$(dirname "$0")/common.bash"
leaving=$programs/mpi_leaving

under "" 2 "$leaving" fork || fail "fork: status $?: $(cat "$work/out" "$work/err")"
verified || fail "fork: $(cat "$work/out")"
books_balance fork
report_says fork 'r.acquires.total == 82 and r.ranks == 2'

# Without MPI_Finalize: the log is complete all the same; a receive without a message keeps its lease.
# hydra would kill the rank that leaves last.
plain_launch=("${launch[@]}")
[ "$family" = openmpi ] || launch+=(-disable-auto-cleanup)
for retention in on-demand helper; do
  under "--retention $retention" 2 "$leaving" exit
  verified || fail "exit: $(cat "$work/out" "$work/err")"
  report_says "exit, $retention" 'all(rank.complete for rank in r.per_rank) and r.acquires.total == 82'
done

# A signal handler ends the run at any moment of a transfer: each run ends, and its log can be read.
for try in 1 2 3 4; do
  under "--retention on-demand" 2 "$leaving" interrupt
  [ $? -ne 124 ] || fail "interrupt: it hangs"
  report_says interrupt 'r.ranks == 2'
done
launch=("${plain_launch[@]}")

ranks 2 "$leaving" abort >"$work/out" 2>&1
status=$?
under "" 2 "$leaving" abort
[ $? -eq $status ] || fail "abort: another status than $status"
verified || fail "abort: $(cat "$work/out")"
# The counters of a process that is cut off are those of the last time that the helper brought the log up to date.
report_says abort 'r.ranks == 2 and 0 <= r.acquires.total <= 82'

# Killed in the middle of things.
rm -rf "$work/log"
"$pinion" run --device pin --log "$work/log" -- "${launch[@]}" -n 2 "$leaving" sleep "$work" >"$work/out" 2>"$work/err" &
eventually verified || fail "sleep: $(cat "$work/out" "$work/err")"
up_to_date() { [ "$(what_is 'r.ranks == 2 and r.acquires.total == 82')" = True ]; }
eventually up_to_date || fail "sleep: the log is not brought up to date: $(what_is r.acquires)"
victims=$(pgrep -f "^$leaving sleep $work") # not those of another run of this script
[ "$(wc -w <<<"$victims")" -eq 2 ] || fail "two ranks expected: $victims"
kill -9 ${victims%%$'\n'*}
wait $! && fail "a killed rank goes unnoticed"
report_says "kill -9" 'r.ranks == 2 and r.acquires.total == 82 and not all(rank.complete for rank in r.per_rank)'

# A log that cannot be written costs the log, and one line a rank.
touch "$work/file"
PINION="log=$work/file/below" ranks 2 env LD_PRELOAD="$build/lib/libpinion-preload.so" "$programs/mpi_counted" \
  >"$work/out" 2>"$work/err" || fail "no log: status $?"
verified || fail "no log: $(cat "$work/out" "$work/err")"
[ "$(grep -c '^pinion: rank [01] on .*: no log: ' "$work/err")" -eq 2 ] && [ "$(wc -l <"$work/err")" -eq 2 ] || fail "no log: $(cat "$work/err")"

[ "$failures" -eq 0 ]
