#!/usr/bin/env bash
# Swapping under a limit, live: loops over more buffers than a rank may register find them registered ahead, where retention
# lru with the same size misses every time. Counts, no times; but the helper must wake in time, so one of three runs has to
# show it. Under Open MPI alone: MPICH's ranks spin while they wait, so where they fill the cores the helper wakes late,
# limited and unlimited. The time budget is off: ranks that fill the cores leave the helper too little for a swap each use.
only_family=openmpi
heavy_session=yes
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"

# found_none LIMIT RETENTION PATTERN TURNS: acquires of both ranks that missed.
found_none() {
  under "--retention $2 --device emulated --nic connectx --limit $1 --tune lru-size=$1 --time-budget off" 2 \
    "$work/heavy" "$examples/play" "$3" --turns "$4" --compute sleep || fail "$3 under $2: $(cat "$work/err")"
  verified || fail "$3 under $2: $(cat "$work/out" "$work/err")"
  books_balance "$3 under $2"
  report_says "$3 under $2" 'all(rank.registered_bytes.peak <= r.limit_bytes for rank in r.per_rank)'
  none=$(what_is 'r.acquires.misses + r.acquires.waits + r.acquires.bounced')
}

# swaps PATTERN BUFFERS LIMIT TURNS. Without the first two uses of each buffer, of which the helper's first one misses, lru's
# both.
swaps() {
  local pattern=$1 buffers=$2 limit=$3 turns=$4 lru
  found_none "$limit" lru "$pattern" "$turns"
  lru=$((none - 2 * 2 * buffers))
  [ $lru -gt 50 ] || fail "$pattern under lru: $none found no registration"
  for _ in 1 2 3; do
    found_none "$limit" helper "$pattern" "$turns"
    none=$((none - 2 * buffers))
    echo "$pattern, limit $limit: lru $lru, helper $none"
    [ $((10 * none)) -gt $lru ] || return 0
  done
  fail "$pattern, limit $limit: lru $lru, helper $none"
}

# Room for one buffer more than the oracle holds, and half-way from there to all.
swaps loop3:1M:2 3 2M 120
swaps loop5:1M:2 5 2M 100
swaps loop5:1M:2 5 3584K 100

[ "$failures" -eq 0 ]
