#!/usr/bin/env bash
# An acquire that hits and its release, by the C API, in instructions: exact where times vary. They are counted by
# callgrind while the program's loop runs, for ordinary memory, for a block of the arena, and on a device whose memory forked children
# lack: without hints each hit asks the index. Bounds are the counts that were measured (165, 148, 629: the loop of the caller takes
# 16 of them) and 15 % more, for other compilers: Ubuntu's GCC 13 hardens code by default and takes 10 % more.
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

static int take(void* own, void* address, size_t bytes, unsigned access, struct pinion_registration* made) {
  return (void)own, (void)address, (void)bytes, (void)access, (void)made, 0;
}
static int leave(void* own, uint64_t handle) { return (void)own, (void)handle, 0; }

/* A device of the program's own, with these flags. */
static int open_own(const char* flags, pinion_domain** domain) {
  static struct pinion_device_operations own = {sizeof own, PINION_DEVICE_VERSION};
  own.register_memory = take;
  own.deregister_memory = leave;
  own.flags = (unsigned)atoi(flags);
  return pinion_domain_open_operations(&own, domain);
}

int main(int argc, char** argv) {
  pinion_domain* domain = NULL;
  void* buffer = getenv("LD_PRELOAD") ? malloc(kBytes) : ordinary;
  int failed = argc < 2 || pinion_start("retention=leave-pinned,device=pin,monitor=brackets") ||
               (argc == 3 ? open_own(argv[2], &domain) : pinion_domain_open(NULL, NULL, &domain)) ||
               hot(domain, buffer, atol(argv[1])) || pinion_domain_close(domain) || pinion_stop();
  if (failed) fprintf(stderr, "hot: %s\n", pinion_last_error());
  return failed;
}
EOF
gcc -std=gnu99 -O2 -I"$source/include" "$work/hot.c" -o "$work/hot" -L"$build/lib" -lpinion -Wl,-rpath,"$build/lib" ||
  fail "the program does not build"

flags=() # of the device, where it is one of the program's own
# instructions ROUNDS [VARIABLE=VALUE...]
instructions() {
  timeout 240 env "${@:2}" valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect=hot \
    "$work/hot" "$1" ${flags[@]+"${flags[@]}"} 2>&1 | awk '/Collected/ {print $4}'
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
flags=(8) # PINION_DEVICE_HIDES_FROM_CHILDREN
within 725 "acquire and release on a device whose memory children lack"

[ "$failures" -eq 0 ]
