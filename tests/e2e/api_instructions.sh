#!/usr/bin/env bash
# An acquire that hits and its release, by the C API, in instructions: exact where times are not. They are counted by
# callgrind while the program's loop runs. The bound is the count that was measured (485) and one tenth more, for other
# compilers.
#
# Valgrind supports neither code patched at run time nor userfaultfd: memory events are left to brackets.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
command -v valgrind >/dev/null || exit 77
bound=534

cat >"$work/hot.c" <<'EOF'
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char buffer[1 << 16];

__attribute__((noinline)) int hot(pinion_domain* domain, long rounds) {
  int failed = 0;
  for (long i = 0; i < rounds; ++i) {
    pinion_lease lease;
    failed |= pinion_acquire(domain, buffer, sizeof buffer, PINION_ACCESS_WRITE, &lease);
    failed |= pinion_release(&lease);
  }
  return failed;
}

int main(int argc, char** argv) {
  pinion_domain* domain = NULL;
  int failed = argc != 2 || pinion_start("retention=leave-pinned,device=pin,monitor=brackets") ||
               pinion_domain_open(NULL, NULL, &domain) || hot(domain, atol(argv[1])) ||
               pinion_domain_close(domain) || pinion_stop();
  if (failed) fprintf(stderr, "hot: %s\n", pinion_last_error());
  return failed;
}
EOF
gcc -std=gnu99 -O2 -I"$source/include" "$work/hot.c" -o "$work/hot" -L"$build/lib" -lpinion -Wl,-rpath,"$build/lib" ||
  fail "the program does not build"

# instructions ROUNDS
instructions() {
  timeout 240 valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect=hot \
    "$work/hot" "$1" 2>&1 | awk '/Collected/ {print $4}'
}

# The first rounds, with all that is done once, cancel out.
few=1000 many=6000
count=$((($(instructions $many) - $(instructions $few)) / (many - few)))
echo "acquire and release: $count instructions"
[ "$count" -gt 0 ] && [ "$count" -le "$bound" ] || fail "acquire and release: '$count' instructions, not $bound"

[ "$failures" -eq 0 ]
