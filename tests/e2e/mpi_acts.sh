#!/usr/bin/env bash
# MPI programs by default: measured where nothing registers with a NIC; the memory and cost of each strategy
# come from the run's own log.
. "$(dirname "$0")/common.bash"
device=auto

# measured WHAT OPTIONS: nothing was registered, and the report states it.
measured() {
  under "$2" 2 "$programs/mpi_counted" || fail "$1: status $?: $(cat "$work/err")"
  verified || fail "$1: $(cat "$work/out")"
  [ "$(grep -c '^pinion: Pinion only measured: no NIC registers here' "$work/err")" -eq 1 ] || fail "$1: $(cat "$work/err")"
  books_balance "$1"
  report_says "$1" '(r.acts == "measured" and r.retention == "observe" and r.registrations == 0 and r.registered_bytes.peak == 0
    and r.acquires.observed == r.acquires.total == 160)'
  report_says "$1" '[row.retention for row in r.strategies.rows] == ["on-demand", "leave-pinned", "lru", "helper"]'
  # Leave-pinned, simulated, is the union of the transferred memory; every other strategy holds at most that.
  # The ranks' times may shift a little.
  report_says "$1" '(all(row.acquires.total == 160 for row in r.strategies.rows) and
    .9 < r.strategies.rows[1].registered_bytes.peak / r.registered_bytes.leave_pinned_peak < 1.1 and
    all(row.registered_bytes.peak < 1.1 * r.registered_bytes.leave_pinned_peak for row in r.strategies.rows))'
  for row in on-demand leave-pinned helper; do
    grep -q "^pinion: *$row .*MiB\|^pinion: *$row .*KiB" "$work/err" || fail "$1: no row of $row: $(cat "$work/err")"
  done
}
export PINION_TEST_INFINIBAND=$work/none
measured "no device" ""
# An active port that the program does not use.
mkdir -p "$work/active/made0/ports/1" "$work/active/dev"
: >"$work/active/dev/uverbs0"
echo '4: ACTIVE' >"$work/active/made0/ports/1/state"
PINION_TEST_INFINIBAND=$work/active measured "a port that is not used" "--front auto --retention leave-pinned"
measured "front mpi" "--front mpi"

# UCX's cache goes off while MPI begins, and only then: its other users need it. What users set stands.
# cache WANTED MINE [NAME [LIBRARY]]: a setting in MPI_Init of a program with a port, and after it.
cache() {
  local name=${3:-MADE_UP_CACHE}
  ranks 2 env ${2:+$name=$2} MADE_UP_NAME="$name" PINION_TEST_INFINIBAND="$work/active" PINION= PINION_CACHES_OFF="mpi:$name=0" \
    UCX_WARN_UNUSED_ENV_VARS=n LD_PRELOAD="$preload:$programs/libmpi_tool.so${4:+:$4}" "$programs/mpi_counted" >"$work/out" 2>"$work/err" ||
    fail "cache: status $?: $(cat "$work/err")"
  [ "$(grep -c "^tool: cache $1$" "$work/err")" -eq 2 ] || fail "cache is not $1: $(cat "$work/err")"
}
cache "0, then unset" ""
cache "7, then 7" 7
# UCX warns of variables that it does not know: those of its InfiniBand part are set where that part has their names.
uct=$(ldconfig -p | sed -n 's/.*libuct\.so\.0.* => //p' | head -1)
if [ -n "$uct" ] && [ -e "$(dirname "$uct")/ucx/libuct_ib.so.0" ]; then
  cache "0, then unset" "" UCX_IB_MEM_REG_GROWTH "$uct"
  cache "unset, then unset" "" UCX_IB_MADE_UP "$uct"
  cp "$(realpath "$uct")" "$work/libuct.so.0" # one without parts
  cache "unset, then unset" "" UCX_IB_MEM_REG_GROWTH "$work/libuct.so.0"
else
  echo "skipped: no UCX with an InfiniBand part"
fi

# Inside the launcher: one line.
ranks 2 "$pinion" run -- "$programs/mpi_counted" >"$work/out" 2>"$work/err" || fail "inside: status $?"
verified && [ "$(grep -c '^pinion: rank 0 on .*: measured only: no NIC registers here' "$work/err")" -eq 1 ] || fail "inside: $(cat "$work/out" "$work/err")"

# An explicit device registers beside the MPI library, and the report states it.
under "--device pin" 2 "$programs/mpi_counted" || fail "pinned: $(cat "$work/err")"
report_says pinned 'r.acts == "pinned" and r.acquires.observed == 0 and r.registrations > 0 and r.strategies.nic == "recorded"'
grep -q "beside the MPI library's own registrations" "$work/err" || fail "pinned: $(cat "$work/err")"

# A comparison needs something that registers.
"$pinion" compare --retention leave-pinned --repeat 1 --log "$work/compared" -- "${launch[@]}" -n 2 "$programs/mpi_counted" \
  >"$work/out" 2>"$work/err" || fail "compare: $(cat "$work/err")"
tr '\n' ' ' <"$work/out" | grep -q 'Device: .*modelled.*no NIC registers here' || fail "compare: $(cat "$work/out")"

[ "$failures" -eq 0 ]
