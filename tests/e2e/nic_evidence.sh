#!/usr/bin/env bash
# scripts/nic-evidence where there is no NIC: one line, status 2, and nothing written. What it sends has no names and no addresses.
# With a NIC it was tried in the machine of `pinion softroce`, which takes minutes.
source "$(dirname "$0")/script.bash"
script=$(cd "$(dirname "$0")/../.." && pwd)/scripts/nic-evidence

if [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
  "$script" "$work/folder" >"$work/out" 2>&1
  status=$?
  [ $status -eq 2 ] && [ "$(wc -l <"$work/out")" -eq 1 ] && grep -q '^nic-evidence: no RDMA device here' "$work/out" || fail "status $status: $(cat "$work/out")"
  [ ! -e "$work/folder" ] || fail "it wrote: $(ls "$work/folder")"
fi

python3 - "$script" >"$work/out" 2>&1 <<'END' || fail "$(cat "$work/out")"
import getpass
import importlib.machinery
import importlib.util
import os
import socket
import sys

loader = importlib.machinery.SourceFileLoader("evidence", sys.argv[1])
sys.dont_write_bytecode = True
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("evidence", loader))
loader.exec_module(module)
getpass.getuser = lambda: "alice"
socket.gethostname = lambda: "node17.site.example"
socket.getfqdn = lambda: "node17.site.example"
os.environ["HOME"] = "/home/alice"
text = '"/home/alice/e/logs/node17.1234.plog /home/alice/x alice@node17 fe80:0000:0000:0000:0202:c9ff:fe00:0001 02:02:c9:00:00:01 10.77.0.1 3.10.0-1160 5.8.0.1 16.35.2000"'
want = '"FOLDER/logs/HOST.1234.plog HOME/x USER@HOST ADDRESS ADDRESS ADDRESS 3.10.0-1160 5.8.0.1 16.35.2000"'
got = module.without_names(text, "/home/alice/e")
assert got == want, got
END
[ "$failures" -eq 0 ]
