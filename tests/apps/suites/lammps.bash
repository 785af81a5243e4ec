# LAMMPS on two inputs of our own, with messages between 16 KB and 1 MB. Energies, pressure and every atom's position are
# part of a test's name: a run passes where its results equal exactly those without Pinion.
mpis=(openmpi)

try() {
  wanted "$1" || return
  launch "$2" lmp -in "$apps/suites/lammps/$1.in" -log none >output
  verdict "$1 ends" $?
  awk -v name="$1" '/^Step/ { on = 1; next } /^Loop time/ { on = 0 } on { $1 = $1; print "ok " name ": " $0 }' output
  [ -s atoms ] && echo "ok $1: atoms $(md5sum <atoms | cut -d ' ' -f 1)"
  rm -f atoms
  cat output >&2
}

suite() {
  try melt 2
  try salt 2
  try salt 4
}
