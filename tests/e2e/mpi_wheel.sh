#!/usr/bin/env bash
# mpi4py as PyPI has it: one binary for all versions of an MPI, which tests by weak references which functions there are.
# pip brings it into the build directory once.
. "$(dirname "$0")/common.bash"

python=
for candidate in python3 /usr/bin/python3; do
  "$candidate" -m pip --version >/dev/null 2>&1 && python=$(command -v "$candidate") && break
done
[ -n "$python" ] || { echo "no Python with pip: skipped"; exit 77; }
site=$build/mpi4py-wheel-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
(
  flock 9
  [ -d "$site/mpi4py" ] ||
    timeout 100 "$python" -m pip install --quiet --no-deps --only-binary :all: --target "$site" 'mpi4py>=4,<5'
) 9>"$site.lock" >"$work/pip" 2>&1
[ -d "$site/mpi4py" ] || { echo "pip cannot bring mpi4py's wheel: skipped: $(tail -n 1 "$work/pip")"; exit 77; }
export PYTHONPATH=$site

# The wheel for MPICH asks for the name that all of its family but Debian have.
if [ "$family" = mpich ]; then
  library=$(ldd "$programs/mpi_counted" | sed -nE 's/^[[:space:]]*libmpi(ch)?\.so\.12 => ([^ ]+).*/\2/p')
  ln -s "$library" "$work/libmpi.so.12"
  export LD_LIBRARY_PATH=$work MPI4PY_LIBMPI=$work/libmpi.so.12
fi
export MPI4PY_MPIABI=$family

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
    good = good and world.sendrecv(list(range(50_000)), other) == list(range(50_000))
# Functions that come and go with the version of MPI raise NotImplementedError where they are missing.
missing = 0
for attempt in (lambda: MPI.Session.Init().Finalize(), lambda: MPI.BYTE.Get_value_index(MPI.INT, MPI.INT)):
    try:
        attempt()
    except NotImplementedError:
        missing += 1
    except MPI.Exception:
        pass
if world.allreduce(good, MPI.LAND) and me == 0:
    print(missing, "verified")
END_OF_PROGRAM

PINION=off LD_PRELOAD=$preload ranks 2 "$python" "$work/exchange.py" >"$work/plain" 2>&1 || fail "off: status $?"
under "" 2 "$python" "$work/exchange.py" || fail "status $?: $(head -n 5 "$work/err")"
verified && cmp -s "$work/plain" "$work/out" || fail "$(head -n 5 "$work/plain" "$work/out" "$work/err")"
books_balance "wheel"
report_says "wheel" 'r.acquires.total >= 60 and r.ranks == 2'

[ "$failures" -eq 0 ]
