# Shared by the suites: how a program is started in the cell of the table that is being run, and how its
# output becomes results. A suite defines `mpis`, the MPIs that it can run on, and the function `suite`. The
# function runs in an empty directory. It prints "ok TEST" or "failed TEST" for each test on standard output,
# and everything else on standard error.
#
# It reads: $mpi, $retention (none: without Pinion), $threshold, $only, $limit (seconds for one program), $more_options, $cell (the
# cell's directory), $build, $source, $apps, $cache.

# There may be more ranks than cores: let them yield, unbound.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none  # as of Open MPI 5
export MPIR_CVAR_POLLS_BEFORE_YIELD=1
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# launch RANKS PROGRAM ARGUMENTS...: its output and its status.
launch() {
  local command=("mpirun.$mpi" -n "$@") status
  if [ "$retention" = none ]; then
    timeout --foreground -k 10 "$limit" "${command[@]}" </dev/null
    return
  fi
  # shellcheck disable=SC2086
  timeout --foreground -k 10 "$limit" "$build/bin/pinion" run --device pin --retention "$retention" --tune "threshold=$threshold" --log "$cell/log" \
    $more_options -- "${command[@]}" </dev/null
  status=$?
  "$build/bin/pinion" report "$cell/log" --json 2>>"$cell/unreported" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["acquires"]["total"])' >>"$cell/acquires" 2>/dev/null
  rm -rf "$cell/log"
  return $status
}

# Of all programs of the cell.
acquires() { cat "$cell/acquires" 2>/dev/null | awk '{ n += $1 } END { print n + 0 }'; }

# verdict TEST STATUS
verdict() { [ "$2" -eq 0 ] && echo "ok $1" || echo "failed $1"; }

# checks NAME FILE: the lines of a program that mark an answer as right or wrong, each a test by its number.
checks() {
  awk -v name="$1" '
    { line = toupper($0) }
    line ~ /PASSED +FAILED|COMPLETED AND FAILED|FLAGGED AS|INDICATION OF/ { next }   # headings, legends
    { gsub(/ 0 FAILED/, "", line) }
    line ~ /FAILED/ { print "failed " name ", check " ++n; next }
    line ~ /PASSED/ { print "ok " name ", check " ++n }' "$2"
}

wanted() { [[ "$1" =~ $only ]]; }
