# The testers of ScaLAPACK, PBLAS and BLACS that Debian ships, on 4 ranks, as their authors' ctest runs them: every check
# that they print is a test. Each takes seconds; those that hang without Pinion are left out with it.
mpis=(openmpi mpich)

suite() {
  local testers directory program name status
  [ "$limit" -lt 60 ] || limit=60
  testers=/usr/lib/$(gcc -print-multiarch)/scalapack/$mpi-tests
  for directory in . PBLAS BLACS; do
    mkdir -p "$directory"
    cp -L "$testers/$directory"/*.dat "$directory"
    for program in $(sed -nE 's/^add_test\((\S+) .*/\1/p' "$testers/$directory/CTestTestfile.cmake"); do
      wanted "$program" || continue
      name=$program
      if [ "$retention" != none ] && grep -sqx "$name" "$without/hangs"; then continue; fi
      (cd "$directory" && launch 4 "$testers/$directory/$name") >output 2>&1
      status=$?
      if [ "$retention" = none ] && [ $status -eq 124 ]; then
        echo "$name" >>"$cell/hangs"
        continue
      fi
      verdict "$name ends" $status
      checks "$name" output
      cat output >&2
    done
  done
}
