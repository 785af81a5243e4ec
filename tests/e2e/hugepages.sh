#!/usr/bin/env bash
# Programs under `pinion run --hugepages`: results are the same, and large blocks lie in hugepages where the kernel has them.
only_family=openmpi
. "$(dirname "$0")/common.bash"

cat >"$work/family.cpp" <<'END'
// The whole allocation family, blocks of both allocators, threads and forks; contents are checked.
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

static void require(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "wrong: %s\n", what);
  _exit(1);
}
static bool is(const char* at, size_t bytes, char value) {
  for (size_t i = 0; i < bytes; ++i)
    if (at[i] != value) return false;
  return true;
}
static bool aligned(void* at, size_t alignment) { return (uintptr_t)at % alignment == 0; }

static void family(size_t n) {
  char* a = (char*)malloc(n);
  memset(a, 1, n);
  require(malloc_usable_size(a) >= n, "malloc_usable_size");
  char* z = (char*)calloc(n / 8, 8);
  require(is(z, n / 8 * 8, 0), "calloc");
  // A chain that crosses the threshold both ways.
  size_t before = n;
  for (size_t bytes : {n * 2, n * 40, n * 7, n / 3 + 1, n * 3, size_t(100), n * 25}) {
    a = (char*)realloc(a, bytes);
    require(is(a, before < bytes ? before : bytes, 1), "realloc");
    memset(a, 1, bytes);
    before = bytes;
  }
  z = (char*)reallocarray(z, n, 3);
  require(z && !reallocarray(z, SIZE_MAX / 2, 3) && !malloc(PTRDIFF_MAX) && !calloc(SIZE_MAX / 2, 3), "overflow");
  void* p = nullptr;
  require(posix_memalign(&p, 1 << 21, n) == 0 && aligned(p, 1 << 21), "posix_memalign");
  require(posix_memalign(&p, 24, n) != 0, "posix_memalign of a wrong alignment");
  void* others[] = {p, aligned_alloc(4096, n), memalign(64, n), valloc(n), pvalloc(n)};
  require(aligned(others[1], 4096) && aligned(others[3], 4096) && aligned(others[4], 4096), "alignment");
  for (void* block : others) memset(block, 2, n), free(block);
  char* by_new = new char[n];
  memset(by_new, 3, n);
  delete[] by_new;
  const std::align_val_t page{4096};
  void* by_aligned_new = ::operator new(n, page);
  memset(by_aligned_new, 3, n);
  ::operator delete(by_aligned_new, n, page);
  free(a), free(z), free(nullptr);
}

int main() {
  for (size_t n : {size_t(40), size_t(5000), size_t(33000), size_t(700000), size_t(9) << 20}) family(n);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([] {
    for (int round = 0; round < 20; ++round) family(20000 + 997 * round);
  });
  size_t kept = size_t(5) << 20;
  char* block = (char*)malloc(kept);
  memset(block, 7, kept);
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      require(is(block, kept, 7), "a child's block");
      memset(block, 8, kept);
      char* own = (char*)malloc(kept);
      memset(own, 9, kept);
      require(is(block, kept, 8), "a child's own block");
      _exit(0);
    }
    int status = 1;
    require(waitpid(child, &status, 0) == child && status == 0, "a child");
    require(is(block, kept, 7), "the parent's block");
  }
  for (std::thread& thread : threads) thread.join();
  std::map<int, std::string> strings;
  for (int i = 0; i < 1000; ++i) strings[i] = std::string(i * 100, 'x');
  require(strings[999].size() == 99900 && strings[999].back() == 'x', "C++ containers");
  puts("verified");
}
END
g++ -O1 -w -std=c++17 -fno-builtin -pthread "$work/family.cpp" -o "$work/family" || exit 1

thp=$(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null)
# Pinion's messages, on one line: it wraps its lines.
said() { sed 's/^pinion: //' "$work/err" | tr '\n' ' '; }
# placed NAME: the summary has the heap's line, with hugepages where the kernel has them.
placed() {
  grep -q '^pinion: .*with the hugepage heap: at most [0-9.]* [MG]iB' "$work/err" || { fail "$1: $(cat "$work/err")"; return; }
  case $thp in
    *'[never]'* | '') echo "$1: no transparent hugepages on this machine: their share goes unchecked" ;;
    *) said | grep -qE 'and [1-9][0-9.]* [MG]iB lay in hugepages' || fail "$1: none in hugepages: $(cat "$work/err")" ;;
  esac
}

library() { /sbin/ldconfig -p | sed -nE "s|.* => (.*/$1)$|\1|p" | head -n 1; }
for allocator in "" libjemalloc.so.2 libmimalloc.so.2 libtcmalloc_minimal.so.4; do
  path=${allocator:+$(library "$allocator")}
  [ -z "$allocator" ] || [ -n "$path" ] || { echo "$allocator is not installed"; continue; }
  LD_PRELOAD=$path to "$work/out" "$work/err" "$pinion" run --hugepages -- "$work/family" ||
    fail "before ${allocator:-glibc}: status $?: $(cat "$work/err")"
  verified || fail "before ${allocator:-glibc}: $(cat "$work/out")"
  placed "before ${allocator:-glibc}"
done

# Blocks end with all that the program left on them, and malloc_trim gives free memory back.
cat >"$work/left.c" <<'END'
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/process_status.h"

static const size_t whole = 8 << 20, part = 2 << 20;
static char* inner(char* block) { return (char*)(((uintptr_t)block + part) & ~(uintptr_t)(part - 1)); }
static int has_flag(void* at, const char* flag) {
  char line[512];
  unsigned long begin, end;
  int inside = 0, found = 0;
  FILE* smaps = fopen("/proc/self/smaps", "r");
  while (fgets(line, sizeof line, smaps))
    if (sscanf(line, "%lx-%lx ", &begin, &end) == 2 && strchr(line, '-'))
      inside = (uintptr_t)at >= begin && (uintptr_t)at < end;
    else if (inside && !strncmp(line, "VmFlags:", 8))
      found = strstr(line, flag) != NULL;
  fclose(smaps);
  return found;
}
enum how { by_name, by_number, protects, locks };
static void leave(enum how how, int advice, const char* flag) {
  char* block = malloc(whole);
  memset(block, 1, whole);
  int refused = 0;
  switch (how) {
    case by_name: refused = madvise(inner(block), part, advice); break;
    case by_number: refused = (int)syscall(SYS_madvise, inner(block), part, advice); break;
    case protects: refused = mprotect(inner(block), part, PROT_NONE); break;
    case locks: refused = mlock(inner(block), part); break;
  }
  free(block);
  if (refused) return;
  block = malloc(whole);
  if (has_flag(inner(block), flag)) printf("left:%s by way %d\n", flag, how);
  memset(block, 2, whole);
  const pid_t child = fork();
  if (child == 0) _exit(inner(block)[0] != 2);
  int status = 1;
  waitpid(child, &status, 0);
  if (status != 0) printf("a child after%s: status %d\n", flag, status);
  free(block);
}
int main() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // libc alone maps each of the large blocks
  for (int how = by_name; how <= by_number; ++how) {
    leave(how, MADV_DONTFORK, " dc");
    leave(how, MADV_WIPEONFORK, " wf");
    leave(how, MADV_DONTDUMP, " dd");
    leave(how, MADV_MERGEABLE, " mg");
    leave(how, MADV_RANDOM, " rr");
  }
  leave(protects, 0, " none");
  leave(locks, 0, " lo");
  enum { blocks = 200 };
  static char* block[blocks];
  for (int i = 0; i < blocks; ++i) memset(block[i] = malloc(1 << 20), 1, 1 << 20);
  for (int i = 0; i < blocks; ++i) free(block[i]);
  malloc_trim(0);
  const long resident_kib = of_process_status("VmRSS:");
  if (resident_kib > 64 << 10) printf("after malloc_trim %ld KiB are resident\n", resident_kib);
  puts("verified");
}
END
gcc -O1 -w -fno-builtin -I"$(dirname "$0")/.." "$work/left.c" -o "$work/left" || exit 1
for how in --hugepages "--preregister 512M"; do
  to "$work/out" "$work/err" "$pinion" run $how -- "$work/left" || fail "$how, what is left: status $?: $(cat "$work/err")"
  [ "$(cat "$work/out")" = verified ] || fail "$how, what is left: $(cat "$work/out")"
done

# Before an allocator of few functions, as those that look for faults are.
cat >"$work/few.c" <<'END'
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static _Alignas(64) char memory[64 << 20];
static size_t used;
void* malloc(size_t bytes) {
  size_t* at = (size_t*)(memory + __atomic_fetch_add(&used, (bytes + 127) & ~(size_t)63, __ATOMIC_RELAXED));
  if ((char*)at + bytes + 64 > memory + sizeof memory) return NULL;
  *at = bytes;
  return at + 8;
}
void free(void* block) {}
void* calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void* realloc(void* block, size_t bytes) {
  char* made = malloc(bytes);
  const size_t before = block ? ((size_t*)block)[-8] : 0;
  return made && before ? memcpy(made, block, before < bytes ? before : bytes) : made;
}
END
cat >"$work/grown.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main() {
  char* block = NULL;
  for (size_t bytes = 1; bytes <= 8 << 20; bytes *= 2) {
    block = realloc(block, bytes);
    memset(block + bytes / 2, 7, bytes - bytes / 2);
    for (size_t i = 0; i < bytes; ++i)
      if (block[i] != 7) return 1;
  }
  char* large = malloc(1 << 20);
  memset(large, 8, 1 << 20);
  free(realloc(large, 100));
  free(block);
  puts("verified");
}
END
gcc -O1 -w -fno-builtin -fPIC -shared "$work/few.c" -o "$work/libfew.so" && gcc -O1 -w -fno-builtin "$work/grown.c" -o "$work/grown" || exit 1
to "$work/out" "$work/err" "$pinion" run --hugepages -- sh -c \
  'LD_PRELOAD="$LD_PRELOAD $2" exec "$1"' sh "$work/grown" "$work/libfew.so" || fail "few functions: status $?: $(cat "$work/err")"
verified || fail "few functions: $(cat "$work/out")"

# Blocks are private memory to each system call, whether a hook sees it or not, and beside reserved hugepages too, where this
# user may have some for a moment.
cat >"$work/cleared.c" <<'END'
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { page = 4096, guard_install = 102, guard_remove = 103, ways = 3 };
static const char* names[ways] = {"by name", "by own code", "by process_madvise"};
static int self;
static long own_call(long number, long a, long b, long c, long d, long e) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
  return result;
}
static int advise(int way, char* at, size_t bytes, int advice) {
  struct iovec part = {at, bytes};
  switch (way) {
    case 0: return madvise(at, bytes, advice);
    case 1: return own_call(SYS_madvise, (long)at, bytes, advice, 0, 0) < 0;
    default: return own_call(SYS_process_madvise, self, (long)&part, 1, advice, 0) < 0;
  }
}
static int faults(char* at) {
  const pid_t child = fork();
  if (child == 0) _exit(*(volatile char*)at == 99);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}
static char* page_of(char* block) { return (char*)(((uintptr_t)block + page - 1) & ~(uintptr_t)(page - 1)); }
static void clear(size_t whole, size_t offset, size_t bytes, int way) {
  char *block = malloc(whole), *at = page_of(block) + offset;
  memset(block, 7, whole);
  const int refused = advise(way, at, bytes, MADV_DONTNEED);
  for (size_t i = 0; i < bytes; i += page)
    if (!refused && at[i] != 0) {
      printf("%zu of %zu bytes from %zu on, %s: old contents\n", bytes, whole, offset, names[way]);
      break;
    }
  if (refused && way != 2) printf("%zu of %zu bytes from %zu on, %s: refused\n", bytes, whole, offset, names[way]);
  if (at[-(long)page] != 7 || at[bytes] != 7) printf("%zu of %zu bytes, %s: more is gone\n", bytes, whole, names[way]);
  free(block);
}
static void guard(size_t whole, int way) {
  char *block = malloc(whole), *at = page_of(block) + page;
  memset(block, 7, whole);
  if (advise(way, at, page, guard_install) == 0) {
    if (!faults(at)) printf("guard pages %s: none\n", names[way]);
    if (advise(way, at, page, guard_remove) != 0 || *at != 0) printf("guard pages %s: old contents\n", names[way]);
  }
  if (mprotect(at, page, PROT_NONE) != 0 || !faults(at)) puts("mprotect of a page: refused");
  mprotect(at, page, PROT_READ | PROT_WRITE);
  free(block);
}
int main() {
  static const size_t sizes[] = {64 << 10, 1 << 20, 6 << 20};
  self = syscall(SYS_pidfd_open, getpid(), 0);
  mallopt(M_MMAP_THRESHOLD, 32 << 10);
  for (int way = 0; way < ways; ++way)
    for (int i = 0; i < 3; ++i) {
      for (size_t offset = page; offset <= sizes[i] / 4; offset *= 2)
        for (size_t bytes = page; offset + bytes <= sizes[i] - 4 * page; bytes *= 2) clear(sizes[i], offset, bytes, way);
      guard(sizes[i], way);
    }
  puts("verified");
}
END
gcc -O1 -w -fno-builtin "$work/cleared.c" -o "$work/cleared" || exit 1
stay_private() {
  for how in --hugepages "--preregister 512M"; do
    # shellcheck disable=SC2086
    to "$work/out" "$work/err" "$pinion" run $how -- "$work/cleared" || fail "$how, $1: status $?: $(cat "$work/err")"
    [ "$(cat "$work/out")" = verified ] || fail "$how, $1: $(head -20 "$work/out")"
  done
}
stay_private "without reserved hugepages"
pool=/proc/sys/vm/nr_hugepages
had=$(cat $pool 2>/dev/null)
if [ "$had" = 0 ] && echo 12 2>/dev/null >$pool && [ "$(cat $pool)" = 12 ]; then
  stay_private "beside reserved hugepages"
  [ "$(sed -n 's/HugePages_Free: *//p' /proc/meminfo)" = 12 ] || fail "reserved hugepages were taken"
  echo 0 >$pool
else
  echo "no hugepages can be reserved here: the pool goes untried"
fi

# Batch systems limit addresses: after many blocks have gone, threads get stacks again.
cat >"$work/limited.c" <<'END'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most = 4096, bytes = 1 << 20 };
static char* blocks[most];
static void* run(void* block) { return block; }

int main() {
  int count = 0;
  while (count < most && (blocks[count] = malloc(bytes))) memset(blocks[count], count, 8), ++count;
  if (count == most) return 3;
  for (int i = 0; i < count / 2; ++i) {
    if (blocks[i][7] != (char)i) return 4;
    free(blocks[i]);
  }
  for (int i = 0; i < 8; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL)) return 5;
    if (pthread_join(thread, NULL)) return 6;
  }
  puts("verified");
}
END
gcc -O1 -w -fno-builtin -pthread "$work/limited.c" -o "$work/limited" || exit 1
to "$work/out" "$work/err" "$pinion" run --hugepages -- sh -c 'ulimit -v 1000000; exec "$1"' sh "$work/limited" ||
  fail "limited addresses: status $?: $(cat "$work/err")"
verified || fail "limited addresses: $(cat "$work/out")"

# The program sets such a limit itself, after blocks have gone.
cat >"$work/limits_itself.c" <<'END'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static void* nothing(void* argument) { return argument; }
int main(void) {
  char line[256];
  unsigned long kib = 0;
  pthread_t thread;
  char* blocks[100];
  for (int i = 0; i < 100; ++i) blocks[i] = memset(malloc(1 << 20), 1, 1 << 20);
  FILE* status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status)) sscanf(line, "VmSize: %lu", &kib);
  fclose(status);
  struct rlimit limit = {(kib + (256 << 10)) << 10, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit)) return 2;
  for (int i = 0; i < 100; ++i) free(blocks[i]);
  for (int round = 0; round < 3; ++round) {
    int count = 0;
    for (; count < 100 && (blocks[count] = malloc(8 << 20)); ++count) memset(blocks[count], 1, 8 << 20);
    for (int i = 0; i < count; ++i) free(blocks[i]);
    if (count < 20) printf("%d blocks\n", count);
    for (int i = 0; i < 8; ++i) {
      if (pthread_create(&thread, NULL, nothing, NULL)) return puts("no thread"), 1;
      pthread_join(thread, NULL);
    }
  }
  puts("verified");
}
END
gcc -O1 -w -fno-builtin -pthread "$work/limits_itself.c" -o "$work/limits_itself" || exit 1
to "$work/out" "$work/err" "$pinion" run --hugepages -- "$work/limits_itself" ||
  fail "a limit of its own: status $?: $(cat "$work/err")"
[ "$(cat "$work/out")" = verified ] || fail "a limit of its own: $(cat "$work/out")"

# A program that forbids itself, on pain of death, all but the system calls that malloc of libc makes.
cat >"$work/filtered.c" <<'END'
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int allowed[] = {SYS_write, SYS_newfstatat, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap,
                              SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_rt_sigreturn};
enum { calls = sizeof allowed / sizeof *allowed };

int main(int count, char** words) {
  struct sock_filter code[2 + 2 * calls] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  for (int i = 0; i < calls; ++i) {
    code[1 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
    code[2 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  code[1 + 2 * calls] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  struct sock_fprog filter = {2 + 2 * calls, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 3;
  if (count > 1 ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)
                : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
    return 4;
  char* blocks[40];
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 40; ++i) memset(blocks[i] = malloc(3 << 20), i, 3 << 20);
    for (int i = 0; i < 40; ++i) {
      if (blocks[i][100] != i) return 5;
      free(realloc(blocks[i], 4 << 20));
    }
  }
  puts("verified");
}
END
gcc -O1 -w -fno-builtin "$work/filtered.c" -o "$work/filtered" || exit 1
for way in "" syscall; do
  for placement in --hugepages "--preregister 512M"; do
    # shellcheck disable=SC2086
    to "$work/out" "$work/err" "$pinion" run $placement -- "$work/filtered" $way ||
      fail "under a filter, $placement $way: status $?: $(cat "$work/err")"
    verified || fail "under a filter, $placement $way: $(cat "$work/out")"
  done
done

# A threshold of the user's; --hugepages no; a bad value.
to "$work/out" "$work/err" "$pinion" run --hugepages --tune hugepage-threshold=1G -- "$work/family" || fail "threshold: $(cat "$work/err")"
grep -q 'hugepage heap' "$work/err" && fail "a threshold of 1 GiB: $(cat "$work/err")"
to "$work/out" "$work/err" "$pinion" run --hugepages=maybe -- "$work/family"
[ $? -eq 2 ] || fail "a bad value: $(cat "$work/err")"

# Static data: contents stay, in programs at fixed addresses and at any, in children, beside a thread that runs already.
# static_data NAME LEAST PROGRAM: at least so many MiB were placed.
static_data() {
  to "$work/out" "$work/err" "$pinion" run --hugepages --tune hugepage-static=yes -- "$3" || fail "$1: status $?: $(cat "$work/err")"
  verified || fail "$1: $(cat "$work/out")"
  case $thp in *'[never]'* | '') return ;; esac
  local placed
  placed=$(said | sed -nE 's/.* of ([0-9]+)(\.[0-9]+)? MiB of static data.*/\1/p')
  [ "${placed:-0}" -ge "$2" ] || fail "$1: fewer than $2 MiB of static data: $(cat "$work/err")"
  said | grep -qE ', and [1-9][0-9.]* MiB of [0-9.]* MiB of static data' || fail "$1: none in hugepages: $(cat "$work/err")"
}
if command -v gfortran >/dev/null; then
  cat >"$work/arrays.f90" <<'END'
program arrays
  implicit none
  integer, parameter :: n = 2000000
  integer, save :: table(n) = 7
  real(8), save :: field(n)
  integer :: i
  if (any(table /= 7) .or. any(field /= 0)) stop 1
  do i = 1, n
    table(i) = table(i) + i
    field(i) = 2d0 * table(i)
  end do
  if (all(field == [(2d0 * (i + 7), i = 1, n)])) print *, 'verified'
end program
END
  for options in "-fPIE -pie" "-fno-PIE -no-pie"; do
    # shellcheck disable=SC2086
    gfortran -O1 $options "$work/arrays.f90" -o "$work/arrays" || exit 1
    static_data "Fortran, $options" 18 "$work/arrays"
  done
else
  echo "no Fortran compiler: its static arrays go unchecked"
fi
cat >"$work/thread.cpp" <<'END'
// A thread that runs, and counts in .data, before the program's constructors.
#include <atomic>
#include <thread>
int table[1 << 20] = {1};
std::atomic<bool> stop{false};
static std::thread counter([] { while (!stop) ++*(volatile int*)&table[1 << 19]; });
int finish() { stop = true; counter.join(); return table[0]; }
END
cat >"$work/tables.cpp" <<'END'
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int finish();
int numbers[2 << 20] = {1, 2, 3}, zeros[2 << 20];
int* const inside[] = {&numbers[1], &zeros[1 << 20]};
int main() {
  bool good = numbers[2] == 3 && *inside[0] == 2 && *inside[1] == 0 && finish() == 1;
  for (int& value : zeros) good = good && value == 0;
  numbers[1 << 20] = zeros[1 << 20] = 5;
  const pid_t child = fork();
  if (child == 0) {
    good = good && *inside[1] == 5;
    numbers[1 << 20] = 6;
    _exit(good && numbers[1 << 20] == 6 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  if (good && status == 0 && numbers[1 << 20] == 5) puts("verified");
}
END
g++ -O1 -std=c++17 -pthread -shared -fPIC "$work/thread.cpp" -o "$work/libthread.so" || exit 1
g++ -O1 -std=c++17 "$work/tables.cpp" -o "$work/tables" -L"$work" -lthread -Wl,-rpath,"$work" || exit 1
static_data "a thread before main" 6 "$work/tables"

if python3=/usr/bin/python3 && $python3 -c 'import numpy' 2>/dev/null; then
  cat >"$work/arrays.py" <<'END'
import numpy
a = numpy.arange(4_000_000, dtype=float).reshape(2000, 2000)
for _ in range(5):
    b = numpy.concatenate([a, a.T]) + 1
print(int(b.sum()), int(numpy.sort(b.ravel())[::1000].sum()))
END
  $python3 "$work/arrays.py" >"$work/expected"
  to "$work/out" "$work/err" "$pinion" run --hugepages -- $python3 "$work/arrays.py" || fail "numpy: status $?"
  cmp -s "$work/out" "$work/expected" || fail "numpy: $(cat "$work/out")"
  placed numpy
fi

under "--hugepages --retention leave-pinned" 2 "$examples/fft3d" --grid 128x64x64 --iterations 10 || fail "fft3d: status $?: $(cat "$work/err")"
verified || fail "fft3d: $(cat "$work/out")"
placed fft3d
books_balance fft3d
report_says fft3d 'r.hugepages.processes >= 2 and r.hugepages.peak_bytes > 2**20'

if command -v hpcc >/dev/null; then
  hpcc_under "--hugepages --retention helper"
  placed hpcc
  books_balance hpcc
fi

exit $((failures > 0))
