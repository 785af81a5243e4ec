#!/usr/bin/env bash
# Applications that know nothing of Pinion, the short form: part of mpi4py's own suite, and NetPIPE's integrity checks,
# under the helper at both thresholds. All of them, under everything: tests/apps/run.
. "$(dirname "$0")/common.bash"
apps=$(cd "$(dirname "$0")/../apps" && pwd)

# try MPIS PATTERN SUITE
try() {
  "$apps/run" --build "$build" --runs "$work/runs" --mpi "$1" --retention helper --only "$2" "$3" || fail "$3"
}

try openmpi,mpich '^netpipe -l 1 -a$' netpipe
# Its tests are fetched once.
if "$apps/install" openmpi mpi4py; then
  try openmpi '^test_(p2p_buf|cco_buf|rma|objmodel)$' mpi4py
else
  echo "mpi4py's tests cannot be fetched: skipped"
fi

[ "$failures" -eq 0 ]
