#!/usr/bin/env bash
# `pinion stop` makes Pinion let go of everything in running processes, which go on and end as ever: an MPI job, and a program
# that copies to a GPU, on a made-up driver.
only_family=openmpi
source "$(dirname "$0")/common.bash"

# stopped LOG COUNT: the command succeeds, and names so many processes with nothing registered.
stopped() {
  "$pinion" stop "$1" >"$work/stopped" 2>"$work/stop.errors" &&
    [ "$(grep -c ': stopped, nothing is registered$' "$work/stopped")" -eq "$2" ]
}

# More steps than it gets to: it is ended here.
"${launch[@]}" -n 2 "$pinion" run --device pin --retention leave-pinned --log "$work/mpi" -- \
  "$examples/halo" --steps 1000000 >"$work/mpi.out" 2>&1 &
job=$!
eventually stopped "$work/mpi" 2 || fail "MPI: $(cat "$work/stopped" "$work/stop.errors" "$work/mpi.out")"
"$pinion" stop "$work/mpi" >"$work/again" || fail "MPI, a second time: status $?"
[ "$(grep -c ': stopped, ' "$work/again")" -eq 2 ] || fail "MPI, a second time: $(cat "$work/again")"
grep -q '^process [0-9]*, rank 1: ' "$work/stopped" || fail "MPI: the ranks are not named: $(cat "$work/stopped")"
kill -0 $job || fail "MPI: the job has ended: $(cat "$work/mpi.out")"
process=$(sed -n 's/^process \([0-9]*\), rank 0: .*/\1/p' "$work/stopped")
ls /dev/shm/pinion-stop.*-"$process".0 >"$work/out" 2>&1 || fail "MPI: no request of process $process"
kill $job
wait $job
"$pinion" report "$work/mpi" >"$work/out" &&
  grep -qF '`pinion stop` made Pinion stand aside in 2 ranks (rank 0 on ' <(unwrapped "$work/out") || fail "MPI: the report: $(cat "$work/out")"
rm -f $(sed -n 's|^process \([0-9]*\), .*|/dev/shm/pinion-stop.*-\1.0|p' "$work/stopped") # of processes that were killed
[ "$(unwrapped "$work/mpi.out" | grep -c 'stopped by `pinion stop`: ')" -eq 2 ] || fail "MPI: no messages: $(cat "$work/mpi.out")"

LD_LIBRARY_PATH=$build/tests/made_up_cuda "$pinion" run --log "$work/gpu" -- "$build/tests/gpu/random_copies" --threads 4 \
  --steps 6000 --most 2M --seed 4 >"$work/gpu.out" 2>&1 &
program=$!
eventually stopped "$work/gpu" 1 || fail "GPU: $(cat "$work/stopped" "$work/stop.errors" "$work/gpu.out")"
wait $program || fail "GPU: status $?: $(cat "$work/gpu.out")"
grep -q '^random_copies: verified$' "$work/gpu.out" || fail "GPU: $(cat "$work/gpu.out")"
unwrapped "$work/gpu.out" | grep -q 'made Pinion stand aside in 1 rank (process [0-9]* on ' || fail "GPU: the summary: $(cat "$work/gpu.out")"
! ls /dev/shm/pinion-stop.*-"$program".0 >"$work/out" 2>&1 || fail "GPU: the request stays"

# refused STATUS TEXT TARGET
refused() {
  "$pinion" stop "$3" >"$work/out" 2>"$work/errors"
  local status=$?
  [ $status -eq "$1" ] && [ "$(wc -l <"$work/errors")" -eq 1 ] && grep -qF -- "$2" "$work/errors" ||
    fail "stop $3: status $status: $(cat "$work/errors")"
}
refused 2 "there is no process 1073741823" 1073741823
refused 2 "process $$ does not run under Pinion" $$
refused 2 "no process of that job runs on this host" "$work/gpu"
refused 2 "No such file or directory" "$work/absent"
refused 2 "'0' is no process" 0
refused 2 "process 1" 1  # of root outside, or not under Pinion

[ $failures -eq 0 ]
