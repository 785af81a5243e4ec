#!/usr/bin/env bash
# Under other allocators: every page that jemalloc, mimalloc, tcmalloc or glibc gives back takes its registration
# with it, by any system call of the allocator. Where that is invisible, Pinion reports it, and each
# registration goes with its transfer.
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)

cat >"$work/blocks.c" <<'END'
#define _GNU_SOURCE
#include <pinion/pinion.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pinion_domain* domain;
static int lost, kept, stale;
static int rounds; /* for each of four threads */

static int use(char* begin, size_t bytes) {
  pinion_lease lease;
  return pinion_acquire(domain, begin, bytes, PINION_ACCESS_WRITE, &lease) || pinion_release(&lease);
}

/* The block that was here has been given up by the program. */
static void look(char* page) {
  unsigned char resident = 0;
  const int gone = mincore(page, 1, &resident) != 0 || !(resident & 1);
  pinion_lease lease;
  const int hit = pinion_try_acquire(domain, page, 1, PINION_ACCESS_READ, &lease) == 0;
  if (hit) pinion_release(&lease);
  if (gone) ++lost;
  if (hit) ++kept;
  if (gone && hit) ++stale;
}

static char* middle(char* block, size_t bytes) {
  return (char*)(((uintptr_t)block + bytes / 2) & ~(uintptr_t)4095);
}

static void* work(void* failed) {
  for (int round = 0; round < rounds; ++round) {
    for (size_t bytes = 256 << 10; bytes <= 64 << 20; bytes *= 4) {
      char* block = malloc(bytes);
      memset(block, 1, bytes);
      if (use(block, bytes)) *(int*)failed = 1;
      char* page = middle(block, bytes);
      char* grown = realloc(block, 2 * bytes);
      if (grown != block) look(page);
      memset(grown, 2, 2 * bytes);
      if (use(grown, 2 * bytes)) *(int*)failed = 2;
      page = middle(grown, 2 * bytes);
      free(grown);
      look(page);
    }
  }
  return 0;
}

int main(int argc, char** argv) {
  rounds = argc > 1 ? atoi(argv[1]) : 0;
  if (pinion_start("retention=leave-pinned,limit=1G") || pinion_domain_open(0, 0, &domain)) {
    fprintf(stderr, "%s\n", pinion_last_error());
    return 1;
  }
  int failed = 0;
  work(&failed);
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    pthread_create(&thread, 0, work, &failed);
    pthread_join(thread, 0);
  }
  /* The program's own calls, which some allocators put themselves in front of. */
  for (int i = 0; i < 8; ++i) {
    char* mapped = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (use(mapped, 1 << 20)) failed = 3;
    munmap(mapped, 1 << 20);
    look(mapped);
  }
  if (pinion_domain_close(domain) || pinion_stop()) failed = 4;
  printf("lost %d kept %d stale %d failed %d\n", lost, kept, stale, failed);
  return 0;
}
END
gcc -O1 -std=gnu11 -I"$source/include" "$work/blocks.c" -o "$work/blocks" -L"$build/lib" -lpinion -lpthread \
  -Wl,-rpath,"$build/lib" || exit 1

case ${PINION_TEST_SCALE:-1} in 1 | 0*) rounds=2 ;; *) rounds=4 ;; esac

# try NAME PRELOAD ENVIRONMENT...: an allocator in its default settings, then set to return memory at once.
try() {
  local name=$1 preload=$2 output
  shift 2
  output=$(env ${preload:+LD_PRELOAD="$preload"} "$@" "$work/blocks" $rounds 2>"$work/err") || fail "$name: status $?"
  echo "$name $*: $output"
  grep -q 'stale 0 failed 0$' <<<"$output" || fail "$name $*: $output"
  # 64 blocks and 8 mappings of the program, or more: some are given back for certain.
  [ "$(sed -E 's/lost ([0-9]+).*/\1/' <<<"$output")" -ge 8 ] || fail "$name $*: nothing was given back: $output"
  if [ -s "$work/err" ]; then
    echo "  $(cat "$work/err")"
    unwrapped "$work/err" | grep -q '^pinion: .*memory events cannot all be seen' || fail "$name $*: $(cat "$work/err")"
    grep -q 'kept 0 ' <<<"$output" || fail "$name $*: kept in spite of that: $output"
  fi
}

library() { /sbin/ldconfig -p | sed -nE "s|.* => (.*/$1)$|\1|p" | head -n 1; }

try glibc ""
try glibc "" MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=1G MALLOC_TRIM_THRESHOLD_=65536
for with in "" "$build/lib/libpinion-preload.so:"; do
  for allocator in jemalloc.so.2 mimalloc.so.2 tcmalloc_minimal.so.4; do
    path=$(library "lib$allocator")
    if [ -z "$path" ]; then
      echo "$allocator is not installed"
      continue
    fi
    case $allocator in
      jemalloc*) eager=MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0 ;;
      mimalloc*) eager=MIMALLOC_DECOMMIT_DELAY=0 ;;
      tcmalloc*) eager=TCMALLOC_AGGRESSIVE_DECOMMIT=1 ;;
    esac
    try "$allocator" "$with$path"
    try "$allocator" "$with$path" "$eager"
    LD_PRELOAD=$with$path "$build/bin/pinion" doctor >"$work/doctor" 2>&1 || fail "$allocator: doctor"
    one_line "$work/doctor" | grep -qE '(ok|warn) +memory events: .*munmap by syscall' || fail "$allocator: $(cat "$work/doctor")"
  done
done

exit $((failures > 0))
