#!/usr/bin/env bash
# Unchanged programs that copy between host memory and a GPU mean the same under Pinion, on a made-up driver
# (tests/support/made_up_cuda). With a GPU: tests/gpu/run.
source "$(dirname "$0")/script.bash"
pinion=$build/bin/pinion
programs=$build/tests/gpu
sources=$(dirname "$0")/../gpu/programs
export LD_LIBRARY_PATH=$build/tests/made_up_cuda MADE_UP_CUDA_STRICT=1

# same_meaning OPTIONS...: of pinion run.
same_meaning() {
  "$pinion" run "$@" -- "$programs/meaning" >"$work/meaning.under" 2>"$work/errors" ||
    fail "meaning under $*: status $?: $(tail -1 "$work/meaning.under"); $(cat "$work/errors")"
  diff "$work/meaning.plain" "$work/meaning.under" >"$work/diff" || fail "meaning under $*: $(head -6 "$work/diff")"
}

case ${PINION_TEST_SCALE:-1} in 1 | 0*) times=1 ;; *) times=20 ;; esac

# random THREADS ROAD STEPS MOST OPTIONS...: steps with memory of up to MOST bytes; 50,000 in all, or a million.
random() {
  local threads=$1 road=$2 steps=$(($3 * times)) most=$4
  shift 4
  local output
  output=$(PINION_GPU_ROAD=$road "$pinion" run "$@" -- "$programs/random_copies" --threads "$threads" --steps "$steps" \
    --most "$most" --seed "$threads" --patience 60 2>&1) || fail "random copies, $threads threads, $*: status $?: $output"
  grep -q '^random_copies: verified$' <<<"$output" || fail "random copies, $threads threads, $*: $output"
  grep -q 'brought other bytes' <<<"$output" && fail "random copies, $threads threads, $*: $output"
  grep -q 'GPU copies: [1-9].* went staged or registered' <<<"$output" ||
    fail "random copies, $threads threads, $*: all were plain: $output"
  # Memory that is read-only, changing or in use is no shortage.
  [[ $* == *--limit* ]] || one_line <(echo "$output") | grep -q ' 0 bounced' ||
    fail "random copies, $threads threads, $*: a shortage without a limit: $output"
}

"$programs/meaning" >"$work/meaning.plain" || fail "meaning without Pinion"
grep -q 'WRONG\|LOST' "$work/meaning.plain" && fail "meaning without Pinion: $(grep 'WRONG\|LOST' "$work/meaning.plain")"
same_meaning
same_meaning --retention leave-pinned
same_meaning --cuda stage
random 1 symbols 5000 8M
random 2 proc 8000 4M
random 4 proc 7000 8M
random 8 symbols 10000 2M
random 8 symbols 5000 8M --retention leave-pinned --verify 50%
random 4 symbols 5000 4M --retention lru --limit 4M
random 4 proc 5000 8M --cuda stage --verify 50%
random 5 symbols 5000 8M --monitor userfaultfd
output=$("$pinion" run --except 'nsys:random_[bc]*' --log "$work/excepted" -- "$programs/random_copies" --threads 1 --steps 1000 \
  --most 2M --seed 1 --patience 60 2>&1) || fail "--except: status $?: $output"
grep -q '^random_copies: verified$' <<<"$output" || fail "--except: $output"
[ ! -e "$work/excepted" ] || [ -z "$(find "$work/excepted" -name '*.plog')" ] || fail "--except: Pinion has begun"
output=$("$pinion" run -- "$build/bin/examples/gpu_copy" 4 8 2>&1) || fail "gpu_copy: status $?: $output"
grep -q '^gpu_copy: verified$' <<<"$output" || fail "gpu_copy: $output"

# under_pressure OPTIONS...: idle registrations go while the cgroup of the process is nearly full.
under_pressure() {
  local root=$work/root here=$work/here
  local group=$root/sys/fs/cgroup/job
  rm -rf "$root" "$here" "$work/log"
  mkdir -p "$root/proc/self" "$group" "$here"
  echo '0::/job' >"$root/proc/self/cgroup"
  echo max >"$group/memory.max"
  echo 1000 >"$group/memory.high"
  echo 100 >"$group/memory.current"
  PINION_TEST_ROOT=$root "$pinion" run --log "$work/log" "$@" -- /usr/bin/python3 "$sources/pressure.py" "$here" \
    >"$work/output" 2>&1 &
  local program=$!
  eventually test -e "$here/copied" || fail "under pressure, $*: nothing was copied: $(cat "$work/output")"
  eventually holds_memory || fail "under pressure, $*: nothing was registered"
  echo 990 >"$group/memory.current"
  eventually released || fail "under pressure, $*: nothing was released"
  echo 100 >"$group/memory.current"
  touch "$here/go"
  wait $program || fail "under pressure, $*: status $?: $(cat "$work/output")"
  grep -q '^pressure: verified$' "$work/output" || fail "under pressure, $*: $(cat "$work/output")"
  one_line "$work/output" | grep -Eq 'released [0-9.]+ MiB under memory pressure, once' ||
    fail "under pressure, $*: the summary: $(cat "$work/output")"
}
# reports EXPRESSION: whether it holds for the report `r` of the log so far.
reports() {
  "$pinion" report --json "$work/log" 2>/dev/null |
    python3 -c 'import json, sys; r = json.load(sys.stdin); sys.exit(not eval(sys.argv[1]))' "$1" 2>/dev/null
}
holds_memory() { reports 'r["per_rank"][0]["registered_bytes"]["peak"] > 0'; }
released() { reports 'r["released_under_pressure"]["bytes"] > 0'; }
under_pressure
under_pressure --retention leave-pinned

"$pinion" doctor --gpus >"$work/doctor" 2>&1 || fail "doctor --gpus: status $?: $(cat "$work/doctor")"
one_line "$work/doctor" >"$work/doctor.line"
for text in 'Made-up GPU at 0000:ff:1f.7 (NUMA node 0), CUDA 13.0: ' 'asynchronous copies to it return at once up to 2.00 MiB'; do
  grep -qF "$text" "$work/doctor.line" || fail "doctor --gpus: no '$text': $(cat "$work/doctor")"
done
"$pinion" doctor --gpu-costs "$work/gpu.nic" || fail "doctor --gpu-costs: status $?"
"$build/libexec/pinion/papers" simulate --pattern ft:S:2 --nic "$work/gpu.nic" --retention helper >"$work/simulated" 2>&1 ||
  fail "simulate --nic: $(cat "$work/simulated" "$work/gpu.nic")"
MADE_UP_CUDA_NO_DEVICE=1 "$pinion" doctor --gpus >"$work/doctor" || fail "doctor --gpus without a GPU: status $?"
grep -q '^ok    GPU: cuInit: error 100$' "$work/doctor" || fail "doctor --gpus without a GPU: $(cat "$work/doctor")"
MADE_UP_CUDA_NO_DEVICE=1 "$pinion" doctor --gpu-costs "$work/none" 2>"$work/errors"
[ $? -eq 1 ] && [ ! -e "$work/none" ] || fail "doctor --gpu-costs without a GPU: $(cat "$work/errors")"

# Copies are compared, and none differs.
for options in "--cuda stage" "--retention leave-pinned"; do
  rm -rf "$work/verified"
  # shellcheck disable=SC2086
  "$pinion" run $options --verify 100% --log "$work/verified" -- "$build/bin/examples/gpu_copy" 4 80 >"$work/output" 2>&1 ||
    fail "verify, $options: status $?: $(cat "$work/output")"
  "$pinion" report --json "$work/verified" >"$work/report.json" || fail "verify, $options: no report"
  for part in '"verified": [1-9]' '"differing": 0'; do
    grep -q "$part" "$work/report.json" || fail "verify, $options: $part: $(cat "$work/output")"
  done
done

[ $failures -eq 0 ]
