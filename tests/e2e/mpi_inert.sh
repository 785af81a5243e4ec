#!/usr/bin/env bash
# The preload is inert where it has no task, and reports wrong options in one line.
. "$(dirname "$0")/common.bash"

# It loads without an MPI, and exports only the calls that it intercepts.
nm -D --undefined-only "$preload" | grep -E '\bP?MPI_|\bompi_' && fail "undefined MPI symbols"
shown=$(nm -D --defined-only "$preload" | awk '{print $3}' | grep -vE '^(P?MPIX?_[A-Z][a-z_]+|dlv?sym|fi_[a-z0-9]+@@FABRIC_[0-9.]+|ibv_[a-z0-9_]+@@IBVERBS_[0-9.]+|(FABRIC|IBVERBS)_[0-9.]+)$')
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
# Before libibverbs is loaded its functions are missing; other lookups get the C library's answers.
same python3 -c 'import ctypes
c = ctypes.CDLL(None)
c.dlsym.restype = c.dlvsym.restype = ctypes.c_void_p
for name in (b"ibv_reg_mr", b"ibv_dereg_mr", b"ibv_close_device", b"ibv_of_nobody", b"isalpha"):
    for scope in (0, -1):  # RTLD_DEFAULT, RTLD_NEXT
        found = [c.dlsym(ctypes.c_void_p(scope), name), c.dlvsym(ctypes.c_void_p(scope), name, b"IBVERBS_1.1")]
        print(name, scope, [bool(f) for f in found])
    print(hasattr(c, name.decode()))
print(bool(c.dlvsym(ctypes.c_void_p(0), b"isalpha", b"GLIBC_2.2.5")))'
same "${launch[@]}" -n 2 bash -c 'grep Threads /proc/self/status'
same "${launch[@]}" -n 1 true
same "$mpirun" --version

# PINION=off: an MPI program stays without a thread and a log.
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
refused "unknown option 'retnetion'; valid options: .*retention" PINION=retnetion=lru
refused "limit: '2Q'" PINION=limit=2Q
refused "not of the form" PINION=helper
refused "no-such" PINION=device=emulated,nic=no-such
refused "bad.conf:2: option retention: 'observed' is not one of" PINION_CONFIG="$work/bad.conf"
refused "broken.conf:1: .*not of the form name=value" PINION_CONFIG="$work/broken.conf"
refused "absent.conf: No such file" PINION_CONFIG="$work/absent.conf"
PINION_CONFIG=$work/good.conf under "" 2 "$programs/mpi_counted" || fail "good.conf: $(cat "$work/err")"
report_says good.conf 'r.retention == "observe" and r.acquires.observed == 160'

[ "$failures" -eq 0 ]
