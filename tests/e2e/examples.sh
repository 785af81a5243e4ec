#!/usr/bin/env bash
# Every example checks its own answer, and refuses bad arguments with one line and status 2.
. "$(dirname "$0")/common.bash"

# verified_by RANKS PROGRAM ARGUMENTS...
verified_by() {
  local ranks=$1 program=$2
  shift 2
  local output
  output=$("${launch[@]}" -n "$ranks" "$examples/$program" "$@" 2>&1) || fail "$program $*: status $?"
  grep -q '\bverified$' <<<"$output" || fail "$ranks ranks of $program $*: $output"
}

# refused PROGRAM ARGUMENTS...: started alone, so that the output is the program's.
refused() {
  local program=$1
  shift
  local output status
  output=$("$examples/$program" "$@" 2>&1)
  status=$?
  [ $status -eq 2 ] || fail "$program $*: status $status instead of 2"
  [ "$(wc -l <<<"$output")" -eq 1 ] || fail "$program $*: more than one line: $output"
  grep -q "^$program: " <<<"$output" || fail "$program $*: $output"
}

helps() {
  local output
  output=$("$examples/$1" --help)  # whole: a pipe that grep closes early would kill the program
  grep -q '^Usage: ' <<<"$output" || fail "$1 --help"
}

# It links no MPI: one program for every launcher.
examples=$build/bin/examples verified_by 3 firehose
examples=$build/bin/examples refused firehose --no-such
verified_by 2 figure1 --size 17K --iterations 4 --compute 1ms
verified_by 2 figure1 --size 1M --iterations 4 --compute 1ms --jitter 50% --no-reuse
verified_by 2 figure1 --size 100001 --iterations 4 --compute 1ms --no-sync
refused figure1
refused figure1 --size 17Q
refused figure1 --compute 20
refused figure1 --jitter 200%

verified_by 2 nested --outer 2 --compute1 1ms --compute2 1ms
verified_by 4 nested --outer 2 --compute1 1ms --compute2 1ms
refused nested
refused nested --inner1 0

verified_by 1 fft3d --grid 16x8x4 --iterations 2
verified_by 2 fft3d --grid 64x32x64 --iterations 25
verified_by 4 fft3d --grid 32x64x16 --iterations 3
refused fft3d --grid 12x8x0
refused fft3d --grid 8x8

verified_by 1 halo --tile 64 --steps 3
verified_by 2 halo --steps 5
verified_by 2 halo --steps 5 --persistent
verified_by 4 halo --tile 100 --width 3 --steps 5
refused halo --width 2000

programs=(figure1 nested fft3d halo)
if [ -x "$examples/halo_f08" ]; then
  programs+=(halo_f08)
  verified_by 1 halo_f08 --tile 64 --steps 3
  verified_by 2 halo_f08 --steps 5
  verified_by 4 halo_f08 --tile 100 --width 3 --steps 5
  refused halo_f08 --width 2000
  refused halo_f08 --steps many
fi
for program in "${programs[@]}"; do
  refused "$program" --no-such-option
  helps "$program"
done

[ "$failures" -eq 0 ]
