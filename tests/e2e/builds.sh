#!/usr/bin/env bash
# A preload that meets the libpinion of another build reports it in one line, and the program runs as it does
# alone. A path for libraries decides here which libpinion the process gets.
. "$(dirname "$0")/common.bash"

# others_library WHAT WITH: libpinion with each WHAT replaced.
others_library() {
  python3 - "$build/lib/libpinion.so" "$work/libpinion.so.0" "$1" "$2" <<'PYTHON' || fail "no '$1' in libpinion"
import re, sys
code = open(sys.argv[1], "rb").read()
changed, times = re.subn(sys.argv[3].encode(), sys.argv[4].encode(), code)
open(sys.argv[2], "wb").write(changed)
sys.exit(times == 0 or len(changed) != len(code))
PYTHON
}

# stays_off PROGRAM ARGUMENTS...: each of two ranks prints one line.
stays_off() {
  rm -rf "$work/log"
  ranks 2 env LD_LIBRARY_PATH="$work" LD_PRELOAD="$preload" PINION="log=$work/log" "$@" >"$work/out" 2>"$work/err" ||
    fail "$*: status $?: $(cat "$work/out" "$work/err")"
  verified || fail "$*: $(cat "$work/out" "$work/err")"
  [ "$(grep -c '^pinion: .*/libpinion-preload.so is not of the same build as .*/libpinion.so.0,' "$work/err")" -eq 2 ] ||
    fail "$*: $(cat "$work/err")"
}

others_library 'pinion-build-[0-9a-f]{8}' 'pinion-build-another!'
stays_off "$programs/mpi_counted"
[ ! -e "$work/log" ] || fail "left a log"
# A program that uses the libpinion it brings goes on to do so.
stays_off "$programs/mpi_beside_api" first alone

# One from before there were stamps.
others_library '11build_stampE' '11build_stampX'
stays_off "$programs/mpi_counted"

[ "$failures" -eq 0 ]
