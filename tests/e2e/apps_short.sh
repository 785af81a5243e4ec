#!/usr/bin/env bash
# Applications of other people, the short form: part of mpi4py's own suite, and NetPIPE's integrity checks,
# under the helper at both thresholds. All of them, under everything: tests/apps/run.
. "$(dirname "$0")/common.bash"
apps=$(cd "$(dirname "$0")/../apps" && pwd)

# try PATTERN SUITE
try() {
  "$apps/run" --build "$build" --runs "$work/runs" --mpi "$family" --retention helper --only "$1" "$2" || fail "$2"
}

try '^netpipe -l 1 -a$' netpipe
if [ "$family" = openmpi ]; then
  # Its tests are fetched once.
  if "$apps/install" openmpi mpi4py; then
    try '^test_(p2p_buf|cco_buf|rma|objmodel)$' mpi4py
  else
    echo "mpi4py's tests cannot be fetched: skipped"
  fi
fi

[ "$failures" -eq 0 ]
