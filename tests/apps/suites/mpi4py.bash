# mpi4py's own tests, of the sdist of Debian's version: Debian's build on Open MPI, one built here on MPICH. A test
# passes where it passes in all ranks; one that every rank skips is none. --only: the module's name.
#
# Its tests of spawning run where they are asked for (--only test_spawn): Open MPI 4.1 lets them wait in PMIx_Lookup for
# ever now and then, without Pinion too.
mpis=(openmpi mpich)
ranks=2

suite() {
  local python=/usr/bin/python3
  [ "$mpi" = mpich ] && python=$cache/mpi4py-mpich/bin/python
  launch "$ranks" "$python" "$apps/suites/mpi4py/tests.py" "$cache/mpi4py/test" "$PWD" --no-builddir -q \
    $([ -n "$only" ] && echo "-i $only" || echo "-e test_spawn") >&2
  verdict "the run ends" $?
  LC_ALL=C sort rank.* | uniq -c |
    awk -v ranks="$ranks" '$2 == "ok" && $1 == ranks { passed[$3] } { seen[$3] }
      END { for (test in seen) print (test in passed ? "ok " : "failed ") test }'
}
