#!/usr/bin/env bash
# Endpoints and large messages with libfabric's provider verbs over Soft-RoCE: every protocol, sizes around the
# thresholds, a thousand outstanding, a peer that is killed or stopped, 200 connections; and the example ping. Contents
# are checked. Three minutes on a processor that is emulated.
#
#   tests/softroce/transfers.sh BUILD-DIRECTORY
set -euo pipefail
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/guest" <<END
export FI_UNIVERSE_SIZE=4 PINION_TEST_SCALE=1  # rxe's queues are short, and it is slow to open
cd /tmp
failed=0
for test in transfer_endpoint large_messages_fabric; do
  "$build/tests/softroce/\${test}_over_verbs_test" || failed=1
done
for bytes in 1 4096 65537 1000000; do
  "$build/bin/examples/ping" \$bytes 'verbs;ofi_rxm' | tee ping.out
  grep -qx 'ping: verified' ping.out || failed=1
done
exit \$failed
END
"$build/bin/pinion" softroce --memory 2G --timeout 1800s -- bash "$work/guest"
