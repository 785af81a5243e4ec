#!/usr/bin/env bash
# An MPI program whose buffers, kept by its library, exceed the system's limits: without Pinion it ends with
# an error; under `pinion run` it ends verified. Once under RLIMIT_MEMLOCK as an ordinary user, once in a
# cgroup with few RDMA objects (regions, queues and protection domains alike), and where hpcc is installed
# once more under RLIMIT_MEMLOCK with that application. Fifteen minutes on a processor that is emulated.
#
#   tests/softroce/scarce.sh BUILD-DIRECTORY
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
few=/sys/fs/cgroup/few

cat >"$work/guest" <<END
export UCX_TLS=rc,self UCX_UD_VERBS_ETH_DGID_CHECK=n OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME=/tmp
mkdir -m 777 /tmp/work && cd /tmp/work || exit
chmod 666 /dev/infiniband/*
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || true  # it may be there
echo +rdma >/sys/fs/cgroup/cgroup.subtree_control && mkdir $few || exit
failed=0
# try WHAT PROGRAM BEFORE...: the program without Pinion and under it, behind the words BEFORE.
try() {
  local what=\$1 program=\$2
  shift 2
  for command in "" "$build/bin/pinion run --log /tmp/log --"; do
    name=Pinion
    [ -n "\$command" ] || name=alone
    rm -rf /tmp/log hpccoutf.txt
    timeout 600 "\$@" \$command mpirun.openmpi --oversubscribe -n 2 --mca pml ucx \$program >/tmp/out 2>&1
    status=\$?
    if grep -qsxE 'verified|Success=1' /tmp/out hpccoutf.txt; then ended=verified; else ended="not verified"; fi
    echo "\$what, \${command:+under }\$name: status \$status, \$ended"
    grep -E 'ibv_reg_mr.*failed|^pinion:' /tmp/out | cut -c1-200 | sort | uniq -c | sort -rn | head -8
    if [ -n "\$command" ] && [ "\$ended" != verified ]; then tail -20 /tmp/out; failed=1; fi
    if [ -z "\$command" ] && [ "\$ended" = verified ]; then echo "FAILED: \$what is not scarce"; failed=1; fi
  done
}
loop="/usr/bin/python3 $here/scarce_program.py"
bare="setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all --bounding-set=-all"
try "RLIMIT_MEMLOCK of ${MEMLOCK:=98304} KiB" "\$loop 5 8388608 3" prlimit --memlock=\$(($MEMLOCK * 1024)) \$bare
if command -v hpcc >/dev/null; then
  "$here/../../scripts/hpcc-input" --small
  try "HPCC, RLIMIT_MEMLOCK of ${HPCC_MEMLOCK:=84480} KiB" hpcc prlimit --memlock=\$(($HPCC_MEMLOCK * 1024)) \$bare
fi
try "${OBJECTS:=70} RDMA objects" "\$loop 60 262144 3" bash -c \
  'echo "rxe0 hca_object=$OBJECTS" >$few/rdma.max; echo 0 >$few/cgroup.procs; exec "\$@"' -
exit \$failed
END
"$build/bin/pinion" softroce --memory 2G --timeout 1800s -- bash "$work/guest"
