#!/usr/bin/env bash
# Checks where Pinion acts, with made-up RDMA devices and a made-up libibverbs: below libraries only if a port is
# active and the program registers. A program that meets a failing device ends as it does alone.
. "$(dirname "$0")/script.bash"
pinion=$build/bin/pinion
made_up=$build/tests/verbs
[ -x "$made_up/registers" ] || exit 77

# device NAME STATE...: a node whose ports are in these states. Its device file is there.
device() {
  local name=$1 port=1
  shift
  export PINION_TEST_INFINIBAND=$work/$name
  mkdir -p "$PINION_TEST_INFINIBAND/dev"
  : >"$PINION_TEST_INFINIBAND/dev/uverbs0"
  for state in "$@"; do
    mkdir -p "$PINION_TEST_INFINIBAND/made0/ports/$port"
    echo "$state" >"$PINION_TEST_INFINIBAND/made0/ports/$port/state"
    echo InfiniBand >"$PINION_TEST_INFINIBAND/made0/ports/$port/link_layer"
    port=$((port + 1))
  done
}

# registers OPTIONS SCENARIO: the program under `pinion run`, which must succeed and print "verified". It has no cache of its
# own, so it is led where the options say that keys outlive their registration.
registers() {
  rm -rf "$work/log"
  # shellcheck disable=SC2086
  LD_LIBRARY_PATH=$made_up timeout 120 "$pinion" run --log "$work/log" --remote-keys "${keys:-shared}" $1 -- "$made_up/registers" "$2" >"$work/out" 2>"$work/err" ||
    fail "$1 $2: status $?: $(cat "$work/out" "$work/err")"
  grep -q '^verified$' "$work/out" || fail "$1 $2: $(cat "$work/out" "$work/err")"
}
reached() { grep -q "^$1 reached the library$" "$work/out" || fail "$2: $(cat "$work/out"), not $1"; }
report_has() {
  local answer
  answer=$("$pinion" report "$work/log" --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(eval(sys.argv[1]))' "$1") || fail "$2: no report: $(cat "$work/err")"
  [ "$answer" = True ] || fail "$2: not so: $1"
}
says() { grep -qF "$1" "$work/err" || fail "$2: does not say '$1': $(cat "$work/err")"; }

# Two buffers, and the page by which a device learns whether forked children lack what is registered.
device active '1: DOWN' '4: ACTIVE'
registers "--retention leave-pinned" loop
reached 3 "a port is active"
report_has 'r["acts"] == "verbs" and r["retention"] == "leave-pinned" and r["acquires"]["total"] == 40' "a port is active"
says "below its libraries" "a port is active"
# The process was measured first: later registrations are met.
registers "--retention leave-pinned" measured
reached 3 "measured first"
report_has 'r["acts"] == "verbs" and r["acquires"]["misses"] == 2 and r["acquires"]["hits"] == 38' "measured first"
registers "--front verbs --retention leave-pinned" loop
reached 3 "front verbs"
for keys in auto strict; do
  registers "--retention leave-pinned" loop
  reached 40 "keys $keys"
  report_has 'r["acts"] == "verbs" and r["acquires"]["total"] == 0 and r["strict_keys_seconds"] > 0' "keys $keys"
done
unset keys
# A program that ends without deregistering has used its memory up to then.
registers "--retention leave-pinned" keeps
report_has 'r["registered_bytes"]["peak"] == r["registered_bytes"]["leave_pinned_peak"] == r["registered_bytes"]["oracle_peak"] == 1 << 20' "a lease that stays"

# An explicit device, or front mpi, leaves libraries alone.
for options in "--device pin" "--front mpi" "--off yes"; do
  registers "$options" loop
  reached 40 "$options"
done
# A device that is opened and not used; one that may not be opened; one that disappears under its registrations.
registers "" opens
reached 0 opens
says "did the program use MPI, or register memory with an RDMA device?" opens
# Memory that is pinned past the front: the caches of libraries above it would serve better.
registers "" unseen
says "pinned or locked, and no registration reached the verbs front" unseen
says "UCX_RCACHE_ENABLE=y" unseen
MADE_UP_REFUSES=1 registers "" loop
grep -q '^no device: Permission denied$' "$work/out" || fail "refused: $(cat "$work/out")"
says "did the program use MPI, or register memory with an RDMA device?" refused
for retention in on-demand leave-pinned helper; do
  registers "--retention $retention" unplugged
done

# A container that has the device's port, and no file of it: the caches of libraries stay on.
device contained '4: ACTIVE'
rm -r "$work/contained/dev"
registers "--retention leave-pinned" loop
reached 40 "no device file"
says "measured only, although an RDMA port is active: there is no /dev/infiniband/uverbs* here" "no device file"
grep -q "caches above" "$work/err" && fail "no device file: $(cat "$work/err")"

# A port that is down, a missing device, an empty directory: Pinion stays out.
device down '1: DOWN' '2: INIT'
registers "--retention leave-pinned" loop
reached 40 "no port is active"
says "did the program use MPI?" "no port is active"
device none
registers "--retention leave-pinned" loop
reached 40 "no device"
export PINION_TEST_INFINIBAND=$work/absent
registers "--retention leave-pinned" measured
reached 40 "no directory"
report_has 'r["acts"] == "measured" and r["retention"] == "observe" and r["registrations"] == 0' "no directory"
says "Pinion only measured: no NIC registers here" "no directory"

# The preload makes the settings where Pinion acts below, save beside a GPU, whose memory a library without its cache would
# register for each message.
# A bound on a cache that stays on is set beside a GPU too.
# made_on NODE: the values of made-up settings in a rank there.
made_on() {
  env PINION_TEST_INFINIBAND="$work/$1" PINION_CACHES_OFF="OTHER=1 mpi:MADE_UP_OTHER=1 kept:MADE_UP_BOUND=5 MADE_UP_CACHE=0" PINION= \
    LD_PRELOAD="$build/lib/libpinion-preload.so" printenv MADE_UP_CACHE MADE_UP_OTHER MADE_UP_BOUND | tr '\n' ' '
}
device gpu '4: ACTIVE'
mkdir -p "$work/gpu/gpu"
: >"$work/gpu/gpu/nvidiactl"
[ "$(made_on active)" = "0 5 " ] || fail "caches stay on without a GPU"
[ "$(made_on none)" = "" ] || fail "caches go off without a NIC"
[ "$(made_on gpu)" = "5 " ] || fail "caches go off beside a GPU"
"$pinion" run --log "$work/log" -- true 2>"$work/err"
says "caches above the verbs front stay on: this node has a GPU" "a GPU"
"$pinion" doctor >"$work/out" 2>&1
tr -s ' \n' ' ' <"$work/out" | grep -qF "here these caches stay on" || fail "doctor: $(cat "$work/out")"

# The caches above the front, by the installed libraries: each node decides whether they go off there. A launcher that stands on
# a node without a device hands on the proof, and the user's choice.
unwrap() { sed -i -z 's/\npinion: */ /g' "$work/err"; }
device active '4: ACTIVE'
"$pinion" run --log "$work/log" -- true 2>"$work/err"
unwrap
if grep -q 'switched off: .*libfabric .*FI_MR_CACHE_MAX_COUNT=0' "$work/err"; then
  launcher=$work/mpiexec
  printf '#!/bin/sh\nshift 2\nexec env PINION_TEST_INFINIBAND="$NODE" "$@"\n' >"$launcher"
  chmod +x "$launcher"
  # decides WANTED LAUNCHER'S-NODE RANK'S-NODE SETTING: the rank's variable.
  decides() {
    local got
    got=$(env PINION_TEST_INFINIBAND="$work/$2" NODE="$work/$3" "$4" "$pinion" run --log "$work/log" -- "$launcher" -hosts there \
      printenv FI_MR_CACHE_MAX_COUNT 2>"$work/err")
    [ "$got" = "$1" ] || fail "launcher on $2, rank on $3, $4: '$got', not '$1': $(cat "$work/err")"
  }
  decides 0 active active MINE=
  decides 0 none active MINE=
  decides "" none none MINE=
  decides 7 none active FI_MR_CACHE_MAX_COUNT=7
  decides "" none active PINION=front=mpi
else
  echo "skipped: libfabric's registrations do not lead into the front here"
fi

# A provider of libfabric's that is a plug-in, flat beside the library as Intel's: its calls are looked at, and its cache
# never starts a monitor that libfabric has imported.
mkdir -p "$work/intel"
echo '#include <stdint.h>
uint32_t fi_version(void) { return 1 << 16 | 99; }
int fi_open(uint32_t v, const char* n, void* a, unsigned long b, uint64_t f, void** fid, void* c) { return -38; }' |
  gcc -x c -shared -fPIC -Wl,-soname,libfabric.so.1 - -o "$work/intel/libfabric.so.1"
echo '#include <infiniband/verbs.h>
#undef ibv_reg_mr
struct ibv_mr* reg(struct ibv_pd* pd, void* a, size_t n) { return ibv_reg_mr(pd, a, n, 0); }
int dereg(struct ibv_mr* mr) { return ibv_dereg_mr(mr); }' |
  gcc -x c -shared -fPIC - -o "$work/intel/libverbs-1.12-fi.so" -libverbs
LD_LIBRARY_PATH=$work/intel "$pinion" run --log "$work/log" -- true 2>"$work/err"
unwrap
says "libfabric 1.99 FI_MR_CACHE_MAX_COUNT=0" "a flat plug-in"

# An MPI that has its UCX inside, as pip's have: found beside the launcher, by its own name; a system's is not looked at. A
# variable that the user has set is not advised.
venv=$work/venv
mkdir -p "$venv/bin" "$venv/lib/mpich/ucx"
printf '#!/bin/sh\nexec "$@"\n' >"$venv/bin/mpiexec"
chmod +x "$venv/bin/mpiexec"
echo 'void ucp_get_version(unsigned* a, unsigned* b, unsigned* c) { *a = 1, *b = 99, *c = 0; }' |
  gcc -x c -shared -fPIC -Wl,-soname,libucp.so.0 - -o "$venv/lib/mpich/libucp.so.0"
echo 'int uct;' | gcc -x c -shared -fPIC -Wl,-soname,libuct.so.0 - -o "$venv/lib/mpich/libuct.so.0"
echo 'int mpi;' | gcc -x c -shared -fPIC -Wl,-soname,libmpi.so.12 - -o "$venv/lib/libmpi.so.12" \
  -x none -Wl,--no-as-needed "$venv/lib/mpich/libucp.so.0" -Wl,--enable-new-dtags,-rpath,'$ORIGIN/mpich'
cp "$work/intel/libverbs-1.12-fi.so" "$venv/lib/mpich/ucx/libuct_ib.so.0"
PATH=$venv/bin:$PATH "$pinion" run --log "$work/log" -- mpiexec printenv PINION_CACHES_OFF >"$work/out" 2>"$work/err"
unwrap
says "switched off: UCX 1.99 UCX_RCACHE_ENABLE=n" "an MPI with its UCX inside"
grep -q "Open MPI" "$work/err" && fail "MPICH is taken for Open MPI: $(cat "$work/err")"
grep -q "mpi:UCX_RCACHE_ENABLE=n" "$work/out" || fail "an MPI with its UCX inside is not led: $(cat "$work/out")"
rm "$venv/lib/mpich/ucx/libuct_ib.so.0"
PATH=$venv/bin:$PATH "$pinion" run --log "$work/log" -- mpiexec true 2>"$work/err"
unwrap
says "UCX 1.99 keeps its registration cache" "a UCX without InfiniBand"
PATH=$venv/bin:$PATH UCX_RCACHE_ENABLE=n "$pinion" run --log "$work/log" -- mpiexec true 2>"$work/err"
grep -q "UCX 1.99" "$work/err" && fail "advice that was taken: $(cat "$work/err")"

# UCX's stays on in programs without MPI, under Pinion's limit.
"$pinion" run --log "$work/log" -- true 2>"$work/err"
unwrap
if grep -q 'switched off: .*UCX ' "$work/err"; then
  "$pinion" run --log "$work/log" --limit 64M -- env >"$work/out" 2>"$work/err"
  unwrap
  says "UCX_IB_MEM_REG_OVERHEAD=0.05us UCX_IB_MEM_REG_GROWTH=0ns (for MPI alone" "prices of registration"
  says "for MPI alone: without it UCX may die when a peer does; elsewhere it stays on, with UCX_" "the cache of UCX"
  grep -q '^UCX_.*RCACHE_MAX_SIZE=67108864$' "$work/out" || fail "UCX's limit: $(grep UCX "$work/out")"
  grep -q '^UCX_RCACHE_ENABLE' "$work/out" && fail "UCX's cache goes off without MPI: $(grep UCX "$work/out")"
  UCX_IB_RCACHE_MAX_SIZE=1m UCX_RCACHE_MAX_SIZE=1m "$pinion" run --log "$work/log" --limit 64M -- env >"$work/out" 2>"$work/err"
  UCX_IB_MEM_REG_OVERHEAD=1us "$pinion" run --log "$work/log" -- true 2>"$work/err"
  unwrap
  says "UCX_IB_MEM_REG_OVERHEAD=1us (yours)" "the user's price"
  UCX_RCACHE_ENABLE=y "$pinion" run --log "$work/log" -- true 2>"$work/err"
  grep -q 'MEM_REG' "$work/err" && fail "prices beside a cache that the user keeps: $(cat "$work/err")"
  grep -q '67108864' <(grep ^UCX "$work/out") && fail "the user's limit is replaced: $(grep UCX "$work/out")"
fi

[ "$failures" -eq 0 ]
