#!/usr/bin/env bash
# The HPC Challenge benchmark runs with the input that scripts/hpcc-input writes, and finds its answers right.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
command -v hpcc >/dev/null || exit 77
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

"$scripts/hpcc-input" --small "$directory"
cd "$directory"
mpirun -n 2 hpcc
grep '^Success=1$' hpccoutf.txt
