#!/usr/bin/env bash
# Programs that start in ways of their own: under each sanitizer of gcc and clang, below tools that stand before a program or in it,
# with allocators and preloads of others, without a dynamic linker. Each ends as it does alone: the same output and status.
source "$(dirname "$0")/script.bash"
ran=() skipped=()

# same NAME COMMAND...: the command, alone and under Pinion as it is started by $start; $mode says how.
preload=$build/lib/libpinion-preload.so
run=("$build/bin/pinion" run --)
start=("${run[@]}") mode=
same() {
  local name=$1 alone status
  shift
  "$@" >"$work/out.alone" 2>"$work/err.alone" </dev/null
  alone=$?
  "${start[@]}" "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
  for file in out.alone err.alone out err; do
    # Numbers of processes, and what pinion says itself.
    sed -i -E -e '/^pinion: /d' -e '/^pinion:   /d' -e 's/==[0-9]+==/==N==/; s/process [0-9]+/process N/g; s/LWP [0-9]+/LWP N/g; s/0x[0-9a-f]{6,}/0xN/g' "$work/$file"
  done
  [ $status -eq $alone ] || fail "$name$mode: status $status instead of $alone: $(tail -n 3 "$work/err"); alone: $(tail -n 3 "$work/err.alone")"
  diff "$work/out.alone" "$work/out" >"$work/differs" || fail "$name$mode: output: $(cat "$work/differs")"
  diff "$work/err.alone" "$work/err" >"$work/differs" || fail "$name$mode: messages: $(cat "$work/differs")"
  ran+=("$name$mode")
}

cat >"$work/asks.c" <<'END_C'
// Asks the dynamic linker as programs do, beside threads and a child.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef OWN_ITERATE
int dl_iterate_phdr(int (*visit)(struct dl_phdr_info*, size_t, void*), void* data) {
  int (*next)(int (*)(struct dl_phdr_info*, size_t, void*), void*);
  *(void**)&next = dlsym(RTLD_NEXT, "dl_iterate_phdr");
  return next(visit, data);
}
#endif
static int count(struct dl_phdr_info* object, size_t size, void* number) { return ++*(int*)number, 0; }
static void* thread(void* block) { return free(block), malloc(100); }
int main(void) {
  int objects = 0;
  dl_iterate_phdr(count, &objects);
  pthread_t id;
  void* block = malloc(1 << 20);
  pthread_create(&id, NULL, thread, block);
  pthread_join(id, &block);
  free(block);
  void* math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  double (*cosine)(double) = 0;
  if (math) *(void**)&cosine = dlsym(math, "cos");
  printf("%d %d %d %d %d %d\n", objects > 0, cosine ? (int)cosine(0) : -1, dlsym(RTLD_DEFAULT, "ibv_reg_mr") != NULL,
         dlsym(RTLD_DEFAULT, "cuInit") != NULL, dlsym(RTLD_DEFAULT, "MPI_Send") != NULL, dlsym(RTLD_DEFAULT, "malloc") != NULL);
  fflush(stdout);
  int status = 0;
  pid_t child = fork();
  if (child == 0) _exit(3);
  waitpid(child, &status, 0);
  return 4 + WEXITSTATUS(status);
}
END_C

# Preloads of others: each finds the next function in a usual way.
cat >"$work/own.c" <<'END_C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#ifdef OWN_DLSYM
void* dlsym(void* library, const char* name) {
  static void* (*next)(void*, const char*);
  if (!next) *(void**)&next = dlvsym(RTLD_NEXT, "dlsym", VERSION);
  return next(library, name);
}
#elif defined OWN_ITERATE
int dl_iterate_phdr(int (*visit)(struct dl_phdr_info*, size_t, void*), void* data) {
  int (*next)(int (*)(struct dl_phdr_info*, size_t, void*), void*);
  *(void**)&next = dlsym(RTLD_NEXT, "dl_iterate_phdr");
  return next(visit, data);
}
#else
static char first[1 << 16];
static size_t used;
static int asking;
static void* (*next_malloc)(size_t);
static void (*next_free)(void*);
static void* (*next_calloc)(size_t, size_t);
static void* early(size_t bytes) {
  void* block = first + used;
  used += (bytes + 15) & ~(size_t)15;
  return block;
}
static void find(void) {
  if (next_malloc || asking) return;
  asking = 1;
  *(void**)&next_calloc = dlsym(RTLD_NEXT, "calloc");
  *(void**)&next_free = dlsym(RTLD_NEXT, "free");
  *(void**)&next_malloc = dlsym(RTLD_NEXT, "malloc");
  asking = 0;
}
void* malloc(size_t bytes) { return find(), next_malloc ? next_malloc(bytes) : early(bytes); }
void* calloc(size_t count, size_t bytes) { return find(), next_malloc ? next_calloc(count, bytes) : early(count * bytes); }
void free(void* block) {
  if ((char*)block >= first && (char*)block < first + sizeof first) return;
  find();
  next_free(block);
}
#endif
END_C

gcc -O1 "$work/asks.c" -o "$work/asks" -pthread -ldl || { fail "no program can be made"; exit 1; }
gcc -O1 -DOWN_ITERATE -rdynamic "$work/asks.c" -o "$work/iterates" -pthread -ldl
same true true
same asks "$work/asks"
same 'a dl_iterate_phdr of its own' "$work/iterates"
same python python3 -c 'import ctypes, threading; print(ctypes.CDLL(None).getpid() > 0)'

sanitized=()
for compiler in gcc clang; do
  for sanitizer in address undefined thread leak memory; do
    [ "$compiler $sanitizer" != 'gcc memory' ] || continue
    program=$work/$compiler-$sanitizer
    if $compiler -g -O1 -fsanitize=$sanitizer "$work/asks.c" -o "$program" -pthread -ldl 2>/dev/null; then
      same "$compiler $sanitizer" "$program"
      sanitized+=("$program")
    else
      skipped+=("$compiler -fsanitize=$sanitizer")
    fi
  done
done
for kind in static static-pie; do
  gcc -$kind -O1 "$work/asks.c" -o "$work/$kind" -pthread -ldl 2>/dev/null && same $kind "$work/$kind" || skipped+=("gcc -$kind")
done

# tool NAME COMMAND...: where the command is there.
tool() {
  local name=$1
  shift
  if command -v "$1" >/dev/null; then same "$name" "$@"; else skipped+=("$name: no $1"); fi
}
tool java java -version
tool go go version
tool valgrind valgrind -q "$work/asks"
tool gdb gdb -nx -q -batch -ex run -ex 'print 6*7' "$work/asks"
tool strace strace -f -o "$work/trace" "$work/asks"
tool fakeroot fakeroot id -u
tool faketime faketime '2020-02-02 12:00:00' date -u +%Y

# preloaded NAME LIBRARY: the program with the library, behind Pinion's preload and before it.
preloaded() {
  same "$1 behind" env LD_PRELOAD="$2" "$work/asks"
  LD_PRELOAD=$2 same "$1" "$work/asks"
  # It is before where another command starts the program. A dlsym before ours asks the C library's by its version, past us.
  [ "$1" != 'own DLSYM' ] || return
  printf '#!/bin/sh\nLD_PRELOAD="%s${LD_PRELOAD+:$LD_PRELOAD}" exec "%s"\n' "$2" "$work/asks" >"$work/before"
  chmod +x "$work/before"
  same "$1 before" "$work/before"
}
for library in libjemalloc.so.2 libtcmalloc_minimal.so.4 libmimalloc.so.2; do
  LD_PRELOAD=$library true 2>"$work/err" && [ ! -s "$work/err" ] && preloaded "$library" "$library" || skipped+=("$library")
done
case $(uname -m) in x86_64) version=GLIBC_2.2.5 ;; *) version=GLIBC_2.17 ;; esac
for kind in DLSYM ITERATE MALLOC; do
  gcc -O1 -fno-builtin -shared -fPIC -DOWN_$kind -DVERSION="\"$version\"" "$work/own.c" -o "$work/own_$kind.so" -ldl || fail "own $kind"
  preloaded "own $kind" "$work/own_$kind.so"
done

# One front, or none. `pinion run` asks for a NIC before it starts the verbs front.
for mode in ' with front=mpi' ' with front=verbs' ' with front=cuda' ' with off'; do
  start=(env PINION="${mode# with }" LD_PRELOAD="$preload")
  for program in "$work/asks" "$work/iterates" "${sanitized[@]}"; do
    case $program in *address | *undefined | *leak) continue ;; esac
    same "$(basename "$program")" "$program"
  done
  start=(env PINION="${mode# with }" LD_PRELOAD="$preload:$work/own_ITERATE.so")
  same 'own ITERATE' "$work/asks"
done
# A program under ThreadSanitizer that uses Pinion has no race of Pinion's threads in its reports.
cat >"$work/races.c" <<'END_C'
#include <pinion/pinion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { kBytes = 1 << 20 };
static pinion_domain* domain;
static void* uses(void* unused) {
  for (int i = 0; i < 100; ++i) {
    pinion_lease lease;
    char* memory = malloc(kBytes);
    memset(memory, i, kBytes);
    if (!pinion_acquire(domain, memory, kBytes, PINION_ACCESS_WRITE, &lease)) pinion_release(&lease);
    free(memory);
  }
  return unused;
}
int main(int argc, char** argv) {
  pthread_t thread;
  if (pinion_start(argv[argc - 1]) || pinion_domain_open(NULL, NULL, &domain)) return puts(pinion_last_error()), 2;
  pthread_create(&thread, NULL, uses, NULL);
  uses(NULL);
  pthread_join(thread, NULL);
  return pinion_domain_close(domain) || pinion_stop();
}
END_C
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
for compiler in gcc clang; do
  $compiler -g -O1 -fsanitize=thread -I"$source_folder/include" "$work/races.c" -o "$work/races" "$build/lib/libpinion.so" -Wl,-rpath,"$build/lib" -pthread 2>/dev/null || continue
  for options in retention=leave-pinned "retention=helper,log=$work/log-$compiler"; do
    for preloaded in '' "$preload"; do
      rm -rf "$work/log-$compiler"
      LD_PRELOAD=$preloaded "$work/races" "device=pin,$options" >"$work/out" 2>&1 || fail "races by $compiler, $options${preloaded:+, preloaded}: status $?: $(grep -m 3 -A 12 WARNING "$work/out")"
      ran+=("races by $compiler, ${options%%,*}${preloaded:+, preloaded}")
    done
  done
done

# Libraries come and go beside every hook, beside look-ups and forks. What an event has taken is registered no more; of some
# memory registrations are kept until then.
mode=
cat >"$work/storm.c" <<'END_C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
enum { kBytes = 1 << 20, kRounds = 20, kRights = PROT_READ | PROT_WRITE, kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS };
static atomic_int stop;
static int file;
static void must_at(int line, int holds) { if (!holds) fprintf(stderr, "line %d\n", line), abort(); }
#define must(holds) must_at(__LINE__, holds)
static void* libraries(void* name) {
  while (!stop) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    must(library && dlsym(library, "scope_here") && !dlclose(library));
  }
  return NULL;
}
static void* names(void* unused) {
  const char* const all[] = {"MPI_Send", "ibv_reg_mr", "cuInit", "cuMemcpyHtoD_v2", "munmap"};
  for (unsigned i = 0; !stop; ++i) must((dlsym(RTLD_DEFAULT, all[i % 5]) != NULL) == (i % 5 == 4));
  return unused;
}
static void* forks(void* unused) {
  for (int i = 0; i < kRounds && !stop; ++i) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
  }
  return unused;
}
/* Memory, and what takes it away; false: not now. */
static char* pages(void) { return mmap(NULL, kBytes, kRights, kAnonymous, -1, 0); }
static char* of_file(void) { return ftruncate(file, kBytes) ? NULL : mmap(NULL, kBytes, kRights, MAP_SHARED, file, 0); }
static char* attach(char* at, int flags) {
  int id = shmget(IPC_PRIVATE, kBytes, 0600);
  at = shmat(id, at, flags);
  shmctl(id, IPC_RMID, NULL);
  return at;
}
static char* segment(void) { return attach(NULL, 0); }
static char* heap(void) { return brk((void*)(((size_t)sbrk(0) + 4095) & ~4095ul)) ? NULL : sbrk(kBytes); }
static int is_end(char* at) { return sbrk(0) == at + kBytes; } /* else malloc has gone on behind it */
static int by_munmap(char* at) { return !munmap(at, kBytes); }
static int by_number(char* at) { return !syscall(SYS_munmap, at, kBytes); }
static int by_mmap(char* at) { return mmap(at, kBytes, kRights, kAnonymous | MAP_FIXED, -1, 0) == at; }
static int by_mremap(char* at) {
  void* moved = mremap(at, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages());
  return moved != MAP_FAILED && !munmap(moved, kBytes);
}
static int onto(char* at) { return mremap(pages(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at; }
static int by_madvise(char* at) { return !madvise(at, kBytes, MADV_DONTNEED); }
static int by_process_madvise(char* at) { /* of glibc 2.36; kernels before 6.13 refuse */
  static int self;
  ssize_t (*call)(int, const struct iovec*, size_t, int, unsigned);
  *(void**)&call = dlsym(RTLD_DEFAULT, "process_madvise");
  if (!self) self = (int)syscall(SYS_pidfd_open, getpid(), 0);
  return call && call(self, &(struct iovec){at, kBytes}, 1, MADV_DONTNEED, 0) == kBytes;
}
static int by_remap(char* at) { return !remap_file_pages(at, kBytes / 2, 0, kBytes / 8192, 0); }
static int by_brk(char* at) { return is_end(at) && !brk(at); }
static int by_sbrk(char* at) { return is_end(at) && sbrk(-kBytes) != (void*)-1; }
static int by_shmdt(char* at) { return !shmdt(at); }
static int by_shmat(char* at) { return attach(at, SHM_REMAP) == at; }
static int by_ftruncate(char* at) { return at && !ftruncate(file, 0); }
static int by_truncate(char* at) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  return at && !truncate(path, 0);
}
static int by_fallocate(char* at) { return at && !fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes); }
static int by_mprotect(char* at) { return !mprotect(at, kBytes, PROT_READ) && !mprotect(at, kBytes, kRights) && !munmap(at, kBytes); }
static int by_pkey(char* at) { return !pkey_mprotect(at, kBytes, PROT_READ, -1) && !munmap(at, kBytes); }
static const struct event {
  const char* name;
  char* (*make)(void);
  int (*take)(char*);
  int leaves; /* a mapping */
} events[] = {{"munmap", pages, by_munmap}, {"syscall", pages, by_number}, {"mmap", pages, by_mmap, 1}, {"mremap", pages, by_mremap},
              {"mremap onto", pages, onto, 1}, {"madvise", pages, by_madvise, 1}, {"mprotect", pages, by_mprotect},
              {"process_madvise", pages, by_process_madvise, 1}, {"pkey_mprotect", pages, by_pkey},
              {"remap_file_pages", of_file, by_remap, 1}, {"ftruncate", of_file, by_ftruncate, 1},
              {"truncate", of_file, by_truncate, 1}, {"fallocate", of_file, by_fallocate, 1}, {"shmdt", segment, by_shmdt},
              {"shmat", segment, by_shmat, 1}, {"brk", heap, by_brk}, {"sbrk", heap, by_sbrk}};
enum { kEvents = sizeof events / sizeof *events };
int main(int argc, char** argv) {
  pinion_domain* domain;
  pinion_lease lease;
  pthread_t threads[4];
  void* (*const run[])(void*) = {libraries, libraries, names, forks};
  int kept = 0, stale = 0;
  if (pinion_start("device=pin,retention=leave-pinned,threshold=4096") || pinion_domain_open(NULL, NULL, &domain)) return puts(pinion_last_error()), 2;
  must((file = memfd_create("storm", 0)) >= 0);
  for (int i = 0; i < 4; ++i) must(!pthread_create(&threads[i], NULL, run[i], argv[1 + i % (argc - 1)]));
  for (int i = 0; i < kRounds * kEvents || (kept == 0 && i < 1000 * kEvents); ++i) {
    const struct event* event = &events[i % kEvents];
    char* memory = event->make();
    must(memory && memory != MAP_FAILED);
    if (!pinion_acquire(domain, memory, kBytes, PINION_ACCESS_READ, &lease)) pinion_release(&lease);
    if (!pinion_try_acquire(domain, memory, kBytes, PINION_ACCESS_READ, &lease)) ++kept, pinion_release(&lease);
    if (!event->take(memory)) continue;
    if (!pinion_try_acquire(domain, memory, kBytes, PINION_ACCESS_READ, &lease)) ++stale, printf("stale after %s\n", event->name), pinion_release(&lease);
    /* What is gone may be another thread's by now. */
    if (event->leaves) munmap(memory, kBytes);
  }
  stop = 1;
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  pinion_domain_close(domain);
  fprintf(stderr, "pinion: %d of %d kept until their event\n", kept, kRounds * kEvents);
  return pinion_stop() ? 3 : stale ? 4 : kept == 0 ? 5 : 0;
}
END_C
echo 'int scope_here(void) { return 1; }' >"$work/comes.c"
for n in 1 2; do gcc -shared -fPIC "$work/comes.c" -o "$work/comes$n.so"; done
gcc -O1 -I"$source_folder/include" "$work/storm.c" -o "$work/storm" "$build/lib/libpinion.so" -Wl,-rpath,"$build/lib" -pthread -ldl || fail "the storm cannot be made"
for start in "$build/bin/pinion run --" "env LD_PRELOAD=$preload"; do
  # shellcheck disable=SC2206 # words
  start=($start)
  same 'a storm of libraries' "$work/storm" "$work/comes1.so" "$work/comes2.so"
done

# Each place where the loader looks for libpinion in vain is a round trip where the library lies on a file server. So it looks in one
# directory alone, which has up to twenty subdirectories for kinds of processors.
for place in "$preload" "$build"/lib/pinion/lib/*-linux-gnu/libpinion-preload.so "$build/lib/pinion/lib64/libpinion-preload.so"; do
  readelf -h "$place" | finds ELF64 || continue
  LD_DEBUG=libs LD_PRELOAD=$place "$(type -P true)" 2>&1 | grep 'trying file=.*/libpinion\.so\.0' >"$work/tries"
  [ -s "$work/tries" ] && ! grep -vF "file=${place%/*}/" "$work/tries" || fail "the loader looks for libpinion elsewhere, too: $place"
done

printf 'started: %s\n' "${ran[@]}"
[ ${#skipped[@]} -eq 0 ] || printf 'left out: %s\n' "${skipped[@]}"
[ "$failures" -eq 0 ]
