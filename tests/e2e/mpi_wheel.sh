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

# The wheel for MPICH needs the library's name that all of its family but Debian have.
if [ "$family" = mpich ]; then
  library=$(ldd "$programs/mpi_counted" | sed -nE 's/^[[:space:]]*libmpi(ch)?\.so\.12 => ([^ ]+).*/\2/p')
  ln -s "$library" "$work/libmpi.so.12"
  export LD_LIBRARY_PATH=$work MPI4PY_LIBMPI=$work/libmpi.so.12
fi
export MPI4PY_MPIABI=$family

exchange=("$python" "$(dirname "$0")/../intercept/mpi/exchange.py" --count-missing)

PINION=off LD_PRELOAD=$preload ranks 2 "${exchange[@]}" >"$work/plain" 2>&1 || fail "off: status $?"
under "" 2 "${exchange[@]}" || fail "status $?: $(head -n 5 "$work/err")"
verified && cmp -s "$work/plain" "$work/out" || fail "$(head -n 5 "$work/plain" "$work/out" "$work/err")"
books_balance "wheel"
report_says "wheel" 'r.acquires.total >= 60 and r.ranks == 2'

[ "$failures" -eq 0 ]
