#!/usr/bin/env bash
# The verbs front below UCX, on a kernel's RDMA device: two ranks of Open MPI, whose UCX registers for each message. Half a
# minute where the machine is idle; on a busy one Soft-RoCE itself may stall under emulation, without Pinion too.
#
#   tests/softroce/ucx.sh BUILD-DIRECTORY
set -euo pipefail
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/guest" <<END
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd "$work" || exit
# A rank's log is mapped: not where the other maps it through another machine's file system.
UCX_TLS=rc,self UCX_UD_VERBS_ETH_DGID_CHECK=n "$build/bin/pinion" run --front verbs --retention leave-pinned --log /tmp/ucx -- \\
  mpirun --oversubscribe -n 2 --mca pml ucx "$build/bin/examples/figure1" --iterations 5 2>&1 | tee ucx
"$build/bin/pinion" report /tmp/ucx --json >ucx.json
END
"$build/bin/pinion" softroce --share "$work" --timeout 200s -- bash "$work/guest"

# Its registrations for 15 messages of three buffers, each in its own call of MPI.
grep -q verified "$work/ucx"
grep -q '^pinion: registration caches above.*UCX_RCACHE_ENABLE=n' "$work/ucx"
python3 - "$work/ucx.json" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
assert "--front verbs" in report["device"], report["device"]
assert report["ranks"] == 2 and all(rank["registrations"] > 0 for rank in report["per_rank"])
assert report["acquires"]["hits"] >= 10 and report["registrations"] == report["deregistrations"]
assert report["pinned_at_exit_bytes"] == 0
assert any(site["call"] == "send" for site in report["call_sites"]), report["call_sites"]
END
echo "as expected"
