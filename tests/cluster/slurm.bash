# Slurm on the nodes of nodes.bash: munge, slurmctld on node0, slurmd on each. Sourced after make_nodes.

# start_slurm DIRECTORY CPUS: state and logs go below the directory, which the nodes share. Afterwards
# SLURM_CONF has the path of its configuration.
start_slurm() {
  local directory=$1/slurm cpus=$2 node _
  mkdir -p "$directory"
  dd if=/dev/urandom of="$directory/munge.key" bs=1024 count=1 2>/dev/null
  chmod 700 "$directory"
  chmod 400 "$directory/munge.key"
  export SLURM_CONF=$directory/slurm.conf
  cat >"$SLURM_CONF" <<END
ClusterName=pinion
SlurmctldHost=node0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$directory/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool.%n
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd.%n.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd.%n.log
NodeName=node[0-$((${#nodes[@]} - 1))] CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
  mkdir -p "$directory/state"
  munged --force --key-file="$directory/munge.key" --socket="$directory/munge.socket" \
    --pid-file="$directory/munged.pid" --log-file="$directory/munged.log" --seed-file="$directory/munged.seed" || return
  on node0 slurmctld || return
  for node in "${nodes[@]}"; do on "$node" slurmd -N "$node" || return; done
  for _ in $(seq 100); do
    [ "$(on node0 sinfo --noheader --states=idle --format=%D 2>/dev/null)" = ${#nodes[@]} ] && return
    sleep 0.1
  done
  tail -n 5 "$directory"/*.log
  return 1
}
