#!/usr/bin/env bash
# Programs under `pinion run --preregister`: results are the same, and the arena serves requests.
only_family=openmpi
. "$(dirname "$0")/common.bash"

# served NAME: the summary has the arena's line, with requests that it served.
served() {
  grep -qE '^pinion: .*with an arena: [1-9][0-9,]* of ' "$work/err" || fail "$1: $(cat "$work/err")"
}

under "--preregister 512M --retention leave-pinned" 2 "$examples/fft3d" --grid 128x64x64 --iterations 10 || fail "fft3d: status $?: $(cat "$work/err")"
verified || fail "fft3d: $(cat "$work/out")"
served fft3d
books_balance fft3d
report_says fft3d 'r.arena.processes >= 2 and r.arena.served > 0 and r.arena.registrations > 0'

to "$work/out" "$work/err" "$pinion" run --preregister 1M -- true
[ $? -eq 2 ] || fail "a bad value: $(cat "$work/err")"

if python3=/usr/bin/python3 && $python3 -c 'import numpy' 2>/dev/null; then
  cat >"$work/arrays.py" <<'END2'
import numpy
a = numpy.arange(4_000_000, dtype=float).reshape(2000, 2000)
for _ in range(5):
    b = numpy.concatenate([a, a.T]) + 1
print(int(b.sum()), int(numpy.sort(b.ravel())[::1000].sum()))
END2
  $python3 "$work/arrays.py" >"$work/expected"
  to "$work/out" "$work/err" "$pinion" run --preregister 512M -- $python3 "$work/arrays.py" || fail "numpy: status $?"
  cmp -s "$work/out" "$work/expected" || fail "numpy: $(cat "$work/out")"
fi

if command -v hpcc >/dev/null; then
  scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
  (cd "$work" && "$scripts/hpcc-input" --small . >/dev/null)
  cd "$work" || exit 1
  under "--preregister 512M --retention helper" 2 hpcc || fail "hpcc: status $?: $(cat "$work/err")"
  grep -q '^Success=1$' hpccoutf.txt || fail "hpcc says no"
  served hpcc
fi

exit $((failures > 0))
