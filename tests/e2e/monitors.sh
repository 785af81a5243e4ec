#!/usr/bin/env bash
# Under each memory monitor: every change that it claims to see takes its registration with it, and under an
# incomplete monitor nothing is kept; also where patching code is forbidden. By the C API, and by an MPI
# program.
. "$(dirname "$0")/common.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)

# Prints a word for each way memory goes: `gone` when its registration went with it, `stale` when it is still there,
# `unkept` when there was none to begin with.
cat >"$work/changes.c" <<'CODE'
#define _GNU_SOURCE
#include <malloc.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const size_t kBytes = 8 << 20;
static pinion_domain* domain;

static int is_registered(void* memory) {
  pinion_lease lease;
  return pinion_try_acquire(domain, memory, kBytes, PINION_ACCESS_READ, &lease) == 0 && pinion_release(&lease) == 0;
}
static void* map(void) {
  return mmap(0, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static long kernel(long number, long a, long b, long c) {
#if defined(__x86_64__)
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
#endif
}

static void by_munmap(void* p) { munmap(p, kBytes); }
static void by_syscall(void* p) { syscall(SYS_munmap, p, kBytes); }
static void by_raw_munmap(void* p) { kernel(SYS_munmap, (long)p, (long)kBytes, 0); }
static void by_raw_madvise(void* p) { kernel(SYS_madvise, (long)p, (long)kBytes, MADV_DONTNEED); }
static void by_mprotect(void* p) { mprotect(p, kBytes, PROT_NONE); }
static void by_bracket(void* p) { pinion_memory_begin(p, kBytes), pinion_memory_end(p, kBytes); }

static void try(const char* name, void* memory, void (*change)(void*)) {
  pinion_lease lease;
  memset(memory, 1, kBytes);
  if (pinion_acquire(domain, memory, kBytes, PINION_ACCESS_READ, &lease) || pinion_release(&lease)) exit(3);
  const char* outcome = "unkept";
  if (is_registered(memory)) {
    change(memory);
    outcome = is_registered(memory) ? "stale" : "gone";
  }
  printf("%s %s\n", name, outcome);
}

int main(void) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20); /* what is freed goes back at once */
  if (pinion_start("retention=leave-pinned") || pinion_domain_open(0, 0, &domain)) {
    fprintf(stderr, "%s\n", pinion_last_error());
    return 2;
  }
  try("munmap", map(), by_munmap);
  try("syscall", map(), by_syscall);
  try("raw-munmap", map(), by_raw_munmap);
  try("raw-madvise", map(), by_raw_madvise);
  try("mprotect", map(), by_mprotect);
  try("bracket", map(), by_bracket);
  try("free", malloc(kBytes), free);
  return pinion_domain_close(domain) || pinion_stop();
}
CODE
# Becomes another program, in which nobody may make memory writable and executable.
cat >"$work/restrict.cpp" <<'CODE'
#include <unistd.h>
#include "support/no_code_patching.h"
int main(int, char** arguments) {
  if (!pinion::test::refuse_code_patching()) return 77;
  execvp(arguments[1], arguments + 1);
  return 127;
}
CODE
# The program runs without userfaultfd, too.
sed 's/no_code_patching/no_userfaultfd/; s/refuse_code_patching/refuse_userfaultfd/' "$work/restrict.cpp" >"$work/refuse.cpp"
gcc -O1 -std=gnu11 -I"$source/include" "$work/changes.c" -o "$work/changes" -L"$build/lib" -lpinion \
  -Wl,-rpath,"$build/lib" && g++ -std=c++20 -I"$source/tests" "$work/restrict.cpp" -o "$work/restrict" &&
  g++ -std=c++20 -I"$source/tests" "$work/refuse.cpp" -o "$work/refuse" || exit 1

# Users choose among four; the combinations that `auto` makes of them are reached for tests.
monitor_of() {
  case $1 in
    *symbols* | *+*) echo "PINION_TEST_MONITOR=$1" ;;
    *) echo "PINION=monitor=$1" ;;
  esac
}

# expect MONITOR RESTRICT OUTCOMES: of munmap, syscall, raw-munmap, raw-madvise, mprotect, bracket, free.
expect() {
  local monitor=$1 restrict=$2 outcomes
  # shellcheck disable=SC2086
  timeout 240 $restrict env $(monitor_of "$monitor") "$pinion" run --device pin -- "$work/changes" >"$work/out" 2>"$work/err" ||
    fail "$monitor $restrict: status $?: $(cat "$work/err")"
  outcomes=$(cut -d ' ' -f 2 "$work/out" | tr '\n' ' ')
  [ "$outcomes" = "$3 " ] || fail "$monitor $restrict: $(tr '\n' ' ' <"$work/out"): $(cat "$work/err")"
  case $3 in
    unkept*) unwrapped "$work/err" | grep -q '^pinion: .*memory events cannot all be seen' || fail "$monitor $restrict: said nothing" ;;
    *) grep -q 'cannot all be seen' "$work/err" && fail "$monitor $restrict: $(cat "$work/err")" ;;
  esac
}
all_gone="gone gone gone gone gone gone gone"
none_kept="unkept unkept unkept unkept unkept unkept unkept"

"$pinion" doctor --json >"$work/doctor" || fail doctor
doctor_says() { python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))
m = {one["name"]: one for one in r["monitors"]}
sys.exit(not eval(sys.argv[2]))' "$work/doctor" "$1" || fail "doctor: not so: $1"; }
doctor_says 'r["monitor"] == "libc" and len(m) == 6'
doctor_says 'not m["symbols"]["complete"] and not m["symbols"]["refused"]'
doctor_says '{e["name"]: e["state"] for e in m["symbols"]["events"]}["munmap"] == "seen"'

has_userfaultfd=yes
python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))
why = [one["refused"] for one in r["monitors"] if one["name"] == "userfaultfd"][0]
if why: sys.exit(why)' "$work/doctor" || has_userfaultfd=

# expect_everything: the events of a program without MPI, by monitor.
expect_everything() {
  expect libc "" "gone gone stale stale gone gone gone"
  expect symbols "" "$none_kept"
  expect brackets "" "stale stale stale stale stale gone stale"
  expect libc "$work/restrict" "$none_kept"
  # The program makes system calls of its own.
  "$pinion" doctor "$work/changes" >"$work/out"
  one_line "$work/out" | grep -q 'code past libc: .*/changes calls [a-z ]* without libc' || fail "doctor: $(grep 'code past' "$work/out")"
  if [ -z "$has_userfaultfd" ]; then
    expect auto "" "$none_kept"
  else
    expect auto "" "$all_gone"
    expect libc+userfaultfd "" "$all_gone"
    expect symbols+userfaultfd "" "$all_gone"
    expect userfaultfd "" "gone gone gone gone stale gone gone"
    # Code may not be patched: symbols are preloaded, and the kernel adds the missing events.
    expect auto "$work/restrict" "$all_gone"
    expect symbols+userfaultfd "$work/restrict" "$all_gone"
    "$work/restrict" "$pinion" doctor --json >"$work/doctor" || fail "doctor, restricted"
    doctor_says 'r["monitor"] == "symbols+userfaultfd" and m["symbols+userfaultfd"]["complete"]'
    doctor_says '"does not let code be patched" in m["libc"]["refused"] and not m["libc"]["complete"]'
  fi
  "$pinion" run --monitor magic -- true >"$work/out" 2>&1
  [ $? = 2 ] && grep -q "'magic' is not one of: auto, libc, userfaultfd, brackets" "$work/out" || fail "magic: $(cat "$work/out")"
  "$pinion" run --monitor libc+userfaultfd -- true >"$work/out" 2>&1
  [ $? = 2 ] && grep -q "is not one of: auto, libc, " "$work/out" || fail "a combination: $(cat "$work/out")"
}
# Once is enough for two families.
[ -n "$suffix" ] || expect_everything

for monitor in auto libc symbols brackets ${has_userfaultfd:+libc+userfaultfd symbols+userfaultfd userfaultfd}; do
  both=(counted requests)
  tried=("${both[turn++ % 2]}")
  [ -z "$all" ] || tried=("${both[@]}")
  for program in "${tried[@]}"; do
    export "$(monitor_of "$monitor")"
    under "--retention leave-pinned --tune threshold=1K" 2 "$programs/mpi_$program" ||
      fail "$monitor: $program: status $?: $(cat "$work/out" "$work/err")"
    verified || fail "$monitor: $program: $(cat "$work/out" "$work/err")"
    books_balance "$monitor: $program"
    unset PINION PINION_TEST_MONITOR
  done
  case $monitor in
    symbols) report_says "$monitor" 'r.acquires.hits == 0 and r.acquires.misses > 0' ;;
    *) report_says "$monitor" 'r.acquires.hits > r.acquires.misses' ;;
  esac
done

# MPI's system calls go through libc, and Pinion's own are left out: the monitor of libc is enough.
under "--monitor auto --retention leave-pinned --tune threshold=1K" 2 "$work/refuse" "$programs/mpi_counted" ||
  fail "auto, refused: status $?: $(cat "$work/out" "$work/err")"
grep 'cannot all be seen' "$work/err" && fail "code past libc in an MPI program"
report_says "auto, refused" 'r.acquires.hits > r.acquires.misses'
[ -n "$suffix" ] || expect auto "$work/refuse" "$none_kept"

# Leave-pinned needs the code read, too, so that is no loss: of 256 MiB, on one core for both ranks and helpers. A loss there counts
# four times the helper's CPU (TimeBudget::delay_of).
if [ -z "$suffix" ]; then
  printf '.text\n.fill 0x10000000, 1, 0x90\n.section .note.GNU-stack,"",%%progbits\n' >"$work/code.s"
  cc -shared -nostdlib -o "$work/libcode.so" "$work/code.s" || fail "cannot make the code"
  (
    taskset -pc "$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')" $BASHPID >/dev/null
    LD_PRELOAD=$work/libcode.so under "--device emulated --minimum-gain 1G" 2 "$build/bin/examples/figure1" --iterations 10
  ) || fail "256 MiB of code: status $?: $(cat "$work/out" "$work/err")"
  report_says "256 MiB of code" 'r.helper_cpu_seconds > 0.01'
  report_says "256 MiB of code" 'max(rank.time_budget.by_helper_seconds for rank in r.per_rank) < r.helper_cpu_seconds'
fi

exit $((failures > 0))
