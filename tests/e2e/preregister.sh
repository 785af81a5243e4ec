#!/usr/bin/env bash
# Programs under `pinion run --preregister`: results are the same, and the arena serves requests.
only_family=openmpi
. "$(dirname "$0")/common.bash"

# served NAME: the summary has the arena's line, with requests that it served.
served() {
  grep -qE '^pinion: .*with an arena: [1-9][0-9,]* of ' "$work/err" || fail "$1: $(cat "$work/err")"
  books_balance "$1"
}

under "--preregister 512M --retention leave-pinned" 2 "$examples/fft3d" --grid 128x64x64 --iterations 10 || fail "fft3d: status $?: $(cat "$work/err")"
verified || fail "fft3d: $(cat "$work/out")"
served fft3d
grep -q '^pinion: The arena served [1-9][0-9,]* of [0-9,]* transfers' "$work/err" || fail "fft3d: its verdict: $(cat "$work/err")"
report_says fft3d 'r.arena.processes >= 2 and r.arena.served > 0 and r.arena.registrations > 0'

to "$work/out" "$work/err" "$pinion" run --preregister 1M -- true
[ $? -eq 2 ] || fail "a bad value: $(cat "$work/err")"

# A mapping without rights to write moves and ends. The block that was the copy is writable again, though its segment
# stays registered.
cat >"$work/rights.c" <<'CODE'
#define _GNU_SOURCE
#include <pinion/pinion.h>
#include <string.h>
#include <sys/mman.h>
enum { BYTES = 4 << 20 };
static pinion_domain* domain;
static char* map(size_t bytes) { return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static int transfer(char* memory) {
  pinion_lease lease = PINION_LEASE_INIT;
  return pinion_acquire(domain, memory, BYTES, 1, &lease) || pinion_release(&lease);
}
int main(void) {
  if (pinion_start(NULL) || pinion_domain_open("pin", NULL, &domain)) return 1;
  char* const kept = map(BYTES);
  for (int round = 0; round < 20; ++round) {
    if (transfer(kept)) return 2;
    char* memory = map(BYTES);
    memset(memory, 1, BYTES);
    if (transfer(memory)) return 2;
    mprotect(memory, BYTES, PROT_READ);
    memory = mremap(memory, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED || memory[BYTES - 1] != 1 || munmap(memory, 2 * BYTES)) return 3;
    char* const large = map(16 * BYTES);
    memset(large, 1, 16 * BYTES);
    if (transfer(large) || munmap(large, 16 * BYTES)) return 2;
  }
  return pinion_stop() ? 5 : 0;
}
CODE
gcc -O1 -I"$(dirname "$0")/../../include" "$work/rights.c" -o "$work/rights" -L"$build/lib" -Wl,-rpath,"$build/lib" -lpinion || fail "rights: it does not compile"
for try in 1 2 3 4; do
  to "$work/out" "$work/err" "$pinion" run --preregister 128M --tune preregister-mmaps=1M --device pin -- "$work/rights" || fail "rights: status $?: $(cat "$work/err")"
done

python3=/usr/bin/python3
if [ -x $python3 ]; then
  cat >"$work/fixed.py" <<'END'
import ctypes, errno, tempfile
libc = ctypes.CDLL(None, use_errno=True)
size, word = ctypes.c_size_t, ctypes.c_long
libc.mmap.restype = libc.mremap.restype = size
libc.mmap.argtypes = [size, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, word]
libc.mremap.argtypes = [size, size, size, ctypes.c_int, size]
libc.munmap.argtypes = [size, size]
PAGE, MIB, FAILED = 4096, 1 << 20, ctypes.c_size_t(-1).value
RW, SHARED, PLAIN, FIXED = 3, 1, 0x22, 0x10
def mapping(bytes):
    at = libc.mmap(0, bytes, RW, PLAIN, -1, 0)
    assert at != FAILED
    return at
def has(at):
    """The line of /proc/self/maps."""
    for line in open("/proc/self/maps"):
        begin, end = (int(x, 16) for x in line.split()[0].split("-"))
        if begin <= at < end:
            return line
def is_file(at):
    return "deleted" in (has(at) or "") and "/dev/zero" not in has(at)
def refused(result, error):
    assert result == FAILED and ctypes.get_errno() == error, (hex(result), ctypes.get_errno())
file = tempfile.TemporaryFile()
file.truncate(MIB)
def lay_over(at):
    assert libc.mmap(at, MIB, RW, SHARED | FIXED, file.fileno(), 0) == at
    ctypes.memset(at, 5, MIB)
def is_kept():
    file.seek(0)
    return file.read() == b"\5" * MIB

# Over memory that the program has unmapped.
free = mapping(4 * MIB)
assert libc.munmap(free, 4 * MIB) == 0 and has(free), "the arena's addresses stay reserved"
lay_over(free)
for _ in range(4):
    ctypes.memset(mapping(4 * MIB), 9, 4 * MIB)
assert is_kept() and is_file(free)
assert libc.munmap(free, MIB) == 0 and not is_file(free)

# Over a mapping: the kernel moves what is of the file, and nothing with a part of the file.
own = mapping(4 * MIB)
lay_over(own)
refused(libc.mremap(own, MIB, 2 * MIB, 0, 0), errno.ENOMEM)
refused(libc.mremap(own, 2 * MIB, 3 * MIB, 1, 0), errno.EFAULT)
moved = libc.mremap(own, MIB, 2 * MIB, 1, 0)
assert moved != FAILED and is_file(moved) and is_file(moved + MIB)
ctypes.memset(moved, 6, MIB)
file.seek(0)
assert file.read() == b"\6" * MIB
assert libc.munmap(moved, 2 * MIB) == 0 and has(own) and not is_file(own), "the arena's addresses stay reserved"
own = mapping(4 * MIB)
lay_over(own)
assert libc.mremap(own, MIB, MIB // 2, 1, 0) == own
assert is_kept() and is_file(own) and not is_file(own + MIB // 2)
refused(libc.mremap(own + MIB, MIB, MIB, 2, own + 2 * MIB), errno.EINVAL)
refused(libc.mmap(0, 4 * MIB, RW, PLAIN, -1, 1), errno.EINVAL)
# The kernel refuses lengths beyond the address space. The mapping stays.
whole = mapping(4 * MIB)
ctypes.memset(whole, 7, 4 * MIB)
for length in 1 << 47, 1 << 60:
    assert libc.munmap(whole, length) == -1 and ctypes.get_errno() == errno.EINVAL
for flags in 0, 1:
    refused(libc.mremap(whole, MIB, 2**64 - 4 * MIB, flags, 0), errno.EINVAL)
assert ctypes.string_at(whole, 4 * MIB) == b"\7" * (4 * MIB)
# A refused MAP_FIXED leaves the mapping alone, so advice reaches its pages.
refused(libc.mmap(whole, 1 << 60, RW, PLAIN | FIXED, -1, 0), errno.ENOMEM)
refused(libc.mmap(whole, MIB, RW, SHARED | FIXED, -1, 0), errno.EBADF)
refused(libc.mremap(own + 1, MIB, MIB, 3, whole), errno.EINVAL)
assert libc.madvise(ctypes.c_size_t(whole), ctypes.c_size_t(MIB), 4) == 0
assert ctypes.string_at(whole, 4 * MIB) == b"\0" * MIB + b"\7" * (3 * MIB)
assert libc.munmap(whole, 4 * MIB) == 0
# A mapping that grows keeps its rights.
grows = mapping(2 * MIB)
assert libc.mprotect(ctypes.c_size_t(grows), ctypes.c_size_t(2 * MIB), 1) == 0
grows = libc.mremap(grows, 2 * MIB, 4 * MIB, 1, 0)
assert [has(grows + at).split()[1][:3] for at in (0, 2 * MIB, 4 * MIB - 1)] == ["r--"] * 3
assert libc.munmap(grows, 4 * MIB) == 0

# This moves memory from outside, by mremap.
moved = libc.mmap(0, MIB, RW, SHARED, file.fileno(), 0)
assert moved != FAILED and not own <= moved < own + 4 * MIB
assert libc.mremap(moved, MIB, MIB, 3, own + 2 * MIB) == own + 2 * MIB
out = libc.mmap(0, MIB, RW, SHARED, file.fileno(), 0)
assert libc.mremap(own + 2 * MIB, MIB, MIB, 3, out) == out and is_file(out) and not is_file(own + 2 * MIB)
assert libc.munmap(out, MIB) == 0
assert libc.munmap(own, 4 * MIB) == 0

# Private parts over a mapping move with it.
def filled(at):
    return all(ctypes.string_at(at + i * MIB, MIB) == bytes([i + 1]) * MIB for i in range(4))
for parts in [1], [0], [3], [0, 1, 2, 3]:
    for target in "chosen", "wanted", "in the arena":
        own = mapping(4 * MIB)
        for part in parts:
            assert libc.mmap(own + part * MIB, MIB, RW, PLAIN | FIXED, -1, 0) == own + part * MIB
        for i in range(4):
            ctypes.memset(own + i * MIB, i + 1, MIB)
        place = 0 if target == "chosen" else mapping(5 * MIB) if target == "in the arena" else libc.mmap(0, 5 * MIB, 0, PLAIN, -1, 0)
        moved = libc.mremap(own, 4 * MIB, 5 * MIB, 3 if place else 1, place)
        assert moved != FAILED and filled(moved) and moved == (place or moved), (parts, target, ctypes.get_errno())
        assert libc.munmap(moved, 5 * MIB) == 0
for _ in range(4):
    ctypes.memset(mapping(4 * MIB), 9, 4 * MIB)
for _ in range(4):
    ctypes.memset(mapping(4 * MIB), 9, 4 * MIB)
assert is_kept()

# Here nothing may be replaced.
NOREPLACE = 0x100000
def at_free_place(at):
    return libc.mmap(at, MIB, RW, PLAIN | NOREPLACE, -1, 0)
own = mapping(4 * MIB)
refused(at_free_place(own), errno.EEXIST)
assert libc.munmap(own, 4 * MIB) == 0
assert at_free_place(own + MIB) == own + MIB
refused(at_free_place(own + MIB), errno.EEXIST)
ctypes.memset(own + MIB, 5, MIB)
for _ in range(4):
    ctypes.memset(mapping(4 * MIB), 9, 4 * MIB)
assert ctypes.string_at(own + MIB, MIB) == b"\5" * MIB
assert libc.munmap(own + MIB, MIB) == 0
own = mapping(4 * MIB)

# Across the arena's end, where nothing lies behind it.
end = own
while (line := has(end)) is not None:
    end = int(line.split()[0].split("-")[1], 16)
    if not has(end) and "---p" in line:
        assert libc.munmap(end - MIB, MIB + PAGE) == 0
        assert has(end - PAGE), "still reserved"

# Memory that the program keeps from its children, under a registration and after it.
import os
pinion, domain, lease = ctypes.CDLL(None), ctypes.c_void_p(), (ctypes.c_uint64 * 20)()
pinion.pinion_acquire.argtypes = [ctypes.c_void_p, size, size, ctypes.c_uint, ctypes.c_void_p]
libc.madvise.argtypes = [size, size, ctypes.c_int]
DONTFORK = 10
assert pinion.pinion_start(None) == 0 and pinion.pinion_domain_open(b"pin", None, ctypes.byref(domain)) == 0
own = mapping(4 * MIB)
ctypes.memset(own, 7, 4 * MIB)
assert pinion.pinion_acquire(domain, own, 64 << 10, 1, lease) == 0
assert libc.madvise(own + MIB, MIB, DONTFORK) == 0
def child_lacks_it():
    child = os.fork()
    if child == 0:
        rest = ctypes.string_at(own, MIB) + ctypes.string_at(own + 2 * MIB, 2 * MIB)
        os._exit(0 if has(own + MIB) is None and rest == b"\7" * 3 * MIB else 1)
    return os.waitpid(child, 0)[1] == 0
assert child_lacks_it(), "under a lease"
assert pinion.pinion_release(lease) == 0
assert child_lacks_it() and child_lacks_it(), "without one"

# Ended past munmap: a next mapping has its addresses.
MUNMAP = 11
if os.uname().machine == "x86_64":
    assert libc.syscall(word(MUNMAP), size(own), size(4 * MIB)) == 0
    assert any(mapping(4 * MIB) == own for _ in range(8))
print("right")
END
  # Children that no handler of forks sees; what they write stays theirs.
  cat >"$work/children.py" <<'END'
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
word, size, BLOCK = ctypes.c_long, ctypes.c_size_t, 4 << 20
libc.malloc.restype = size
libc.malloc.argtypes = [size]
libc.syscall.restype = word
pinion, domain, lease = ctypes.CDLL(None), ctypes.c_void_p(), (ctypes.c_uint64 * 20)()
pinion.pinion_acquire.argtypes = [ctypes.c_void_p, size, size, ctypes.c_uint, ctypes.c_void_p]
assert pinion.pinion_start(None) == 0 and pinion.pinion_domain_open(b"pin", None, ctypes.byref(domain)) == 0
block = libc.malloc(BLOCK)
def is_filled(byte):
    return ctypes.string_at(block, BLOCK) == byte * BLOCK
def write_as_child():
    right = is_filled(b"\7")
    ctypes.memset(block, 9, BLOCK)
    own = libc.malloc(8 << 20)
    ctypes.memset(own, 1, 8 << 20)
    return 0 if right and is_filled(b"\t") else 1
Run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
run = Run(lambda _: write_as_child())
stack = ctypes.create_string_buffer(1 << 20)
def cloned():
    libc.clone.argtypes = [Run, size, ctypes.c_int, ctypes.c_void_p]
    return libc.clone(run, (ctypes.addressof(stack) + (1 << 20)) & ~15, signal.SIGCHLD, None)
def returning(child):
    if child == 0:
        os._exit(write_as_child())
    return child
ways = {"fork": lambda: returning(os.fork()), "clone": cloned}
if hasattr(libc, "_Fork"):
    ways["_Fork"] = lambda: returning(libc._Fork())
machine = os.uname().machine
if machine in ("x86_64", "aarch64"):
    CLONE, CLONE3 = {"x86_64": 56, "aarch64": 220}[machine], 435
    if machine == "x86_64":
        ways["syscall fork"] = lambda: returning(libc.syscall(word(57)))
    ways["syscall clone"] = lambda: returning(libc.syscall(word(CLONE), word(signal.SIGCHLD), *[word(0)] * 4))
    arguments = (ctypes.c_uint64 * 8)(0, 0, 0, 0, signal.SIGCHLD)
    ways["syscall clone3"] = lambda: returning(libc.syscall(word(CLONE3), ctypes.byref(arguments), size(64)))
for registered in False, True:
    if registered:
        assert pinion.pinion_acquire(domain, block, 64 << 10, 1, lease) == 0
    for name, way in ways.items():
        ctypes.memset(block, 7, BLOCK)
        child = way()
        assert child > 0, (name, child)
        assert os.waitpid(child, 0)[1] == 0, (name, registered, "in the child")
        assert is_filled(b"\7"), (name, registered, "the child's contents")
print("right")
END
  for program in fixed children; do
    mmaps=1M threshold=1G
    [ $program = fixed ] || mmaps=0 threshold=32K
    to "$work/out" "$work/err" fresh_run --preregister 512M --tune preregister-mmaps=$mmaps --tune hugepage-threshold=$threshold -- $python3 "$work/$program.py" || fail "$program: status $?: $(cat "$work/err")"
    [ "$(cat "$work/out")" = right ] || fail "$program: $(cat "$work/out")"
  done
fi
if $python3 -c 'import numpy, mpi4py' 2>/dev/null; then
  cat >"$work/arrays.py" <<'END'
import numpy
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
a = numpy.arange(500_000, dtype=float) * (rank + 1)
for _ in range(5):
    b = numpy.empty_like(a)
    MPI.COMM_WORLD.Allreduce(a, b)
    a = numpy.concatenate([b[1:], b[:1]]) % 1009
if rank == 0:
    print(int(a.sum()), int(numpy.sort(a)[::1000].sum()))
END
  ranks 2 $python3 "$work/arrays.py" >"$work/expected" || fail "numpy without Pinion: status $?"
  under "--preregister 512M --retention helper" 2 $python3 "$work/arrays.py" || fail "numpy: status $?: $(cat "$work/err")"
  cmp -s "$work/out" "$work/expected" || fail "numpy: $(cat "$work/out")"
  served numpy

  # Arrays in mappings of their own, which end in each iteration; malloc's blocks stay outside of the arena.
  cat >"$work/mappings.py" <<'END'
import mmap, numpy
from mpi4py import MPI
def mapping(bytes):
    return mmap.mmap(-1, bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
rank = MPI.COMM_WORLD.rank
total = 0
for i in range(8):
    a, b = (numpy.frombuffer(mapping(8 * 300_000), dtype=float) for _ in range(2))
    assert not a.any() and not b.any()
    a[:] = numpy.arange(a.size) % 1009 + rank + i
    MPI.COMM_WORLD.Allreduce(a, b)
    total += int(b.sum())
    grown = mapping(1 << 20)
    grown[:] = b"x" * (1 << 20)
    grown.resize(3 << 20)
    assert grown[: 1 << 20] == b"x" * (1 << 20) and not any(grown[1 << 20 :])
if rank == 0:
    print(total)
END
  ranks 2 $python3 "$work/mappings.py" >"$work/expected" || fail "mappings without Pinion: status $?"
  under "--preregister 512M --tune preregister-mmaps=1M --tune hugepage-threshold=1G --retention helper" 2 $python3 "$work/mappings.py" || fail "mappings: status $?: $(cat "$work/err")"
  cmp -s "$work/out" "$work/expected" || fail "mappings: $(cat "$work/out")"
  served mappings
else
  echo "no numpy with mpi4py: Python goes untried"
fi

# Many seconds: with PINION_TEST_SCALE above 1 alone.
if [ -n "$all" ] && command -v hpcc >/dev/null; then
  hpcc_under "--preregister 512M --retention helper"
  served hpcc
fi

[ "$failures" -eq 0 ]
