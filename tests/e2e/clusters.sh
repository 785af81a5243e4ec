#!/usr/bin/env bash
# Three nodes of two ranks each, which are namespaces of this machine (tests/cluster/nodes.bash): the user's
# options reach ranks on other nodes, in every form and under every launcher. Logs are found at their place,
# and missing ones are reported. Nodes that lack Pinion, and killed ranks, do only the unavoidable harm.
one_by_one=yes # six ranks each, which meet over TCP
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../cluster/nodes.bash"
[ -z "${family:-}" ] || enter_room "$0" "$@"
. "$here/common.bash"
. "$here/../cluster/sshd.bash"

make_nodes 3 "$work" "$build" "$(realpath "$here/../..")" || { echo "FAILED: no nodes"; exit 1; }
cd "$work" || exit 1
ring=$programs/mpi_ring
app=("$ring")
hosts=node0:2,node1:2,node2:2
# The launcher of Open MPI 5 has variables of its own.
export PRTE_MCA_plm_ssh_agent=$agent PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_plm_rsh_agent=$agent OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp,vader
export MPIR_CVAR_POLLS_BEFORE_YIELD=1 UCX_TLS=tcp,self
case $family in
  openmpi) launch=("$mpirun" --host "$hosts") ;;
  mpich)
    launch=("$mpirun" -launcher ssh -launcher-exec "$agent" -hosts "$hosts" -n 6)
    # Debian's MPICH 4.0 hangs in every other MPI_Finalize of several nodes, in plain runs as well. So ranks skip it, for
    # which hydra would end the others.
    app+=(leave)
    launch+=(-disable-auto-cleanup)
    ;;
esac

# once COMMAND..., user COMMAND...: on node0, where the user has logged in; its output in $work/out and $work/err.
once() { on node0 timeout 240 "$@" >"$work/out" 2>"$work/err"; }
user() {
  local status try
  # A launcher ends by a SIGPIPE of its own now and then, in plain runs too, and may take a rank with it.
  for try in 1 2 3; do
    [ $try -eq 1 ] || rm -rf "$work/inside"
    once "$@"
    status=$?
    [ $status -eq 141 ] || break
  done
  # Hydra's treatment of ranks that leave depends on chance.
  [ "$family" = mpich ] && verified || return $status
}
said() { cat "$work/out" "$work/err"; }

# processes_of NODE: their numbers and command lines.
processes_of() {
  local node process
  node=$(on "$1" readlink /proc/self/ns/uts)
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/ns/uts" 2>/dev/null)" = "$node" ] && echo "${process#/proc/} $(tr '\0' ' ' <"$process/cmdline")"
  done
}

# The remains of jobs on the nodes: files and processes. The user's next jobs need neither read the code that pinion-code knows
# nor measure what pinion-copies knows; pinion-mappings has the sizes that they advise.
remains() {
  local node
  for node in "${nodes[@]}"; do
    on "$node" find /tmp /dev/shm -mindepth 1 -not -path "$work*" -not -path "$build*" -not -name "pinion-code-$(id -u)" -not -name "pinion-copies-$(id -u)" -not -name "pinion-mappings-$(id -u)" | sed "s|^|$node: |"
    processes_of "$node" | sed "s|^|$node: |"
  done
}
remains_before=$(remains)
as_before() { [ "$(remains)" = "$remains_before" ]; }
clean() { eventually as_before || fail "$1: left behind: $(diff <(echo "$remains_before") <(remains))"; }

all_there='r.ranks == r.job_ranks == 6 and sorted((n.host, n.ranks) for n in r.nodes) == [("node0", 2), ("node1", 2), ("node2", 2)]'

# Around the launcher. A third of the options each from a file that only node0 has, from PINION, from flags.
on node0 sh -c "echo limit=64M >/tmp/options.conf"
PINION_CONFIG=/tmp/options.conf PINION=threshold=8K user "$pinion" run --device pin --retention on-demand --log "$work/log" -- "${launch[@]}" "${app[@]}" ||
  fail "around: status $?: $(said)"
verified && grep -q '^pinion: 6 ranks, ' "$work/err" && ! grep -q 'left no log' "$work/err" || fail "around: $(said)"
report_says around "$all_there and r.retention == 'on-demand' and r.limit_bytes == 64 << 20 and 'threshold=8K' in r.options"
books_balance around
on node0 rm /tmp/options.conf

# Inside it, with a directory that is relative to where everybody is.
user "${launch[@]}" "$pinion" run --device pin --retention lru --log inside -- "${app[@]}" || fail "inside: status $?: $(said)"
[ "$(what_is "$all_there and r.retention == 'lru'" inside)" = True ] || fail "inside: $(said; what_is r.nodes inside)"
# One rank tells; one that skips MPI_Finalize does not.
[ "$(grep -c '^pinion: rank 0 on node0: ' "$work/err")" -eq $((${#app[@]} == 1)) ] || fail "inside: $(said)"
finds '^pinion: rank [1-5] ' <"$work/err" && fail "inside: $(said)"

# The variables that the user forwards arrive as well, and those nearer to the program win.
library=$(readlink -f "$(gcc -print-file-name=libm.so.6)")
cat >"$work/rank" <<END
#!/bin/sh
echo "rank: MINE=\$MINE \$LD_PRELOAD" >&2
exec ${app[*]}
END
chmod +x "$work/rank"
export MINE=1
case $family in
  openmpi) own=(-x MINE -x LD_PRELOAD="$library" -x PINION=limit=32M) ;;
  mpich) own=(-genvlist MINE,UCX_TLS -genv LD_PRELOAD "$library") ;;
esac
if [ "$family" = openmpi ]; then
  # A script may start the program, too.
  user "$pinion" run --device pin --retention observe --log "$work/log" -- sh -c 'exec "$@"' - "${launch[@]}" "${own[@]}" "$work/rank" ||
    fail "own variables: status $?: $(said)"
  [ "$(grep -c "^rank: MINE=1 .*libpinion-preload.so:$library" "$work/err")" -eq 6 ] || fail "own variables: $(said)"
  report_says "own variables" "$all_there and r.retention == 'observe' and r.limit_bytes == 32 << 20"
else
  user "$pinion" run --device pin --retention observe --log "$work/log" -- "$mpirun" "${own[@]:0:2}" "${launch[@]:1}" "$work/rank" || fail "own variables: status $?: $(said)"
  [ "$(grep -c '^rank: MINE=1 .*libpinion-preload.so' "$work/err")" -eq 6 ] || fail "own variables: $(said)"
  report_says "own variables" "$all_there and r.retention == 'observe'"
fi
unset MINE

# No file system that they share: each node keeps its logs, and the summary lists the ranks whose logs are
# missing.
user "$pinion" run --device pin --log /tmp/logs -- "${launch[@]}" "${app[@]}" || fail "not shared: status $?: $(said)"
grep -q '^pinion: 4 of 6 ranks (2-5) left no log here' "$work/err" || fail "not shared: $(said)"
for node in "${nodes[@]}"; do
  on "$node" cp -r /tmp/logs "$work/gathered.$node" || fail "not shared: $node has no logs"
  on "$node" rm -r /tmp/logs
done
"$pinion" report "$work"/gathered.* --json >"$work/json" && python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert r["ranks"] == r["job_ranks"] == 6 and len(r["nodes"]) == 3, r["nodes"]' "$work/json" || fail "gathered: $("$pinion" report "$work"/gathered.*)"

# No logs wanted: nothing stays anywhere.
user "$pinion" run --device pin -- "${launch[@]}" "${app[@]}" || fail "without --log: status $?: $(said)"
grep -q '^pinion: 4 of 6 ranks (2-5) left no log here' "$work/err" || fail "without --log: $(said)"
clean "orderly runs"

# Endpoints of nodes that share no directory find each other by PMIx or PMI-1.
if "$pinion" info devices | finds 'tcp;ofi_rxm'; then
  user "${launch[@]}" "$build/tests/transfer_job" 'tcp;ofi_rxm' || fail "endpoints: status $?: $(said)"
  [ "$(grep -c 'verified$' "$work/out")" -eq 6 ] || fail "endpoints: $(said)"
  clean endpoints
fi

# Pinion is on one node alone.
on node0 mkdir -p /tmp/alone/bin /tmp/alone/lib
on node0 cp "$pinion" /tmp/alone/bin
on node0 cp -d "$build"/lib/libpinion*.so* /tmp/alone/lib
if [ "$family" = openmpi ]; then # hydra reports it for each rank, and the others wait in MPI_Init for ever
  user "${launch[@]}" /tmp/alone/bin/pinion run --device pin -- "${app[@]}" && fail "alone, inside: nobody misses it"
fi
user /tmp/alone/bin/pinion run --device pin --log "$work/log" -- "${launch[@]}" "${app[@]}"
status=$?
case $family in
  openmpi) # reports it once, and does not begin (mpirun's status is 0 all the same)
    [ "$(grep -c 'Fork agent: */tmp/alone/bin/pinion' "$work/err")" -eq 1 ] && ! grep -q 'ld.so' "$work/err" && ! verified || fail "alone: status $status: $(said)"
    ;;
  mpich) # runs, with a line of the loader's for each rank
    [ $status -eq 0 ] && verified && grep -q '^pinion: 4 of 6 ranks (2-5) left no log here' "$work/err" || fail "alone: status $status: $(said)"
    ;;
esac
on node0 rm -r /tmp/alone
clean alone

# A rank on another node is killed: with Pinion and without, the job ends the same way and leaves the same behind.
find_victim() {
  victim=$(processes_of node2 | sed -n "s|^\([0-9]*\) $ring.*|\1|p" | head -n 1)
  [ -n "$victim" ]
}
logs_tell() { [ "$(what_is "$all_there and r.acquires.total > 0")" = True ]; }
# Nothing ends any more.
settled() {
  local before
  before=$(remains)
  sleep 0.5
  [ "$(remains)" = "$before" ]
}
# killed COMMAND...: prints the job's status.
killed() {
  local job victim
  rm -rf "$work/log" "$work/out"
  once "$@" "$ring" forever &
  job=$!
  victim=
  eventually grep -qs turning "$work/out"
  eventually find_victim
  if [ "$1" = "$pinion" ]; then eventually logs_tell; fi
  kill -9 "$victim"
  wait $job
  echo $?
}
[ "$family" = openmpi ] || unset 'launch[-1]' # here, they shall be ended
plain=$(killed "${launch[@]}")
eventually settled
remains_before=$(remains)
status=$(killed "$pinion" run --device pin --log "$work/log" -- "${launch[@]}")
# Which of the signals and errors that follow hydra gives is chance, and that a launcher's own SIGPIPE (141) comes first. Open MPI 5's
# launcher gives the killed rank's status (137), or that of a neighbour that aborts (14): plain runs have both.
ended_alike() {
  [ "$status" -eq "$plain" ] || [ "$family" = mpich ] || [ "$status" -eq 141 ] || [ "$plain" -eq 141 ] ||
    [[ "$status $plain" =~ ^(14 137|137 14)$ ]]
}
[ "$status" -ne 0 ] && ended_alike || fail "killed: status $status, without Pinion $plain: $(said)"
clean killed
report_says killed "$all_there and not all(rank.complete for rank in r.per_rank) and r.acquires.total > 0"

# Over a real ssh.
if [ -x /usr/sbin/sshd ]; then
  start_sshd "$work" || fail "sshd: $?"
  export OMPI_MCA_plm_rsh_agent=$ssh PRTE_MCA_plm_ssh_agent=$ssh
  [ "$family" = openmpi ] || launch+=(-disable-auto-cleanup)
  user "$pinion" run --device pin --log "$work/log" -- "${launch[@]/$agent/$ssh}" "${app[@]}" || fail "ssh: status $?: $(said)"
  report_says ssh "$all_there"
fi

[ "$failures" -eq 0 ]
