#!/usr/bin/env bash
# Reports name the line of Python that made a copy, whether or not the interpreter's lock is held. On a made-up driver
# (tests/support/made_up_cuda), with each interpreter at hand.
source "$(dirname "$0")/script.bash"
pinion=$build/bin/pinion
program=$(dirname "$0")/../gpu/programs/lines.py
export LD_LIBRARY_PATH=$build/tests/made_up_cuda

# line_of TEXT: the number of the program's line with it.
line_of() { grep -n "$1" "$program" | cut -d: -f1 | tail -1; }
step="lines.py:$(line_of "# the call's line") in Trainer.step"
caller="lines.py:$(line_of "# the package's caller") in main.<locals>.step"

# names PYTHON WAY PLACE: of the call site of a program's copies.
names() {
  local log=$work/log
  rm -rf "$log"
  "$pinion" run --log "$log" -- "$1" "$program" "$2" >"$work/output" 2>&1 ||
    fail "$1, $2: status $?: $(cat "$work/output")"
  grep -q '^lines: copied$' "$work/output" || fail "$1, $2: $(cat "$work/output")"
  local places
  places=$("$pinion" report --json "$log" |
    python3 -c 'import json, sys; print({s["python"] for s in json.load(sys.stdin)["call_sites"]})')
  [ "$places" = "{'$3'}" ] || fail "$1, $2: $places instead of $3"
  "$pinion" report "$log" >"$work/report"
  one_line "$work/report" | grep -qF "$3 (other lines with this call are the same site)" ||
    fail "$1, $2: the report: $(cat "$work/report")"
}

tried=
for python in python3 /usr/bin/python3 python3.11 python3.12 python3.13 python3.14; do
  version=$($python -c 'import sys; print(*sys.version_info[:3])' 2>/dev/null) || continue
  read -r _ minor _ <<<"$version"
  { [ "$minor" -lt 11 ] || finds "$version," <<<"$tried"; } && continue
  tried+="$version,"
  names $python released "$step"
  names $python held "$step"
  names $python thread "$step"
  names $python extension "$caller"
  names $python foreign '?:2 in ?'
done
[ -n "$tried" ] || exit 77

[ $failures -eq 0 ]
