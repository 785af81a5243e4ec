#!/usr/bin/env bash
# Endpoints of a launcher's processes find each other by the launcher's service, PMIx or PMI-1: where a
# directory would do, beside MPI, and on two nodes, which share none.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../cluster/nodes.bash"
. "$here/common.bash"
job=$build/tests/transfer_job
[ -x "$job" ] && "$build/bin/pinion" info devices | finds 'tcp;ofi_rxm' || exit 77
[ "$family" = mpich ] || ls /usr/lib/*/libpmix.so.2 >/dev/null 2>&1 || exit 77
export FI_PROVIDER='tcp;ofi_rxm'

# all_verified WHAT COUNT COMMAND...
all_verified() {
  local what=$1 count=$2 output
  shift 2
  output=$(timeout 240 "$@" 2>&1) || fail "$what: status $?: $output"
  [ "$(grep -cx verified <<<"$output")" -eq "$count" ] || fail "$what: $output"
}
# refused WHAT PATTERN COMMAND...
refused() {
  local what=$1 pattern=$2 output
  shift 2
  output=$(timeout 240 "$@" 2>&1) && fail "$what: status 0: $output"
  grep -q "^transfer_job: .*$pattern" <<<"$output" || fail "$what: $output"
}

all_verified "a directory" 2 "${launch[@]}" -n 2 "$job" "$FI_PROVIDER"
case $family in
  openmpi)
    all_verified "PMIx, twice" 3 "${launch[@]}" -n 3 "$job" "$FI_PROVIDER" launcher again
    refused "PMIx without one rank" 'not all 3 processes of the job came to the PMIx fence' \
      "${launch[@]}" -n 3 "$job" "$FI_PROVIDER" launcher absent 1
    all_verified "PMIx beside MPI" 2 "${launch[@]}" -n 2 "$job" "$FI_PROVIDER" launcher mpi libmpi.so.40
    # The widest table of a bench, on a terminal of 100 columns.
    "$build/bin/pinion" bench transfers --provider "$FI_PROVIDER" --rounds 3 --size 17K >"$work/bench" || fail "bench: status $?"
    finds '^latency_us, us, provider tcp;ofi_rxm: half a round trip' <"$work/bench" && finds 'no-reuse-17K  *everything-registered .* MiB to ' <"$work/bench" &&
      [ "$(wc -L <"$work/bench")" -le 100 ] || fail "bench: $(cat "$work/bench")"
    ;;
  mpich)
    all_verified "PMI-1" 3 "${launch[@]}" -n 3 "$job" "$FI_PROVIDER" launcher
    refused "PMI-1, twice" 'PMI-1 serves one endpoint' "${launch[@]}" -n 2 "$job" "$FI_PROVIDER" launcher again
    refused "PMI-1 beside MPI" "PMI-1 is the MPI library's" "${launch[@]}" -n 2 "$job" "$FI_PROVIDER" launcher mpi libmpich.so.12
    ;;
esac
[ "$failures" -eq 0 ]
