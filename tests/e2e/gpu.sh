#!/usr/bin/env bash
# Unchanged programs that copy between host memory and a GPU mean the same under Pinion, on a made-up driver
# (tests/support/made_up_cuda). With a GPU: tests/gpu/run.
source "$(dirname "$0")/script.bash"
pinion=$build/bin/pinion
programs=$build/tests/gpu
export LD_LIBRARY_PATH=$build/tests/made_up_cuda

# same_meaning OPTIONS...: of pinion run.
same_meaning() {
  "$pinion" run "$@" -- "$programs/meaning" >"$work/meaning.under" 2>"$work/errors" ||
    fail "meaning under $*: status $?: $(tail -1 "$work/meaning.under"); $(cat "$work/errors")"
  diff "$work/meaning.plain" "$work/meaning.under" >"$work/diff" || fail "meaning under $*: $(head -6 "$work/diff")"
}

# random THREADS ROAD OPTIONS...
random() {
  local threads=$1 road=$2
  shift 2
  local output
  output=$(PINION_GPU_ROAD=$road "$pinion" run "$@" -- "$programs/random_copies" --threads "$threads" --steps 3000 \
    --most 2M --seed "$threads" 2>&1) || fail "random copies, $threads threads, $*: status $?: $output"
  grep -q '^random_copies: verified$' <<<"$output" || fail "random copies, $threads threads, $*: $output"
}

"$programs/meaning" >"$work/meaning.plain" || fail "meaning without Pinion"
grep -q 'WRONG\|LOST' "$work/meaning.plain" && fail "meaning without Pinion: $(grep 'WRONG\|LOST' "$work/meaning.plain")"
same_meaning
same_meaning --retention leave-pinned
same_meaning --cuda stage
random 1 symbols
random 4 proc
random 8 symbols --retention leave-pinned
random 4 symbols --retention lru --limit 4M
random 4 proc --cuda stage
output=$("$pinion" run -- "$build/bin/examples/gpu_copy" 4 8 2>&1) || fail "gpu_copy: status $?: $output"
grep -q '^gpu_copy: verified$' <<<"$output" || fail "gpu_copy: $output"

[ $failures -eq 0 ]
