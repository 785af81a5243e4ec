#!/usr/bin/env bash
# The preload is inert where it lacks a task, and reports wrong options in one line.
. "$(dirname "$0")/common.bash"

# It loads without an MPI, and exports only the calls that it intercepts.
nm -D --undefined-only "$preload" | grep -E '\bP?MPI_|\bompi_' && fail "undefined MPI symbols"
shown=$(nm -D --defined-only "$preload" | awk '{print $3}' | grep -vE '^(P?MPIX?_[A-Z][a-z_]+|dlv?sym|fork|chroot|mlock2?|mlockall|cu[A-Z][A-Za-z0-9]+(_v2)?(_pt[ds][sz])?|fi_[a-z0-9]+@@FABRIC_[0-9.]+|ibv_[a-z0-9_]+@@IBVERBS_[0-9.]+|(FABRIC|IBVERBS)_[0-9.]+)$')
[ -z "$shown" ] || fail "shows more than the calls it stands before: $shown"
nm -D --defined-only "$build/lib/libpinion.so" | awk '{print $3}' |
  grep -vE '^pinion_[a-z_]+@@PINION_0\.[1234]$|^PINION_(0\.[1234]|PRIVATE)$|^_Z.*@@PINION_PRIVATE$' && fail "libpinion.so shows more"

# same COMMAND...: output, errors and status as without.
same() {
  local status
  to "$work/plain" "$work/plain-err" "$@"
  status=$?
  PINION="log=$work/inert" LD_PRELOAD=$preload to "$work/out" "$work/err" "$@"
  [ $? -eq $status ] || fail "$*: another status than $status"
  cmp -s "$work/plain" "$work/out" || fail "$*: $(diff "$work/plain" "$work/out")"
  cmp -s "$work/plain-err" "$work/err" || fail "$*: $(diff "$work/plain-err" "$work/err")"
  [ ! -e "$work/inert" ] || fail "$*: left a log"
}
same bash -c 'for i in 1 2 3; do echo $i; (exit 3); done; grep Threads /proc/$$/status; wc -l <<<text; exit 5'
same ls -l /usr
same python3 -c 'import json, ctypes, subprocess
print(json.dumps([1, 2]), open("/proc/self/status").read().split("Threads:")[1].split()[0])
print(subprocess.run(["sh", "-c", "echo child"], capture_output=True).stdout)'
# Before libibverbs and libcuda are loaded their functions are missing; other lookups get the C library's answers.
same python3 -c 'import ctypes
c = ctypes.CDLL(None)
c.dlsym.restype = c.dlvsym.restype = ctypes.c_void_p
for name in (b"ibv_reg_mr", b"ibv_dereg_mr", b"ibv_close_device", b"ibv_of_nobody", b"isalpha",
             b"cuMemcpyHtoD_v2", b"cuGetProcAddress", b"cuInit", b"cuMemcpyOfNobody", b"calloc"):
    for scope in (0, -1):  # RTLD_DEFAULT, RTLD_NEXT
        found = [c.dlsym(ctypes.c_void_p(scope), name), c.dlvsym(ctypes.c_void_p(scope), name, b"IBVERBS_1.1")]
        print(name, scope, [bool(f) for f in found])
    print(hasattr(c, name.decode()))
print(bool(c.dlvsym(ctypes.c_void_p(0), b"isalpha", b"GLIBC_2.2.5")))'
same "${launch[@]}" -n 2 bash -c 'grep Threads /proc/self/status'
same "${launch[@]}" -n 1 true
same "$mpirun" --version

# PINION=off: an MPI program gets neither thread nor log.
[ "$(PINION=off LD_PRELOAD=$preload ranks 2 "$programs/mpi_counted" 2>&1)" = verified ] || fail "PINION=off"
"$pinion" run --off yes --log "$work/inert" -- "${launch[@]}" -n 2 "$programs/mpi_counted" >"$work/out" 2>&1 || fail "off"
[ "$(cat "$work/out")" = verified ] && [ ! -e "$work/inert" ] || fail "run --off: $(cat "$work/out")"

# refused WHAT ENVIRONMENT...: status 2 and one line that names WHAT. Started alone: mpirun would add lines of
# its own.
refused() {
  local what=$1 status
  shift
  env "$@" LD_PRELOAD="$preload" "$programs/mpi_leaving" exit >"$work/out" 2>"$work/err"
  status=$?
  [ $status -eq 2 ] || fail "$*: status $status"
  [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q "^pinion: .*$what" "$work/err" || fail "$*: $(cat "$work/err")"
}
printf '# for tests\nretention=observe\nthreshold=1K\n' >"$work/good.conf"
printf '\nretention=observed\n' >"$work/bad.conf"
printf 'retention\n' >"$work/broken.conf"
refused "unknown option 'retnetion'; the nearest is 'retention';" PINION=retnetion=lru
refused "limit: '2Q'" PINION=limit=2Q
refused "not of the form" PINION=helper
refused "no-such" PINION=device=emulated,nic=no-such
refused "bad.conf:2: option retention: 'observed' is not one of" PINION_CONFIG="$work/bad.conf"
refused "broken.conf:1: .*not of the form name=value" PINION_CONFIG="$work/broken.conf"
refused "absent.conf: No such file" PINION_CONFIG="$work/absent.conf"
PINION_CONFIG=$work/good.conf under "" 2 "$programs/mpi_counted" || fail "good.conf: $(cat "$work/err")"
report_says good.conf 'r.retention == "observe" and r.acquires.observed == 160'

# Inside a launcher, rank 0 names the next command.
"${launch[@]}" -n 2 "$pinion" run --log "$work/my logs" -- "$programs/mpi_counted" >"$work/out" 2>"$work/err"
grep -qFx "pinion:   pinion report '$work/my logs'" "$work/err" || grep -q '^pinion: rank 0 on .*: registered' "$work/err" ||
  fail "next command: $(cat "$work/err")"

# AddressSanitizer's runtime wants to be the first library.
echo 'int main(void) { return 7; }' >"$work/seven.c"
if cc -fsanitize=address -o "$work/seven" "$work/seven.c" 2>/dev/null; then
  ASAN_OPTIONS=detect_leaks=0 "$pinion" run --log "$work/asan" -- "$work/seven" >"$work/out" 2>&1
  status=$?
  [ $status -eq 7 ] || fail "asan: status $status: $(cat "$work/out")"
fi

# Without a thread for the helper: the program runs as it does alone.
cat >"$work/threadless.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  static int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  Dl_info caller;
  if (dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "libpinion")) return EAGAIN;
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, "pthread_create");
  return next(thread, attributes, run, argument);
}
END
cc -shared -fPIC -o "$work/threadless.so" "$work/threadless.c" || fail "threadless.c"
LD_PRELOAD=$preload:$work/threadless.so ranks 2 "$programs/mpi_counted" >"$work/out" 2>"$work/err" || fail "no thread: status $?"
verified && [ "$(unwrapped "$work/err" | grep -c 'helper thread cannot be started.*runs without Pinion')" -eq 2 ] ||
  fail "no thread: $(cat "$work/out" "$work/err")"

# A profile's name that leads to another file: the run goes on, and the file stays.
echo "Dear all" >"$work/letter"
PINION="device=pin,profile=$work/letter" LD_PRELOAD=$preload ranks 2 "$programs/mpi_counted" >"$work/out" 2>"$work/err"
verified && unwrapped "$work/err" | finds 'letter: not a profile of Pinion' || fail "profile: $(cat "$work/out" "$work/err")"
[ "$(cat "$work/letter")" = "Dear all" ] || fail "the letter is lost"

[ "$failures" -eq 0 ]
