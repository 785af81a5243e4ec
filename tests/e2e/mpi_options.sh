#!/usr/bin/env bash
# Parts that a user can leave out: recording in parts of the run, ranks, peers of the same node, the unused
# part of receives. And the origin of calls: tools above and below, call sites, spawned processes.
. "$(dirname "$0")/common.bash"

run() {
  under "$@" || fail "$*: status $?: $(cat "$work/out" "$work/err")"
  verified || fail "$*: $(cat "$work/out")"
  books_balance "$*"
}

run "" 2 "$programs/mpi_switched"
report_says "MPI_Pcontrol" 'r.acquires.total == 18'

run "--only-ranks 1" 2 "$programs/mpi_counted"
report_says "only rank 1" 'r.acquires.total == 80 and [rank.rank for rank in r.per_rank] == [1]'
run "--only-ranks 0:5-7" 2 "$programs/mpi_counted"
report_says "only rank 0" 'r.acquires.total == 80 and [rank.rank for rank in r.per_rank] == [0]'

# All ranks are on one node here: there is nobody left.
run "--tune intranode=off" 2 "$programs/mpi_counted"
report_says "intranode=off" 'r.acquires.total == 0 and r.ranks == 2'
run "--tune intranode=off --tune threshold=1" 2 "$programs/mpi_collectives"
report_says "intranode=off, collectives" 'r.acquires.total == 0'
run "--tune intranode=off --tune threshold=1" 2 "$programs/mpi_onesided"
report_says "intranode=off, one-sided" 'r.acquires.total == 0'
run "--tune intranode=off" 2 "$programs/mpi_files" "$work/file"
report_says "intranode=off, files" 'r.acquires.total > 0'
# Ranks that Pinion leaves out take part where all have to.
run "--tune intranode=off --only-ranks 1" 2 "$programs/mpi_counted"
report_says "intranode=off, only rank 1" 'r.acquires.total == 0 and [rank.rank for rank in r.per_rank] == [1]'

# 40 KB of 4 MB arrive, in memory that is new each time: 5 ways to receive, 13 times each. Each way is learnt
# once; a message that is suddenly as long as its receive is leased late.
run "--retention on-demand --tune receives=posted" 2 "$programs/mpi_arrivals"
report_says "posted" '[rank.acquires.total for rank in r.per_rank] == [65, 65]'
posted=$(what_is 'sum(s.bytes for s in r.call_sites if s.call in ("receive", "irecv", "recv_init"))')
run "--retention on-demand --tune receives=arrived" 2 "$programs/mpi_arrivals"
report_says "arrived" 'r.per_rank[0].acquires.total == 65 and 65 < r.per_rank[1].acquires.total <= 65 + 5'
arrived=$(what_is 'sum(s.bytes for s in r.call_sites if s.call in ("receive", "irecv", "recv_init"))')
# Each way has 13 messages; the first and the last are all of 4 MB.
[ "$arrived" -lt $((posted / 4)) ] || fail "receives: $arrived bytes of $posted when posted"

# A tool of the profiling interface, above and below: its counts are those without Pinion, and Pinion's are
# unchanged too.
tool=$programs/libmpi_tool.so
ranks 2 env LD_PRELOAD="$tool" "$programs/mpi_counted" 2>&1 | sort >"$work/tool"
grep -q 'tool: rank 0: 20 sends' "$work/tool" || fail "the tool alone: $(cat "$work/tool")"
for order in "$tool:$preload" "$preload:$tool"; do
  rm -rf "$work/log"
  ranks 2 env LD_PRELOAD="$order" PINION="log=$work/log" "$programs/mpi_counted" 2>&1 | sort >"$work/out"
  cmp -s "$work/tool" "$work/out" || fail "$order: $(cat "$work/out")"
  report_says "$order" 'r.acquires.total == 160'
done

# Call sites are the program's: as many as it has, with any layer between it and MPI.
for name in counted counted_mpif counted_f90 counted_f08; do
  [ -x "$programs/mpi_$name" ] || continue
  run "--retention observe" 2 "$programs/mpi_$name"
  # Starting a request is one place and two calls: rank 0 sends, rank 1 receives.
  report_says "$name" 'len(r.call_sites) == 9 and all(site.acquires in (10, 20, 40) for site in r.call_sites)'
  report_says "$name" 'len({s.name.split(" < ")[0] for s in r.call_sites}) == 8'
  report_says "$name: begins with the program" 'all(s.name.startswith("mpi_counted") for s in r.call_sites)'
done

# Spawned processes have logs of their own.
if ranks 1 "$programs/mpi_spawning" >"$work/out" 2>&1; then
  run "" 1 "$programs/mpi_spawning"
  report_says "spawned" 'r.ranks == 2 and r.acquires.total == 40'
fi

# Inside the launcher as well.
ranks 2 "$pinion" run --device pin --only-ranks 1 --log "$work/inside" -- "$programs/mpi_counted" >"$work/out" 2>"$work/err" ||
  fail "inside the launcher: $(cat "$work/err")"
[ "$(what_is 'r.acquires.total' "$work/inside")" = 80 ] || fail "inside the launcher: $(what_is r.acquires "$work/inside")"

# A rank whose options are invalid ends before its program starts.
ranks 2 "$pinion" run --limit 0.4 -- touch "$work/half-run" >"$work/out" 2>"$work/err" &&
  fail "a bad value inside the launcher: status 0"
grep -q "option limit: '0.4' is not valid" "$work/err" || fail "a bad value inside the launcher: $(cat "$work/err")"
[ ! -e "$work/half-run" ] || fail "a bad value inside the launcher: the program ran"

[ "$failures" -eq 0 ]
