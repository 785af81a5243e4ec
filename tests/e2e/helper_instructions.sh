#!/usr/bin/env bash
# The helper's work for a use, in instructions: it learns from the record, decides, and predicts again. They
# are counted by callgrind in the simulator, which runs the helper's own code, while that code runs. The
# bounds are the counts that were measured and one tenth more, for other compilers.
source "$(dirname "$0")/script.bash"
command -v valgrind >/dev/null || exit 77

# instructions PATTERN ITERATIONS: of a use, in the mean
instructions() {
  timeout 400 valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
    --toggle-collect='pinion::Desk::take(*' --toggle-collect='pinion::HelperRetention::next(*' \
    "$build/libexec/pinion/papers" simulate --pattern "$1" --iterations "$2" --retention helper --noise 1% --json \
    >"$work/rows" 2>"$work/counted" || return
  python3 - "$work" <<'EOF'
import json, re, sys
uses = json.load(open(sys.argv[1] + "/rows"))["rows"][0]["acquires"]["total"]
print(int(re.search(r"Collected : (\d+)", open(sys.argv[1] + "/counted").read()).group(1)) // uses)
EOF
}

for case in "bt:A:4 40 7900" "mg:D:4 20 8600"; do
  read -r pattern iterations bound <<<"$case"
  count=$(instructions "$pattern" "$iterations")
  echo "$pattern: $count instructions a use"
  [ -n "$count" ] && [ "$count" -gt 0 ] && [ "$count" -le "$bound" ] || fail "$pattern: '$count' instructions a use, not $bound"
done

[ "$failures" -eq 0 ]
