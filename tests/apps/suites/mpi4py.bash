# mpi4py's own tests, of the sdist of Debian's version: Debian's build on Open MPI, one built here on MPICH. A test
# passes where it passes in all ranks; one that every rank skips is none. --only: the module's name.
mpis=(openmpi mpich)
ranks=2
# Its tests of spawning come last, on their own: Open MPI 4.1 lets them wait for ever now and then, without Pinion too.
# Where that happens to the run without Pinion, they show nothing and are left out.
spawn=test_spawn

# part NAME ARGUMENTS...
part() {
  local name=$1 python=/usr/bin/python3
  shift
  [ "$mpi" = mpich ] && python=$cache/mpi4py-mpich/bin/python
  mkdir "$name"
  launch "$ranks" "$python" "$apps/suites/mpi4py/tests.py" "$cache/mpi4py/test" "$PWD/$name" --no-builddir -q "$@" >&2
  verdict "the $name ends" $?
}

suite() {
  if [ "$only" != $spawn ]; then part run -e $spawn ${only:+-i "$only"}; fi
  if [[ -z "$only" || "$only" = "$spawn" ]] && { [ "$retention" = none ] || grep -qx 'ok the spawning ends' "$without/results"; }; then
    [ "$limit" -lt 120 ] || limit=120
    part spawning -i $spawn | grep '^ok' || rm -r spawning
  fi
  LC_ALL=C sort ./*/rank.* | uniq -c |
    awk -v ranks="$ranks" '$2 == "ok" && $1 == ranks { passed[$3] } { seen[$3] }
      END { for (test in seen) print (test in passed ? "ok " : "failed ") test }'
}
