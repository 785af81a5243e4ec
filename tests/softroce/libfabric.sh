#!/usr/bin/env bash
# libfabric's registration cache over a kernel's RDMA device, by the contents of transfers: under Pinion as its
# monitor (by the call, and by the preload), under its own, and Pinion's hooks beside libfabric's. About a minute.
#
#   tests/softroce/libfabric.sh BUILD-DIRECTORY
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

gcc -O1 -std=gnu11 -Wall -I"$here/../../include" -I"$here/.." "$here/libfabric_cache.c" -o "$work/cache" \
  -L"$build/lib" -lpinion -lfabric -lpthread -Wl,-rpath,"$build/lib"
cat >"$work/guest" <<END
export ADDRESS=10.77.0.1
failed=0
# try EXPECTED-STATUS WORDS...: the program must print them.
try() {
  local expected=\$1 status
  shift
  timeout 60 env "\$@" 2>&1 | grep -v '^libfabric:.*<warn>'
  status=\${PIPESTATUS[0]}
  [ \$status = \$expected ] || { echo "FAILED (status \$status): \$*"; failed=1; }
}
cache=$work/cache
try 3 \$cache deaf # the instrument: without events, other contents are sent
try 0 \$cache feed
try 0 LD_PRELOAD=$build/lib/libpinion-preload.so \$cache own
try 0 \$cache feed before
try 0 \$cache feed after
try 0 FI_MR_CACHE_MONITOR=memhooks \$cache own
try 0 FI_MR_CACHE_MONITOR=memhooks \$cache own before
try 0 FI_MR_CACHE_MONITOR=memhooks \$cache own after
try 0 FI_MR_CACHE_MONITOR=userfaultfd \$cache own after
try 0 FI_MR_CACHE_MONITOR=disabled \$cache own
exit \$failed
END
"$build/bin/pinion" softroce --memory 1G --timeout 300s -- bash "$work/guest"
