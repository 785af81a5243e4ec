#!/usr/bin/env bash
# The added cost of a small message's call with Pinion, in instructions: exact, unlike times. One rank sends
# to itself, under callgrind, which counts while a case's function runs. A call may cost 20 ns more; the bound
# of 80 instructions is 18 ns on a core of 3 GHz that does no more than three in two cycles. Programs poll as
# fast as they can, so a poll may cost 16.
#
# A call whose buffer is registered already (`allreduce`) is counted under retention leave-pinned: the front's whole way
# of a lease. Its bound is the count that was measured (984) and one tenth more.
#
# Valgrind supports neither code patched at run time nor userfaultfd: memory events are left to brackets.
. "$(dirname "$0")/common.bash"
command -v valgrind >/dev/null || exit 77
program=$build/libexec/pinion/p2p-$family
[ -x "$program" ] || exit 77

# instructions CASE ROUNDS [NAME=VALUE...]
instructions() {
  local name=$1 rounds=$2
  shift 2
  timeout 240 env "$@" valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
    --toggle-collect="p2p_$name" "$program" 1 1 "$rounds" "$name" 2>&1 | awk '/Collected/ {print $4}'
}

# more CASE CALLS RETENTION: instructions that a call costs more with Pinion. The first rounds, with all that is done once, cancel out.
more() {
  local name=$1 calls=$2 few=100 many=600 sum=0 of
  for of in "" "LD_PRELOAD=$preload PINION=retention=$3,device=pin,monitor=brackets"; do
    # shellcheck disable=SC2086
    sum=$(($(instructions "$name" $many $of) - $(instructions "$name" $few $of) - sum))
  done
  echo $((sum / (calls * (many - few))))
}

for call in "window 33 80 observe" "sendrecv 1 80 observe" "self 3 80 observe" "poll 1 16 observe" \
  "allreduce 1 1080 leave-pinned"; do
  read -r name calls bound retention <<<"$call"
  count=$(more "$name" "$calls" "$retention")
  echo "$name: $count instructions a call"
  [ -n "$count" ] && [ "$count" -le $bound ] && [ "$count" -ge 0 ] || fail "$name: '$count' instructions more a call, not $bound"
done

[ "$failures" -eq 0 ]
