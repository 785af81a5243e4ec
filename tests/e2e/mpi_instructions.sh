#!/usr/bin/env bash
# The added cost of a small message's call with Pinion, in instructions: exact, unlike times. One rank sends
# to itself, under callgrind, which counts while a case's function runs. A call may cost 20 ns more; the bound
# of 80 instructions is 18 ns on a core of 3 GHz that does no more than three in two cycles. Programs poll as
# fast as they can, so a poll may cost 16.
#
# Calls whose buffers are registered already are counted under retention leave-pinned: the front's whole way of a lease.
# `large-sends` (MPI_Irecv, MPI_Send, MPI_Wait) and `large-receives` (MPI_Isend, MPI_Recv, MPI_Wait) are means of the three.
# The bound is the count that was measured (319) and one tenth more. So is that of a type of four blocks with gaps
# between (`gaps`, 2161), which takes four leases.
hot=351
#
# Valgrind lacks code patched at run time and userfaultfd: memory events are left to brackets.
. "$(dirname "$0")/common.bash"
command -v valgrind >/dev/null || exit 77
program=$build/libexec/pinion/p2p-$family
[ -x "$program" ] || exit 77

rounds=500
# instructions ARGUMENT NAMES [NAME=VALUE...]: of the second batch of each of these cases of bench/programs/p2p.cpp, a line each. The
# first batch has all that is done once. Valgrind writes a file as each batch ends.
instructions() {
  local argument=$1 batch name ends=()
  for name in $2; do ends+=("--dump-after=p2p_${name//-/_}"); done
  shift 2
  rm -rf "$work/batch" && mkdir "$work/batch"
  # shellcheck disable=SC2086
  timeout 240 env "$@" valgrind --tool=callgrind --callgrind-out-file="$work/batch/n" --collect-atstart=no \
    --toggle-collect='p2p_*' "${ends[@]}" "$program" 1 2 $rounds $argument >"$work/out" 2>&1 || cat "$work/out" >&2
  for ((batch = 2; ; batch += 2)); do
    [ -e "$work/batch/n.$batch" ] || break
    sed -n 's/^totals: //p' "$work/batch/n.$batch"
  done
}

# compare RETENTION ARGUMENT NAME:CALLS:BOUND...: the extra cost of a call with Pinion, of each case in the order of bench/programs/p2p.cpp.
compare() {
  local retention=$1 argument=$2 plain with i names name calls bound count
  shift 2
  names="${*%%:*}"
  mapfile -t plain < <(instructions "$argument" "$names")
  mapfile -t with < <(instructions "$argument" "$names" LD_PRELOAD="$preload" PINION="retention=$retention,device=pin,monitor=brackets")
  [ ${#plain[@]} -eq $# ] && [ ${#with[@]} -eq $# ] || { fail "$retention: counted ${#plain[@]} and ${#with[@]} cases of $#"; return; }
  for ((i = 0; i < ${#plain[@]}; ++i)); do
    IFS=: read -r name calls bound <<<"$1"
    shift
    count=$(((with[i] - plain[i]) / (calls * rounds)))
    echo "$name: $count instructions a call of $((plain[i] / (calls * rounds)))"
    [ "${plain[i]}" -gt 0 ] && [ $count -le "$bound" ] && [ $count -ge 0 ] || fail "$name: $count instructions more a call, not $bound"
  done
}

compare observe "" window:33:80 sendrecv:1:80 self:3:80 poll:1:16
compare leave-pinned allreduce allreduce:1:$hot
compare leave-pinned large-sends large-sends:3:$hot
compare leave-pinned large-receives large-receives:3:$hot
compare leave-pinned gaps gaps:1:2377

[ "$failures" -eq 0 ]
