#!/usr/bin/env bash
# An acquire that hits and its release, by the C API, in instructions: exact where times vary. They are counted by
# callgrind while the program's loop runs, for ordinary memory and for a block of the arena. Bounds are the counts that were
# measured (165, 148: the loop of the caller takes 16 of them) and 15 % more, for other compilers: Ubuntu's GCC 13 hardens code by default and takes 10 % more.
#
# Valgrind lacks code patched at run time and userfaultfd: memory events are left to brackets.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
command -v valgrind >/dev/null || exit 77

cat >"$work/hot.c" <<'EOF'
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 1 << 16 };
static char ordinary[kBytes];

__attribute__((noinline)) int hot(pinion_domain* domain, void* buffer, long rounds) {
  int failed = 0;
  for (long i = 0; i < rounds; ++i) {
    pinion_lease lease;
    failed |= pinion_acquire(domain, buffer, kBytes, PINION_ACCESS_WRITE, &lease);
    failed |= pinion_release(&lease);
  }
  return failed;
}

int main(int argc, char** argv) {
  pinion_domain* domain = NULL;
  void* buffer = getenv("LD_PRELOAD") ? malloc(kBytes) : ordinary;
  int failed = argc != 2 || pinion_start("retention=leave-pinned,device=pin,monitor=brackets") ||
               pinion_domain_open(NULL, NULL, &domain) || hot(domain, buffer, atol(argv[1])) ||
               pinion_domain_close(domain) || pinion_stop();
  if (failed) fprintf(stderr, "hot: %s\n", pinion_last_error());
  return failed;
}
EOF
gcc -std=gnu99 -O2 -I"$source/include" "$work/hot.c" -o "$work/hot" -L"$build/lib" -lpinion -Wl,-rpath,"$build/lib" ||
  fail "the program does not build"

# instructions ROUNDS [VARIABLE=VALUE...]
instructions() {
  timeout 240 env "${@:2}" valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect=hot \
    "$work/hot" "$1" 2>&1 | awk '/Collected/ {print $4}'
}

# within BOUND NAME [VARIABLE=VALUE...]: the first rounds, with all that is done once, cancel out.
within() {
  local few=1000 many=6000 count
  count=$((($(instructions $many "${@:3}") - $(instructions $few "${@:3}")) / (many - few)))
  echo "$2: $count instructions"
  [ "$count" -gt 0 ] && [ "$count" -le "$1" ] || fail "$2: '$count' instructions, not $1"
}
within 190 "acquire and release"
within 170 "acquire and release in the arena" LD_PRELOAD="$build/lib/libpinion-heap.so" PINION=preregister=64M

[ "$failures" -eq 0 ]
