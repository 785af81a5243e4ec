#!/usr/bin/env bash
# One log file for all ranks of a job on a node, with any process between them and their launcher; the next
# job in the same directory moves it into a folder of its own.
. "$(dirname "$0")/common.bash"

logs=$work/logs
earlier=0  # jobs whose logs must be in such folders
# job N OPTIONS COMMAND...: a job whose ranks set Pinion up themselves.
job() {
  local n=$1 options=$2
  shift 2
  # shellcheck disable=SC2086
  ranks "$n" "$pinion" run --device pin $options --log "$logs" -- "$@" >"$work/out" 2>"$work/err"
}
one_file() {
  local files=("$logs"/*.plog) moved=("$logs"/run-*/*.plog)
  [ ${#files[@]} -eq 1 ] || fail "$1: ${#files[@]} files: ${files[*]}"
  [ -f "${moved[0]}" ] || moved=()
  [ ${#moved[@]} -eq $earlier ] || fail "$1: $earlier jobs before: ${moved[*]}"
  earlier=$((earlier + 1))
}
says() {
  local answer
  answer=$(what_is "$2" "$logs")
  [ "$answer" = True ] || fail "$1: not so: $2 ($answer): $(what_is r.per_rank "$logs")"
}

job 8 "--tune threshold=1" "$examples/halo" --steps 5 || fail "8 ranks: $(cat "$work/err")"
one_file "8 ranks"
says "8 ranks" '[rank.rank for rank in r.per_rank] == list(range(8)) and all(rank.complete for rank in r.per_rank)'

# Wrappers have the rank too.
ranks 2 sh -c "env sh -c '$pinion run --device pin --log $logs -- $programs/mpi_counted; true'" >"$work/out" 2>"$work/err" ||
  fail "wrapped: $(cat "$work/err")"
one_file "wrapped"
says "wrapped" 'r.ranks == 2 and r.acquires.total == 160'

job 2 "" "$programs/mpi_counted" || fail "again: $(cat "$work/err")"
one_file "the next job"
says "the next job" 'r.ranks == 2 and r.acquires.total == 160'

# Another run stays apart from the first, in any directory.
ranks 2 "$pinion" run --device pin --log "$work/other" -- "$programs/mpi_counted" >"$work/out" 2>"$work/err" ||
  fail "the other run: $(cat "$work/err")"
"$pinion" report "$logs" "$work/other" >"$work/out" 2>"$work/err"
status=$?
[ $status -eq 2 ] && grep -q "^pinion report: two runs: .*$logs/.* and .*$work/other/" "$work/err" ||
  fail "two runs: status $status: $(cat "$work/err")"
# Two jobs of one `pinion run` are one.
rm -rf "$work/both"
"$pinion" run --device pin --log "$work/both" -- sh -c '"$@" & "$@"; wait' - "${launch[@]}" -n 2 "$programs/mpi_counted" \
  >"$work/out" 2>"$work/err"
grep -q "two runs" "$work/err" && fail "two jobs of one run: $(cat "$work/err")"

# A job that runs is reported as running.
rm -rf "$logs"
timeout 120 "${launch[@]}" -n 2 "$pinion" run --device pin --log "$logs" -- "$examples/halo" --steps 1000000 >"$work/out" 2>"$work/err" &
job=$!
# until_report WORDS: the report must contain them within 30 s.
until_report() {
  for _ in $(seq 300); do
    "$pinion" report "$logs" >"$work/report" 2>&1 && grep -q "$1" "$work/report" && return
    sleep 0.1
  done
  fail "not said: $1: $(cat "$work/report")"
}
until_report "2 ranks have not ended: the job still writes to its log"
kill $job
wait $job 2>/dev/null
until_report "2 ranks did not end in order"

# Metrics of a job that runs: written while it does, and after its end.
metric() { grep -qE "^pinion_$1\{.*rank=\"$2\".*\} $3\$" "$work/metrics.prom" 2>/dev/null; }
timeout 120 "$pinion" run --device pin --prometheus "$work/metrics.prom" -- "${launch[@]}" -n 2 \
  "$examples/halo" --steps 1000000 >"$work/out" 2>"$work/err" &
job=$!
eventually metric transfers_total 1 '[1-9][0-9]*' && metric running 1 1 && metric registered_peak_bytes 1 '[1-9][0-9.e+]*' ||
  fail "metrics of a running job: $(cat "$work/err" "$work/metrics.prom")"
kill $job
wait $job 2>/dev/null
timeout 120 "$pinion" run --device pin --prometheus "$work/metrics.prom" -- "${launch[@]}" -n 2 \
  "$examples/halo" --steps 5 >"$work/out" 2>"$work/err"
metric running 0 0 && metric running 1 0 || fail "metrics after the end: $(cat "$work/err" "$work/metrics.prom")"
"$pinion" run --prometheus "$work/no/metrics.prom" -- touch "$work/started" 2>"$work/err"
[ $? -eq 2 ] && [ ! -e "$work/started" ] || fail "a bad path: $(cat "$work/err")"
ranks 1 "$pinion" run --prometheus "$work/metrics.prom" -- true >"$work/out" 2>"$work/err"
grep -q -- '--prometheus: for `pinion run` around a launcher' "$work/err" || fail "inside a launcher: $(cat "$work/err")"

# A log without room for events lacks the figures that need them, instead of showing 0.
mkdir "$work/full"
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=384k pinion-test "$work/full" 2>/dev/null; then
  ranks 2 "$pinion" run --device pin --minimum-gain 0 --tune threshold=1 --log "$work/full" -- "$examples/halo" --steps 100 >"$work/out" 2>"$work/err" ||
    fail "full file system: $(cat "$work/err")"
  "$pinion" report "$work/full" >"$work/report" 2>&1
  umount "$work/full"
  grep -q "events are missing (no space left where the log is; rank [01] " "$work/report" || fail "full file system: $(cat "$work/report")"
  grep -q "oracle  *0 B" "$work/report" && fail "full file system: $(cat "$work/report")"
fi

[ "$failures" -eq 0 ]
