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
  for client in "${small[@]}"; do
    # shellcheck disable=SC2086
    verified_on_some $client --provider "$provider"
  done
done

[ "$failures" -eq 0 ]
