#!/usr/bin/env bash
# Pinion under a real Slurm of three nodes (nodes.bash): srun inside and around, and mpirun from batch scripts, for both families of
# MPI. A minute; not part of ./test. Needs slurm-wlm and munge.
#
#   tests/cluster/slurm.sh BUILD-DIRECTORY
here=$(cd "$(dirname "$0")" && pwd)
. "$here/nodes.bash"
[ -z "${family:-}" ] || enter_room "$0" "$@"
if ! PATH=$PATH:/usr/sbin command -v slurmctld slurmd munged >/dev/null; then
  echo "skipped: slurm-wlm and munge are not installed"
  exit 77
fi
. "$here/../e2e/common.bash"
. "$here/slurm.bash"
PATH=$PATH:/usr/sbin

make_nodes 3 "$work" "$build" "$(realpath "$here/../..")" && start_slurm "$work" 2 || { echo "FAILED: no Slurm"; exit 1; }
cd "$work" || exit 1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp,vader
export MPIR_CVAR_POLLS_BEFORE_YIELD=1 UCX_TLS=tcp,self
user() { on node0 timeout 60 "$@" >"$work/out" 2>"$work/err"; }
all_there='r.ranks == r.job_ranks == 6 and sorted((n.host, n.ranks) for n in r.nodes) == [("node0", 2), ("node1", 2), ("node2", 2)]'
case $family in
  openmpi) app=("$programs/mpi_ring") pmi=pmix options= ;;
  mpich) app=("$programs/mpi_ring" leave) pmi=pmi2 options=-disable-auto-cleanup ;; # as in e2e/clusters.sh
esac

srun=(srun --ntasks=6 --nodes=3 --mpi=$pmi)
user "${srun[@]}" "$pinion" run --retention lru --log log -- "${app[@]}" || fail "inside srun: $(cat out err)"
report_says "inside srun" "$all_there and r.retention == 'lru'"
for export in ALL UCX_TLS,MPIR_CVAR_POLLS_BEFORE_YIELD,OMPI_MCA_btl,OMPI_MCA_pml; do
  SLURM_EXPORT_ENV=$export user "$pinion" run --retention lru --log log -- "${srun[@]}" "${app[@]}" || fail "around srun, $export: $(cat out err)"
  report_says "around srun, $export" "$all_there and r.retention == 'lru'"
done

# A batch script; it is no rank, although it has a rank's number.
{
  echo "#!/bin/bash"
  echo "'$pinion' run --retention lru --log log -- '$mpirun' $options ${app[*]}"
} >batch
chmod +x batch
user sbatch --ntasks=6 --nodes=3 --output=out.txt --wait batch || [ "$family" = mpich ] || fail "batch: $(cat out err out.txt)"
grep -q '^pinion: 6 ranks' out.txt || fail "batch: $(cat out.txt)"
report_says batch "$all_there and r.retention == 'lru'"

[ "$failures" -eq 0 ]
