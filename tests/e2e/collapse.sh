#!/usr/bin/env bash
# `--hugepages auto`, by device `pin`: buffers that are there already get hugepages from the helper, on cores that are all busy, beside
# threads that write to them and children that are forked. `off` and an administrator's `never` make none.
. "$(dirname "$0")/script.bash"
here=$(cd "$(dirname "$0")" && pwd)
grep -q '\[never\]' /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null && exit 77
[ "$(printf '6.1\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.1 ] || exit 77
cc -O2 -I "$here/../../include" "$here/collapse.c" -o "$work/collapse" -L "$build/lib" -lpinion -Wl,-rpath,"$build/lib" -pthread || exit 1

# run HUGEPAGES SECONDS [COMMAND...]
run() {
  rm -rf "$work/log"
  PINION="hugepages=$1,time-budget=10%,minimum-gain=0,log=$work/log" "${@:3}" "$work/collapse" "$2" >"$work/out" || fail "$1: $(cat "$work/out")"
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
# made_none WHAT: neither by the report nor by the kernel.
made_none() {
  [ "$(cat "$work/figures")" = '0 0 False' ] && finds '^0 MiB in hugepages' <"$work/out" || fail "$1: $(cat "$work/figures" "$work/out")"
}
run off 3
made_none off

# The setting is an administrator's, as this process alone sees it.
echo 'always madvise [never]' >"$work/never"
never() { unshare -m sh -c 'mount --bind "$0" /sys/kernel/mm/transparent_hugepage/enabled && exec "$@"' "$work/never" "$@"; }
if never true 2>/dev/null; then
  run auto 3 never
  made_none never
  never "$build/bin/pinion" doctor >"$work/doctor"
  one_line "$work/doctor" | finds '`--hugepages auto` makes none: an administrator has switched them off' || fail "never: $(grep -A3 transparent "$work/doctor")"
fi
switched_off='import ctypes, os, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])'
python3 -c "$switched_off" "$build/bin/pinion" doctor >"$work/doctor"
one_line "$work/doctor" | finds '`--hugepages auto` makes none: they are switched off for this process' || fail "prctl: $(grep -A3 transparent "$work/doctor")"
[ $failures -eq 0 ] && echo "hugepages by the helper: ok"
exit $((failures != 0))
