#!/usr/bin/env bash
# The clients of firehose check their own answers: over each provider of libfabric, on several numbers of processes, under
# each strategy, with room for few buckets and for all.
. "$(dirname "$0")/script.bash"
gas=$build/bin/examples/gas
[ -x "$gas" ] || exit 77

small=(
  "cannon --puts 200 --block 32"
  "bitonic --puts 100 --keys 2000"
  "random-put --puts 1000 --sets 64K 256K"
  "hash-table --keys 100"
  "exchange --piece 300001"
)

# verified ARGUMENTS...: of gas; its output goes to $work/out.
verified() {
  timeout 240 "$gas" "$@" >"$work/out" 2>&1 || fail "gas $*: status $?: $(cat "$work/out")"
  grep -q ': verified$' "$work/out" || fail "gas $*: $(cat "$work/out")"
}
# figure NAME: of the last run with --figures.
figure() { sed -n "s/^$1 //p" "$work/out"; }

providers=()
for provider in 'tcp;ofi_rxm' shm sockets; do
  if timeout 60 "$gas" exchange --processes 2 --piece 8 --provider "$provider" >"$work/out" 2>&1; then
    providers+=("$provider")
  else
    grep -q 'no provider' "$work/out" || fail "$provider: $(cat "$work/out")"
  fi
done
[ ${#providers[@]} -gt 0 ] || exit 77

case ${PINION_TEST_SCALE:-1} in 1 | 0*) full= ;; *) full=yes ;; esac
counts=(2 3 4 8) turn=0
# verified_on_some ARGUMENTS...: with one number of processes in turn; in full with each.
verified_on_some() {
  local count
  if [ -n "$full" ]; then
    for count in "${counts[@]}"; do verified "$@" --processes "$count"; done
  else
    verified "$@" --processes "${counts[turn++ % ${#counts[@]}]}"
  fi
}

for provider in "${providers[@]}"; do
  # A message takes sockets tens of milliseconds where its threads have no core of their own.
  if [ -z "$full" ]; then
    case $provider in
      shm) small=("bitonic --puts 100 --keys 2000" "hash-table --keys 50") ;;
      sockets) small=("exchange --piece 30001") ;;
    esac
  fi
  for client in "${small[@]}"; do
    # shellcheck disable=SC2086
    verified_on_some $client --provider "$provider"
  done
done

provider=${providers[0]}
for strategy in pin-everything rendezvous rendezvous-unpin bounce; do
  verified_on_some hash-table --keys 50 --provider "$provider" --strategy "$strategy"
done
for memory in 192K 1M 64M; do
  verified_on_some random-put --puts 1000 --sets 64K 2M --window 8 --provider "$provider" --memory "$memory"
done

# The paper's own algorithm, and ours, with less memory than is put to.
for own in "" "--sharing static --rides off"; do
  # shellcheck disable=SC2086
  verified random-put --puts 2000 --sets 1M --processes 3 --provider "$provider" --bucket 4K --memory 64K --victims 16K --figures $own
  [ "$(figure pinned_bytes)" -le 81920 ] && [ "$(figure unpins)" -gt 0 ] || fail "beyond M: $own: $(cat "$work/out")"
done
[ "$(figure messaged)" = 0 ] || fail "every miss waits for its bucket: $(cat "$work/out")"

verified exchange --piece 3M --hugepages --processes 2 --provider "$provider"
verified random-put --puts 2000 --sets 256K --window 32 --scattered --processes 3 --provider "$provider"

if [ "$provider" = 'tcp;ofi_rxm' ]; then
  verified random-put --puts 3000 --sets 2M --processes 3 --provider "$provider" --memory 64M --figures
  [ "$(figure misses)" -gt 0 ] && [ "$(figure misses)" -le "$(figure distinct_buckets)" ] && [ "$(figure refusals)" = 0 ] ||
    fail "with room for all, each bucket is asked for once, or ahead: $(cat "$work/out")"
fi

if [ -n "$full" ]; then
  "$build/bin/pinion" bench firehose --rounds 1 --json --provider "$provider" >"$work/json" 2>&1 &&
    python3 -c '
import json, sys
rows = {(r["case"], r["subject"], r["metric"]): r for r in json.load(open(sys.argv[1]))["rows"]}
subjects = ("firehose", "pin-everything", "rendezvous", "rendezvous-unpin", "bounce")
for case in ("cannon", "bitonic", "random-put"):
    for subject in subjects:
        assert rows[case, subject, "puts"]["value"] >= 8000, (case, subject)
        assert rows[case, subject, "p99_us"]["provider"] == sys.argv[2]
assert rows["properties", "bounce", "copied_share"]["value"] == 1
assert rows["properties", "pin-everything", "full_memory"]["value"] == 0' "$work/json" "$provider" ||
    fail "bench firehose: $(tail -5 "$work/json")"
fi

[ "$failures" -eq 0 ]
