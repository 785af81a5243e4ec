#!/usr/bin/env bash
# The version is stated everywhere alike, and reads what earlier ones left: settings, a log and a profile of 0.1 (tests/releases).
# The log is of two ranks, for 1.6 s, by `pinion run --device emulated --time-budget 20% --minimum-gain 4096 --profile prof`.
source "$(dirname "$0")/script.bash"
pinion=$build/bin/pinion
kept=$(cd "$(dirname "$0")/../releases/0.1" && pwd)

# One version, in the header; packages state the same.
source_tree=$(cd "$(dirname "$0")/../.." && pwd)
version=$("$pinion" --version) version=${version#pinion }
for place in pyproject.toml:"version = \"$version\"" python/pyproject.toml:"version = \"$version\"" CITATION.cff:"version: $version" \
  packaging/spack/package.py:"version(\"$version\")" CHANGELOG.md:"## $version"; do
  grep -qF "${place#*:}" "$source_tree/${place%%:*}" || fail "${place%%:*} lacks ${place#*:}"
done

# A retired option is a warning.
PINION_CONFIG=$kept/settings "$pinion" info options --all >"$work/out" 2>"$work/err" || fail "settings: $(cat "$work/err")"
grep -v 'has no effect any more' "$work/err" && fail "settings: $(cat "$work/err")"
[ "$(grep -c "$kept/settings" "$work/out")" -ge 32 ] || fail "fewer settings come from the file"

gzip -dc "$kept/run.plog.gz" >"$work/run.plog"
report=$("$pinion" report --json "$work/run.plog") || fail "the log"
python3 - "$report" <<'CHECK' || fail "the log has other figures"
import json, sys
r = json.loads(sys.argv[1])
assert (r["version"], r["ranks"], r["retention"]) == ("0.1.0", 2, "helper")
assert (r["acquires"]["total"], r["registered_bytes"]["peak"]) == (356, 23093248)
assert any("exchange" in site["name"] for site in r["call_sites"])
CHECK
cp "$kept"/profile* "$work"  # a simulation keeps what it learns
"$build/libexec/pinion/papers" simulate "$work/run.plog" --retention helper --profile "$work/profile" >"$work/out" 2>"$work/err" || fail "the profile: $(cat "$work/out")"
[ ! -s "$work/err" ] || fail "the profile: $(cat "$work/err")"
[ "$failures" -eq 0 ]
