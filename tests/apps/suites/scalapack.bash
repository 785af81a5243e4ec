# The testers of ScaLAPACK, PBLAS and BLACS that Debian ships, on 4 ranks, as their authors' ctest runs them: every check
# that they print is a test. Each takes seconds; those that do not end well without Pinion are left out: their
# output before they abort depends on chance. MPICH's ranks do not share cores in reasonable time: with fewer
# than four it is two ranks, and most testers leave out the grids of more.
mpis=(openmpi mpich)

# They compare VL and VU before and after a call that needs neither, without ever setting them: a NaN on the
# stack, left by an earlier call, fails all their checks. (So does a preload that only fills the stack.)
unsettled='^x[cz]heevr$'

suite() {
  local testers directory program name status ranks=4
  if [ "$mpi" = mpich ] && [ "$(nproc)" -lt 4 ]; then ranks=2; fi
  [ "$limit" -lt 60 ] || limit=60
  testers=/usr/lib/$(gcc -print-multiarch)/scalapack/$mpi-tests
  for directory in . PBLAS BLACS; do
    mkdir -p "$directory"
    cp -L "$testers/$directory"/*.dat "$directory"
    for program in $(sed -nE 's/^add_test\((\S+) .*/\1/p' "$testers/$directory/CTestTestfile.cmake"); do
      wanted "$program" && ! [[ "$program" =~ $unsettled ]] || continue
      name=$program
      if [ "$retention" != none ] && grep -sqx "$name" "$without/left-out"; then continue; fi
      (cd "$directory" && launch "$ranks" "$testers/$directory/$name") >output 2>&1
      status=$?
      if [ "$retention" = none ] && [ $status -ne 0 ]; then
        echo "$name" >>"$cell/left-out"
        continue
      fi
      verdict "$name ends" $status
      checks "$name" output
      cat output >&2
    done
  done
}
