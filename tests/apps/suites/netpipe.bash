# NetPIPE's integrity checks: each of its modes, up to 1 MB, every size a test.
mpis=(openmpi mpich)

# try OPTIONS...: with 20 messages of each size.
try() {
  local name="netpipe $*" program=NPmpich2
  wanted "$name" || return
  [ "$mpi" = openmpi ] && program=NPopenmpi
  launch 2 "$program" -i -n 20 -u 1000000 -o /dev/null "$@" >output 2>&1
  verdict "$name" $?
  checks "$name" output
  cat output >&2
}

suite() {
  try -l 1
  try -l 1 -a
  try -l 1 -S
  try -l 1 -2 -a
  [ "$mpi" = mpich ] || try -l 1 -z  # there it waits for ever, without Pinion
  try -l 8192 -I
  try -l 8192 -O 1,3
}
