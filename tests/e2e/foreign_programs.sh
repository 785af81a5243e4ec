#!/usr/bin/env bash
# Programs unlike others: the C library itself; commands below a root directory without Pinion; and children of another loader than the
# preload's, of musl and of 32 bits. They run as without Pinion and print nothing of their loaders', beside children that run under
# it: a path of the preload serves each kind of system by `$LIB`.
source "$(dirname "$0")/script.bash"

# The C library as a program, which prints its version: no library stands behind the preload.
libc=$(ldd "$build/bin/pinion" | awk '$1 ~ /^libc\.so/ {print $3}')
for heap in yes no; do
  "$build/bin/pinion" run --hugepages="$heap" -- "$libc" >"$work/out" 2>"$work/err" || fail "$libc: status $?: $(cat "$work/err")"
  grep -q '^GNU C Library' "$work/out" || fail "$libc: $(cat "$work/out" "$work/err")"
done

# A root directory without Pinion: its commands run as without Pinion, one line says so, and another preload stays.
root=$work/root
mkdir -p "$root/bin" "$root/$work"
cp "$(command -v dash || command -v bash)" "$root/bin/sh"
ldd "$root/bin/sh" | grep -o '/[^ ]*' | while read -r needed; do mkdir -p "$root$(dirname "$needed")" && cp -L "$needed" "$root$needed"; done
if [ "$(id -u)" -eq 0 ]; then
  for other in '' other.so; do
    LD_PRELOAD=$other "$build/bin/pinion" run --hugepages -- chroot "$root" /bin/sh -c '/bin/sh -c "echo \"<\$LD_PRELOAD>\""; /bin/sh -c :' \
      >"$work/out" 2>"$work/err" || fail "chroot: status $?: $(cat "$work/err")"
    [ "$(cat "$work/out")" = "<$other>" ] || fail "chroot: $(cat "$work/out" "$work/err")"
    [ "$(grep -c 'below the new root run without Pinion' "$work/err")" -eq 1 ] || fail "chroot: $(cat "$work/err")"
    grep 'libpinion.*cannot be preloaded' "$work/err" && fail "chroot: $(cat "$work/err")"
  done
fi

# Where /proc is missing, programs run all the same, and commands say what they lack.
if unshare -m sh -c 'mount -t tmpfs none /proc' 2>/dev/null; then
  without_proc() { unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh timeout 60 "$@" >"$work/out" 2>"$work/err"; }
  without_proc "$build/bin/pinion" run -- echo right || fail "without /proc: status $?: $(cat "$work/err")"
  [ "$(cat "$work/out")" = right ] && [ "$(grep -c . "$work/err")" -le 1 ] || fail "without /proc: $(cat "$work/out" "$work/err")"
  without_proc "$build/bin/pinion" doctor
  grep -q '/proc is missing' "$work/out" || fail "doctor without /proc: status $?: $(tail -3 "$work/out" "$work/err")"
fi

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
