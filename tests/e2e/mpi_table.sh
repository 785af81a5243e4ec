#!/usr/bin/env bash
# The table of MPI calls is complete, right and tested, and docs/mpi-functions.md has it.
. "$(dirname "$0")/common.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
front=$source/src/intercept/mpi

mpicc=$(command -v mpicc.$family || command -v mpicc) || exit 77
python3 "$source/tests/intercept/mpi/table_check.py" "$front/generate.py" "$front/calls.table" "$mpicc" "$programs" ||
  fail "calls.table"

python3 "$front/generate.py" "$front/calls.table" --docs >"$work/table"
sed -n '/^| function |/,/^$/p' "$source/docs/mpi-functions.md" | sed '/^$/d' >"$work/documented"
diff "$work/documented" "$work/table" || fail "docs/mpi-functions.md is not what generate.py --docs says"

[ "$failures" -eq 0 ]
