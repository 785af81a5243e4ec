#!/usr/bin/env bash
# An acquire that hits and its release, by the C API, in instructions: exact where times vary. They are counted by
# callgrind while the program's loop runs, for ordinary memory, for a block of the arena, and on a device whose memory forked children
# lack: without hints each hit asks the index. Bounds are the counts that were measured (165, 146, 581: the loop of the caller takes
# 16 of them) and 15 % more, for other compilers: Ubuntu's GCC 13 hardens code by default and takes 10 % more.
#
# Valgrind lacks code patched at run time and userfaultfd: memory events are left to brackets.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
command -v valgrind >/dev/null || exit 77

gcc -std=gnu99 -O2 -I"$source/include" "$source/tests/e2e/operations.c" -o "$work/operations" -L"$build/lib" -lpinion \
  -Wl,-rpath,"$build/lib" || fail "the program does not build"

flags=() # of the device, where it is one of the program's own
rounds=5000
# within BOUND NAME [VARIABLE=VALUE...]: of the second batch; the first has all that is done once.
within() {
  local count
  rm -f "$work"/n.*
  timeout 240 env "${@:3}" valgrind --tool=callgrind --callgrind-out-file="$work/n" --collect-atstart=no --toggle-collect=op_lease \
    --dump-after=op_lease "$work/operations" hit $rounds "retention=leave-pinned,device=pin,monitor=brackets" \
    ${flags[@]+"${flags[@]}"} >"$work/out" 2>&1 || cat "$work/out"
  count=$(($(sed -n 's/^totals: //p' "$work/n.2") / rounds))
  echo "$2: $count instructions"
  [ "$count" -gt 0 ] && [ "$count" -le "$1" ] || fail "$2: '$count' instructions, not $1"
}
within 190 "acquire and release"
within 170 "acquire and release in the arena" LD_PRELOAD="$build/lib/libpinion-heap.so" PINION=preregister=64M
flags=(8) # PINION_DEVICE_HIDES_FROM_CHILDREN
within 670 "acquire and release on a device whose memory children lack"

[ "$failures" -eq 0 ]
