#!/usr/bin/env bash
# On a real kernel RDMA stack, in the virtual machine of `pinion softroce`: the tests of tests/softroce, a program of the
# C API and an MPI program whose memory an RDMA device registers; an MPI program below whose UCX Pinion registers; and
# the command itself.
source "$(dirname "$0")/script.bash"
pinion=$build/bin/pinion
here=$(cd "$(dirname "$0")" && pwd)

if [ "$(uname -m)" != x86_64 ]; then
  echo "skipped: the virtual machine runs on x86-64 alone"
  exit 77
fi

refused() {
  local want=$1 output status
  shift
  output=$("$pinion" softroce "$@" 2>&1)
  status=$?
  [ $status -eq 2 ] && [ "$(wc -l <<<"$output")" -eq 1 ] || fail "$*: status $status: $output"
  grep -q -- "$want" <<<"$output" || fail "$*: $output"
}
refused 'no command given'
refused '--memory 1: valid is a size' --memory 1 -- true
refused '--timeout soon: valid is a time' --timeout soon -- true
refused 'no such directory' --share "$work/none" -- true

# A QEMU whose processor never does anything, as where /dev/kvm is there and does not work: it is ended after a minute.
mkdir "$work/asleep"
cat >"$work/asleep/qemu-system-x86_64" <<'END'
#!/usr/bin/env bash
while [ "$1" != -pidfile ]; do shift; done
echo $$ >"$2"
trap 'kill %1; exit 0' TERM
sleep 300 & wait
END
chmod +x "$work/asleep/qemu-system-x86_64"
PATH=$work/asleep:$PATH timeout 200 "$pinion" softroce --kvm -- true >"$work/asleep/out" 2>&1 &
asleep=$!

# One machine for all that runs in it.
mkdir "$work/shared"
cat >"$work/inside" <<END
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1  # the command is root there
export FI_UNIVERSE_SIZE=4  # libfabric's queues for more processes are longer than rxe's
cd "$work/shared" || exit
for test in "$build"/tests/softroce/*_test; do
  case \$test in  # of the matrix a part: it takes half a minute
    *memory_matrix*) export GTEST_FILTER='*UnmapWhole*:*UnmapPart*:*MapOver*:*RemapMove*:*DontNeed*:*FreeLarge*:GoneMeanwhile.*' ;;
    *transfer_endpoint_over*) export GTEST_FILTER='*MovesDataBothWays*' ;;  # all of it: softroce/transfers.sh
    *large_messages_fabric_over*) export GTEST_FILTER='*EveryProtocol*' ;;
    *) export GTEST_FILTER='*' ;;
  esac
  "\$test" >"\$(basename "\$test").log" 2>&1
  echo "\$? \$(basename "\$test")" >>tests
done
"$build/bin/examples/gas" random-put --puts 300 --sets 64K --processes 2 --provider 'verbs;ofi_rxm' --figures >gas 2>&1
# An endpoint that cannot be opened: libfabric 1.17 crashed where its queue was read.
{ env -u FI_UNIVERSE_SIZE "$build/bin/examples/gas" random-put --puts 300 --sets 64K --processes 2 --provider 'verbs;ofi_rxm'; echo "status \$?"; } >refused 2>&1
PINION=device=verbs,retention=leave-pinned "$build/bin/examples/registration_cache" 30 >example 2>&1
PINION=device=verbs:mlx5_0 "$build/bin/examples/registration_cache" 30 >no_device 2>&1
"$pinion" info devices >devices
"$pinion" run --device verbs --log log -- mpirun --oversubscribe -n 2 "$build/bin/examples/figure1" --iterations 5 >figure1 2>&1
"$pinion" report log --json >report.json
# The default is below Open MPI's library, if the node has a port that is active.
UCX_TLS=rc,self UCX_UD_VERBS_ETH_DGID_CHECK=n "$pinion" run --log auto_log -- mpirun --oversubscribe -n 2 --mca pml ucx \
  "$build/bin/examples/figure1" --iterations 5 >auto 2>&1
"$pinion" report auto_log --json >auto.json
UCX_TLS=rc,self UCX_UD_VERBS_ETH_DGID_CHECK=n "$pinion" run --preregister 128M --tune preregister-remote=yes --log arena_log -- \
  mpirun --oversubscribe -n 2 --mca pml ucx "$build/bin/examples/figure1" --iterations 5 >arena 2>&1
"$pinion" report arena_log --json >arena.json
"$here/../softroce/ucx_protocols" "$build" --in-machine >protocols 2>&1
echo \$? >protocols_status
"$pinion" doctor >doctor 2>&1
echo to the one; echo to the other >&2
exit 7
END
"$pinion" softroce --share "$work/shared" --timeout 800s -- bash "$work/inside" >"$work/out" 2>"$work/err"
status=$?
if [ $status -eq 125 ] && finds 'no kernel' <"$work/err" && ! finds '^ID=debian' </etc/os-release; then
  cat "$work/err"
  exit 77
fi
cd "$work/shared" || exit
[ $status -eq 7 ] || fail "status $status: $(cat "$work/out" "$work/err")"
[ "$(cat "$work/out")" = "to the one" ] || fail "standard output: $(cat "$work/out")"
[ "$(tail -1 "$work/err")" = "to the other" ] || fail "standard error: $(cat "$work/err")"

ran=0
while read -r status test; do
  ran=$((ran + 1))
  [ "$status" -eq 0 ] || { fail "$test"; cat "$test.log"; }
  grep -qE '^\[  PASSED  \] [1-9]' "$test.log" || fail "$test ran nothing"
done <tests
[ $ran -eq "$(ls "$build"/tests/softroce/*_test | wc -l)" ] || fail "$ran tests ran"

# All of it: softroce/firehose.sh. Puts travel by message while a starved host takes long to move their bucket (a tenth of
# 300 were seen), so a third by hits is enough.
{ grep -q 'verbs;ofi_rxm cannot be opened' refused && grep -qx 'status 1' refused; } || fail "gas with queues that are too long: $(cat refused)"
{ grep -q ': verified$' gas && grep -qxE 'hits [1-3][0-9]{2}' gas; } || fail "gas over verbs: $(cat gas)"
grep -q '60 acquires, 5[0-9] hits' example || fail "the example: $(cat example)"
grep -q 'mlx5_0 is not there.*there are: rxe0' no_device || fail "a device that is not there: $(cat no_device)"
grep -q 'registers with RDMA device rxe0' devices || fail "info: $(cat devices)"
[ "$(grep -c verified figure1)" -ge 1 ] || fail "figure1: $(cat figure1)"
python3 - report.json <<'END' || fail "the report of figure1: $(cat report.json)"
import json, sys
report = json.load(open(sys.argv[1]))
assert "rxe0" in report["device"], report["device"]
assert len(report["per_rank"]) == 2, "a rank has no log"  # the share is 9p, whose mappings are not shared
assert report["registrations"] > 0 and report["registrations"] == report["deregistrations"]
assert report["pinned_at_exit_bytes"] == 0
END

if command -v mpirun.openmpi >/dev/null && ls /usr/lib/*/ucx/libuct_ib.so.0 >/dev/null 2>&1; then
  [ "$(grep -c verified auto)" -ge 1 ] || fail "figure1 by default: $(cat auto)"
  python3 - auto.json <<'END' || fail "the report of figure1 by default: $(cat auto.json)"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["acts"] == "verbs" and report["retention"] == "helper", report["acts"]
assert report["registrations"] > 0 and all(rank["acts"] == "verbs" for rank in report["per_rank"])
END
  # Without its cache UCX must choose as with it: it takes registering to be cheap.
  [ "$(cat protocols_status)" = 0 ] || fail "UCX's protocols: $(cat protocols)"
  [ "$(grep -c verified arena)" -ge 1 ] || fail "figure1 in an arena that serves UCX: $(cat arena)"
  python3 - arena.json <<'END' || fail "the report of figure1 in an arena: $(cat arena.json)"
import json, sys
report = json.load(open(sys.argv[1]))
arena = report["arena"]
assert arena["served"] > 30 and arena["served"] >= arena["requests"] - 2, arena
assert report["acquires"]["total"] < 10, "most requests of UCX are served before a record is made"
END
fi
grep -q '^ok    acts: below the libraries of programs that register memory with rxe0 port 1 ACTIVE' doctor || fail "doctor: $(cat doctor)"

output=$("$pinion" softroce --timeout 3s --memory 1G -- sleep 60 2>&1)
status=$?
[ $status -eq 124 ] && [ "$output" = "pinion softroce: stopped after 3 s" ] || fail "time over: status $status: $output"
if script -qec true /dev/null >/dev/null 2>&1; then
  output=$(script -qec "'$pinion' softroce --timeout 3s --memory 1G -- sleep 60" /dev/null </dev/null)
  [[ $output == *"starting the machine (1 s)"*$'\033[K'*"stopped after 3 s"* ]] || fail "progress on a terminal: $output"
fi

wait $asleep
[ $? -eq 125 ] && grep -q 'did not start within 60 s: does KVM work here?' "$work/asleep/out" || fail "asleep: $(cat "$work/asleep/out")"

exit $((failures > 0))
