#!/usr/bin/env bash
# A program sees exactly the functions that its MPI has, whether Pinion is on, off or absent.
. "$(dirname "$0")/common.bash"
anywhere=$build/bin/tests

# same LINES COMMAND...: at least so many functions seen, and the same ones with the preload.
same() {
  local lines=$1 off
  shift
  "$@" >"$work/plain" 2>&1 || fail "$*: $(tail -n 3 "$work/plain")"
  [ "$(wc -l <"$work/plain")" -ge "$lines" ] || fail "$*: $(wc -l <"$work/plain") lines, not $lines"
  for off in "" off; do
    PINION=$off LD_PRELOAD=$preload "$@" >"$work/out" 2>&1 || fail "$*: $(tail -n 3 "$work/out")"
    cmp -s "$work/plain" "$work/out" || fail "$* ${off:-on}: $(diff "$work/plain" "$work/out" | head -n 5)"
  done
}

library=$(ldd "$programs/mpi_visible" | sed -nE 's/^[[:space:]]*lib(mpi|mpich)\.so\.[0-9]+ => ([^ ]+).*/\2/p' | head -n 1)
same 2000 "$programs/mpi_visible"
same 2000 "$programs/mpi_visible_no_pie"
same 2000 env LD_BIND_NOW=1 "$programs/mpi_visible"
same 2 "$anywhere/mpi_visible_alone"
same 2000 "$anywhere/mpi_visible_alone" "$library" "$anywhere/libmpi_visible_plugin.so"
same 1000 "$anywhere/mpi_visible_alone" "$library" "$programs/libmpi_visible_plugin_with_mpi.so" alone

[ "$failures" -eq 0 ]
