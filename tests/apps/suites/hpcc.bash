# The HPC Challenge benchmark with this project's small input: every residual that it checks.
mpis=(openmpi)

suite() {
  "$source/scripts/hpcc-input" --small .
  launch 2 hpcc >&2
  verdict "hpcc ends" $?
  grep -q '^Success=1$' hpccoutf.txt
  verdict "hpcc succeeds" $?
  checks hpcc hpccoutf.txt
  cat hpccoutf.txt >&2
}
