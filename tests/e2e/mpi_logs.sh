#!/usr/bin/env bash
# One log file for all ranks of a job on a node, whatever stands between them and their launcher; the next job in the same
# directory takes its place.
. "$(dirname "$0")/common.bash"

logs=$work/logs
# job N OPTIONS COMMAND...: a job whose ranks set Pinion up themselves.
job() {
  local n=$1 options=$2
  shift 2
  # shellcheck disable=SC2086
  ranks "$n" "$pinion" run $options --log "$logs" -- "$@" >"$work/out" 2>"$work/err"
}
one_file() {
  local files=("$logs"/*)
  [ ${#files[@]} -eq 1 ] || fail "$1: ${#files[@]} files: ${files[*]}"
}
says() {
  local answer
  answer=$(what_is "$2" "$logs")
  [ "$answer" = True ] || fail "$1: not so: $2 ($answer): $(what_is r.per_rank "$logs")"
}

job 8 "--threshold 1" "$examples/halo" --steps 5 || fail "8 ranks: $(cat "$work/err")"
one_file "8 ranks"
says "8 ranks" '[rank.rank for rank in r.per_rank] == list(range(8)) and all(rank.complete for rank in r.per_rank)'

# Wrappers have the rank too.
ranks 2 sh -c "env sh -c '$pinion run --log $logs -- $programs/mpi_counted; true'" >"$work/out" 2>"$work/err" ||
  fail "wrapped: $(cat "$work/err")"
one_file "wrapped"
says "wrapped" 'r.ranks == 2 and r.acquires.total == 160'

job 2 "" "$programs/mpi_counted" || fail "again: $(cat "$work/err")"
one_file "the next job"
says "the next job" 'r.ranks == 2 and r.acquires.total == 160'

[ "$failures" -eq 0 ]
