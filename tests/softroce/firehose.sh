#!/usr/bin/env bash
# The clients of firehose with libfabric's provider verbs over Soft-RoCE, on up to four processes: they check their own
# answers. Some minutes on a processor that is emulated.
#
#   tests/softroce/firehose.sh BUILD-DIRECTORY
set -euo pipefail
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/guest" <<END
export FI_UNIVERSE_SIZE=4  # rxe's queues are short
cd /tmp
failed=0
timeout 60 "$build/tests/softroce/firehose_verbs_test" || failed=1
run() {
  timeout 100 "$build/bin/examples/gas" "\$@" --provider 'verbs;ofi_rxm' --figures >out 2>&1
  echo "gas \$*"
  if ! grep ': verified\$' out; then
    cat out
    failed=1
  fi
  grep -E '^(puts|misses|distinct_buckets|messaged) ' out | tr '\n' ' '
  echo
}
for processes in 2 3 4; do
  run cannon --puts 2000 --block 32 --processes \$processes  # on a square of them: 1 or 4
  run bitonic --puts 500 --keys 2000 --processes \$processes  # 2 or 4
  run random-put --puts 1000 --sets 64K 2M --window 8 --processes \$processes --memory 1M
  run hash-table --keys 100 --processes \$processes
  run exchange --piece 300001 --processes \$processes
done
run random-put --puts 20000 --sets 64K 1M --processes 2 --memory 16M
exit \$failed
END
"$build/bin/pinion" softroce --memory 2G --timeout 1800s -- bash "$work/guest"
