#!/usr/bin/env bash
# The self-checking MPI programs print the same under Pinion and alone, and acquires and releases balance.
. "$(dirname "$0")/common.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)

try() {
  local options=$1 n=$2
  shift 2
  under "$options" "$n" "$@" || fail "$options: $*: status $?: $(cat "$work/out" "$work/err")"
  cmp -s "$work/plain" "$work/out" || fail "$options: $*: $(cat "$work/out")"
  books_balance "$options: $*"
}

devices=(pin emulated)
for program in "2 blocking" "2 requests" "2 datatypes" "2 threads" "2 collectives" "3 collectives"; do
  read -r n name <<<"$program"
  ranks "$n" "$programs/mpi_$name" >"$work/plain" 2>&1 || fail "$name without Pinion"
  choose_retentions
  for retention in "${retentions[@]}"; do
    try "--retention $retention --tune threshold=1 --device ${devices[turn++ % 2]}" "$n" "$programs/mpi_$name"
  done
  try "--device ${devices[turn++ % 2]}" "$n" "$programs/mpi_$name"
done

# Each of these makes 80 large transfers a rank: each is seen once, through every interface.
for name in counted counted_mpif counted_f90 counted_f08; do
  [ -x "$programs/mpi_$name" ] || continue
  ranks 2 "$programs/mpi_$name" >"$work/plain" 2>&1 || fail "$name without Pinion"
  choose_retentions
  for retention in "${retentions[@]}"; do
    try "--retention $retention" 2 "$programs/mpi_$name"
    report_says "$retention: $name" 'r.acquires.total == 160 and r.ranks == 2'
  done
done

# Derived types as gather lists, by the header that is compiled for this MPI; C99 takes it too.
echo '#include <pinion/mpi_gather.h>' >"$work/header.c"
"$(command -v "mpicc.$family" || command -v mpicc)" -std=c99 -Wall -Wextra -Werror -I"$source/include" -c "$work/header.c" \
  -o "$work/header.o" || fail "the header of derived types in C99"
to "$work/out" "$work/err" ranks 1 "$programs/mpi_gathered" && verified || fail "gathered: $(cat "$work/out" "$work/err")"

# An MPI that only a plugin brings.
ranks 2 "$programs/mpi_plugin_host" "$programs/libmpi_plugin.so" >"$work/plain" 2>&1 || fail "plugin without Pinion"
try "" 2 "$programs/mpi_plugin_host" "$programs/libmpi_plugin.so"
report_says plugin 'r.acquires.total == 40'

# An MPI that is loaded by name, and its functions looked up in it.
library=$(ldd "$programs/mpi_counted" | sed -nE 's/^[[:space:]]*lib(mpi|mpich)\.so\.[0-9]+ => ([^ ]+).*/\2/p' | head -n 1)
ranks 2 "$programs/mpi_lookup" "$library" >"$work/plain" 2>&1 || fail "lookup without Pinion: $(cat "$work/plain")"
try "" 2 "$programs/mpi_lookup" "$library"
report_says lookup 'r.acquires.total == 80'

# A library in the program uses Pinion too: one engine, and one log, for both.
for order in first last; do
  ranks 2 "$programs/mpi_beside_api" $order >"$work/plain" 2>&1 || fail "beside the API, $order: $(cat "$work/plain")"
  try "" 2 "$programs/mpi_beside_api" $order
  report_says "beside the API, $order" 'r.ranks == 2'
done

# Inside a launcher, rank 0 sums up.
ranks 2 "$pinion" run --device pin -- "$programs/mpi_counted" >"$work/out" 2>"$work/err" || fail "inside mpirun: status $?"
verified || fail "inside mpirun: $(cat "$work/out")"
[ "$(grep -c '^pinion: rank 0 on .*: registered .*; 80 transfers: ' "$work/err")" -eq 1 ] || fail "inside mpirun: $(cat "$work/err")"

[ "$failures" -eq 0 ]
