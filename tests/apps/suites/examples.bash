# The examples, each of which verifies its own answer.
mpis=(openmpi mpich)

try() {
  local name="$2 on $1"
  wanted "$name" || return
  launch "$1" "$programs/$2" "${@:3}" >output
  verdict "$name" $?
  checks "$name" <(sed 's/\bverified\b/PASSED/' output)
  cat output >&2
}

suite() {
  # Built for the first MPI there is, and once more for the second.
  local programs=$build/bin/examples
  [ "$mpi" = mpich ] && [ -d "$programs-mpich" ] && programs+=-mpich
  try 2 figure1 --size 1M --iterations 10 --compute 1ms
  try 2 nested --outer 2 --compute1 1ms --compute2 1ms
  try 4 nested --outer 2 --compute1 1ms --compute2 1ms
  try 2 fft3d --grid 64x32x64 --iterations 10
  try 4 fft3d --grid 32x64x16 --iterations 10
  try 2 halo --steps 20
  try 4 halo --steps 20 --persistent
  try 2 halo_f08 --steps 20
  try 4 halo_f08 --steps 20
}
