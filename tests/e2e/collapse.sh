#!/usr/bin/env bash
# `--hugepages auto`, by device `pin`: buffers that are there already get hugepages from the helper, on cores that are all busy, beside
# threads that write to them and children that are forked. `off` makes none.
. "$(dirname "$0")/script.bash"
here=$(cd "$(dirname "$0")" && pwd)
grep -q '\[never\]' /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null && exit 77
[ "$(printf '6.1\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.1 ] || exit 77
cc -O2 -I "$here/../../include" "$here/collapse.c" -o "$work/collapse" -L "$build/lib" -lpinion -Wl,-rpath,"$build/lib" -pthread || exit 1

# run HUGEPAGES SECONDS
run() {
  rm -rf "$work/log"
  PINION="hugepages=$1,time-budget=10%,minimum-gain=0,log=$work/log" "$work/collapse" "$2" >"$work/out" || fail "$1: $(cat "$work/out")"
  finds ', whole, ' <"$work/out" || fail "$1: $(cat "$work/out")"
  "$build/bin/pinion" report "$work/log" --json >"$work/json" || fail "$1: no report"
  python3 -c '
import json, sys
made = json.load(open(sys.argv[1]))["helpers_hugepages"]
print(made["bytes"] >> 20, sum(made["refused_bytes"].values()) >> 20, made["cpu_seconds"] > 0 and made["longest_seconds"] > 0)' "$work/json" >"$work/figures"
}
run auto 60
read -r made _ timed <"$work/figures"
[ "$made" -ge 24 ] && [ "$timed" = True ] || fail "auto: $made MiB by the report; $(cat "$work/out")"
run off 3
read -r made refused timed <"$work/figures"
[ "$made $refused $timed" = '0 0 False' ] || fail "off: $made $refused $timed"
[ $failures -eq 0 ] && echo "hugepages by the helper: ok"
exit $((failures != 0))
