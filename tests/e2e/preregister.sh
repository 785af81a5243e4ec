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

python3=/usr/bin/python3
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
  under "--preregister 512M --preregister-mmaps 1M --hugepage-threshold 1G --retention helper" 2 $python3 "$work/mappings.py" || fail "mappings: status $?: $(cat "$work/err")"
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
