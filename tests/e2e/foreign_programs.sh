#!/usr/bin/env bash
# Programs unlike others: the C library itself; and children of another loader than the preload's, of musl and of 32 bits, which
# run as without Pinion and print nothing of their loaders', beside children that run under it. A path of the preload serves each
# kind of system by `$LIB`.
source "$(dirname "$0")/script.bash"

# The C library as a program, which prints its version: no library stands behind the preload.
libc=$(ldd "$build/bin/pinion" | awk '$1 ~ /^libc\.so/ {print $3}')
for heap in yes no; do
  "$build/bin/pinion" run --hugepages="$heap" -- "$libc" >"$work/out" 2>"$work/err" || fail "$libc: status $?: $(cat "$work/err")"
  grep -q '^GNU C Library' "$work/out" || fail "$libc: $(cat "$work/out" "$work/err")"
done

cat >"$work/child.c" <<'END'
#include <stdio.h>
#include <string.h>
int main(void) {
  char line[4096];
  int loaded = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) loaded |= strstr(line, "/libpinion.so.0") != NULL;
  puts(loaded ? "with" : "without");
  return 0;
}
END
kinds=()
# child KIND COMPILER...: whose program can be made and run here.
child() {
  local kind=$1
  shift
  "$@" "$work/child.c" -o "$work/$kind" 2>/dev/null && "$work/$kind" >/dev/null 2>&1 && kinds+=("$kind")
}
child native gcc || { fail "no program can be made"; exit 1; }
child musl musl-gcc
child small gcc -m32
[ ${#kinds[@]} -gt 1 ] || { echo "skipped: neither musl-gcc nor gcc -m32 makes programs: apt-get install musl-tools libc6-dev-i386 lib32gcc-12-dev"; exit 77; }

# A script starts them, so pinion's words do not name them.
{ echo '#!/bin/sh -e'; printf '%s\n' "${kinds[@]/#/$work/}"; } >"$work/parent"
chmod +x "$work/parent"
for monitor in auto symbols; do
  PINION_TEST_MONITOR=$monitor "$build/bin/pinion" run --hugepages -- "$work/parent" >"$work/out" 2>"$work/err" || fail "$monitor: status $?: $(cat "$work/err")"
  [ "$(cat "$work/out")" = "$(echo with; for _ in "${kinds[@]:1}"; do echo without; done)" ] || fail "$monitor: $(cat "$work/out" "$work/err")"
  grep -v '^pinion: ' "$work/err" && fail "$monitor: $(cat "$work/err")"
done

# Each kind of system has its word: Fedora and SUSE, Arch and Nix, Debian and Ubuntu. A remote shell puts nothing in its place.
for lib in '' lib64 lib lib/x86_64-linux-gnu; do
  LD_PRELOAD=$build/lib/pinion/$lib/libpinion-preload.so "$work/native" >"$work/out" 2>"$work/err" || fail "$lib: status $?"
  [ "$(cat "$work/out")" = with ] && [ ! -s "$work/err" ] || fail "$lib: $(cat "$work/out" "$work/err")"
done
[ "$failures" -eq 0 ]
