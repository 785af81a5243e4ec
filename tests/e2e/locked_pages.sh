#!/usr/bin/env bash
# Idle registrations make way for what the program itself locks by mlock, mlock2 and mlockall: where io_uring
# is refused, device `pin` locks pages too.
. "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo "only root can become a user with a limit"; exit 77; }

cat >"$work/locks.cpp" <<'END'
#include <errno.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/process_status.h"
#include "support/system_call_filter.h"

enum { kMiB = 1 << 20 };

static void expect(int holds, const char* what) {
  if (holds) return;
  printf("FAIL: %s (%s)\n", what, strerror(errno));
  exit(1);
}
static long locked_mib() { return of_process_status("VmLck:") >> 10; }
static char* memory(size_t bytes) {
  void* at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(at != MAP_FAILED, "memory");
  return (char*)memset(at, 1, bytes);
}

static pinion_domain* domain;
static char* kept;
static void keep_six_mib() {
  pinion_lease lease;
  expect(pinion_acquire(domain, kept, 6 * kMiB, PINION_ACCESS_WRITE, &lease) == 0, pinion_last_error());
  pinion_release(&lease);
  expect(locked_mib() == 6, "a registration that stays locked");
}

int main(int count, char** words) {
  const unsigned user = (unsigned)atoi(words[count - 1]);
  expect(pinion::test::refuse_system_call(SYS_io_uring_setup, EPERM), "a filter of system calls");
  const struct rlimit limit = {8 * kMiB, 8 * kMiB};
  expect(setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setgid(user) == 0 && setuid(user) == 0, "another user");
  expect(pinion_start("retention=leave-pinned,device=pin") == 0, pinion_last_error());
  expect(pinion_domain_open(NULL, NULL, &domain) == 0, pinion_last_error());
  kept = memory(6 * kMiB);
  char* const own = memory(16 * kMiB);

  keep_six_mib();
  expect(mlock(own, 4 * kMiB) == 0, "mlock");
  expect(locked_mib() == 4, "mlock alone");
  expect(munlock(own, 4 * kMiB) == 0, "munlock");

  keep_six_mib();
  expect(mlock2(own, 4 * kMiB, 0) == 0, "mlock2");
  expect(munlock(own, 4 * kMiB) == 0, "munlock");

  /* As without Pinion: more than the limit, and memory that is not there. The latter needs no room. */
  keep_six_mib();
  errno = 0;
  expect(mlock(own, 16 * kMiB) == -1 && errno == ENOMEM, "more than the limit");
  keep_six_mib();
  expect(munmap(own, 4 * kMiB) == 0, "munmap");
  errno = 0;
  expect(mlock(own, kMiB) == -1 && errno == ENOMEM, "no memory there");
  expect(locked_mib() == 6, "registrations stay where they are not in the way");
  errno = 0;
  expect(mlockall(MCL_CURRENT) == -1 && errno == ENOMEM, "mlockall beyond the limit");
  puts("verified");
  return 0;
}
END
g++ -std=c++20 -O1 -I"$source/include" -I"$source/tests" "$work/locks.cpp" -o "$work/locks" -L"$build/lib" -lpinion -Wl,-rpath,"$build/lib" || fail "it does not build"
chmod 755 "$work"
output=$(LD_PRELOAD=$build/lib/libpinion-preload.so "$work/locks" $((100000 + $$ % 100000)) 2>&1) || fail "status $?: $output"
finds -x verified <<<"$output" || fail "$output"

[ $failures -eq 0 ]
