#!/usr/bin/env bash
# An unchanged program: HPC Challenge finds its answers right under Pinion.
only_family=openmpi
. "$(dirname "$0")/common.bash"
command -v hpcc >/dev/null || exit 77
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)

for options in "--retention on-demand" "--retention leave-pinned --device emulated" "--retention helper" \
  "--retention helper --device emulated --tune threshold=1"; do
  cd "$(mktemp -d -p "$work")" || exit 1
  "$scripts/hpcc-input" --small .
  under "$options" 2 hpcc || fail "$options: status $?: $(cat "$work/err")"
  grep -q '^Success=1$' hpccoutf.txt || fail "$options: hpcc says no"
  books_balance "$options: hpcc"
  report_says "$options: hpcc" 'r.acquires.total > 500'
done

[ "$failures" -eq 0 ]
