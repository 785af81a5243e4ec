# The HPC Challenge benchmark with this project's small input: every residual that it checks.
mpis=(openmpi)

suite() {
  "$source/scripts/hpcc-input" --small .
  launch 2 hpcc >&2
  verdict "hpcc ends" $?
  grep -q '^Success=1$' hpccoutf.txt
  verdict "hpcc succeeds" $?
  # PTRANS prints a line by CPU time only when its clock has moved.
  grep -v '^CPU ' hpccoutf.txt >checked.txt
  checks hpcc checked.txt
  cat hpccoutf.txt >&2
}
