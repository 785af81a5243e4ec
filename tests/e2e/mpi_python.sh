#!/usr/bin/env bash
# MPI that an interpreter loads late: Debian's mpi4py.
only_family=openmpi
. "$(dirname "$0")/common.bash"
python=/usr/bin/python3
$python -c 'import mpi4py' 2>/dev/null || exit 77

cat >"$work/exchange.py" <<'END_OF_PROGRAM'
from mpi4py import MPI

world = MPI.COMM_WORLD
me, other = world.rank, 1 - world.rank
out, into = bytearray([me + 1] * 400_000), bytearray(400_000)
good = True
for turn in range(10):
    request = world.Irecv([into, MPI.BYTE], other)
    world.Send([out, MPI.BYTE], other)
    request.Wait()
    good = good and into == bytearray([other + 1] * 400_000)
    world.Allreduce(MPI.IN_PLACE, [into, MPI.BYTE], MPI.BOR)
    good = good and into == bytearray([3] * 400_000)
    # Objects of any kind: matched probes and messages of all sizes.
    good = good and world.sendrecv(list(range(50_000)), other) == list(range(50_000))
if world.allreduce(good, MPI.LAND) and me == 0:
    print("verified")
END_OF_PROGRAM

for retention in observe on-demand leave-pinned lru helper; do
  under "--retention $retention" 2 $python "$work/exchange.py" || fail "$retention: status $?: $(cat "$work/err")"
  verified || fail "$retention: $(cat "$work/out" "$work/err")"
  books_balance "$retention"
  report_says "$retention" 'r.acquires.total >= 60 and r.ranks == 2'
done

[ "$failures" -eq 0 ]
