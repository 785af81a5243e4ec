#!/usr/bin/env bash
# Sandboxes that a program closes after Pinion has started: no kind of system call is made for the first time behind that.
# So a program whose list has its own calls and those that Pinion's start made goes on, with Pinion at work.
. "$(dirname "$0")/script.bash"
here=$(cd "$(dirname "$0")" && pwd)
pinion=$build/bin/pinion
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
strace -n -o "$work/none" true 2>/dev/null || exit 77

# traced NAME COMMAND...: the numbers and names of the calls before getppid() in NAME.before, all in NAME.all.
traced() {
  local name=$1
  shift
  "${launch[@]}" strace -f -n -o "$work/$name.trace" "$@" >"$work/$name.out" 2>&1
  grep -q '^went on' "$work/$name.out" || fail "$name: $(cat "$work/$name.out")"
  local call='s/^[0-9]+ +\[ *([0-9]+)\] (<\.\.\. )?([a-z0-9_]+).*/\1 \3/p'
  sed -nE "$call" "$work/$name.trace" | sort -u >"$work/$name.all"
  sed '/ getppid(/q' "$work/$name.trace" | sed -nE "$call" | sort -u >"$work/$name.before"
  [ "$(wc -l <"$work/$name.before")" -gt 15 ] || fail "$name: the trace was not understood"
}

# went_on WHAT ARGUMENT...: the program goes on to its end behind its sandbox; status 77 where there is none of this kind.
went_on() {
  local what=$1 status
  shift
  rm -rf "$work/log"
  "${launch[@]}" env PINION="$options,log=$work/log" $preload "$program" "$@" >"$work/out" 2>&1
  status=$?
  [ $status -eq 77 ] && return 77
  [ $status -eq 0 ] && grep -q '^went on' "$work/out" && return
  fail "$what $options $*: status $status: $(tail -5 "$work/out")"
}
# at_work WHAT: the log has the transfers, whether the registry or the arena served them.
at_work() {
  local figures served registry
  figures=$("$pinion" report "$work/log" --json 2>/dev/null | tr -d ' \n')
  served=$(grep -oE '"served":[0-9]+' <<<"$figures" | head -1 | cut -d : -f 2)
  registry=$(grep -oE '"acquires":\{"total":[0-9]+' <<<"$figures" | head -1 | cut -d : -f 3)
  [ $((${registry:-0} + ${served:-0})) -ge 30 ] || fail "$1: Pinion was not at work"
}

# check WHAT OPTIONS PROGRAM [WAY]...: under Pinion in these ways; by default by the first thread and by another one, whose
# sandbox may be its own.
check() {
  local what=$1 options=$2 program=$3 way ways=("${@:4}")
  [ ${#ways[@]} -gt 0 ] || ways=('' thread 'thread alone')
  for way in "${ways[@]}"; do
    traced under env PINION="$options,log=$work/log" $preload "$program" '' $way
    # The list of a program that was traced beforehand, as authors of sandboxes do, without us.
    sort -u "$work/plain.all" "$work/under.before" >"$work/list"
    comm -13 "$work/list" "$work/under.all" >"$work/late"
    # Only threads that meet one another make these, so few runs see them.
    for call in sched_yield futex clock_nanosleep $mutex; do
      grep -q " $call\$" "$work/under.before" || fail "$what $options $way: not made at the start: $call"
    done
    [ -s "$work/late" ] && fail "$what $options $way: made for the first time after the start: $(cut -d ' ' -f 2 "$work/late" | paste -sd ' ')"
    cut -d ' ' -f 1 "$work/list" >"$work/numbers"
    went_on "$what" "$work/numbers" $way
    at_work "$what $options $way"
  done
  # Pinion knows less where no file can be opened any more, and keeps less.
  went_on "$what" - landlock || return 0
  at_work "$what $options landlock"
}

launch=() preload= mutex=
gcc -O1 -I"$here/../../include" "$here/sandboxed.c" -o "$work/api" -L"$build/lib" -Wl,-rpath,"$build/lib" -lpinion -pthread || exit 1
# This program is never without Pinion: beside the calls before its sandbox it prints, ends, and has System V memory.
strace -n -o "$work/echo" echo >/dev/null
sed -nE 's/^\[ *([0-9]+)\] ([a-z0-9_]+).*/\1 \2/p' "$work/echo" >"$work/plain.all"
gcc -O1 -DWITH_NOTHING "$here/sandboxed.c" -o "$work/nothing" -pthread || exit 1
traced nothing "$work/nothing" '' thread
cat "$work/nothing.all" >>"$work/plain.all"
sort -uo "$work/plain.all" "$work/plain.all"
for options in device=pin device=pin,retention=on-demand device=pin,monitor=userfaultfd; do
  check "C API:" "$options" "$work/api"
done
# Large blocks in hugepages and in the arena.
placed=(hugepages=heap preregister=64M,preregister-mmaps=1M hugepages=heap,preregister=64M)
preload="LD_PRELOAD=$build/lib/libpinion-heap.so:$build/lib/libpinion-preload.so" mutex=nanosleep
for options in "${placed[@]}"; do
  check "C API:" "device=pin,$options" "$work/api"
done

for family in openmpi mpich; do
  command -v "mpicc.$family" >/dev/null && command -v "mpirun.$family" >/dev/null || continue
  "mpicc.$family" -O1 -DWITH_MPI "$here/sandboxed.c" -o "$work/$family" -pthread || continue
  launch=("mpirun.$family" -n 1) preload="LD_PRELOAD=$build/lib/libpinion-preload.so" mutex=
  traced plain "$work/$family" '' thread
  for options in device=pin device=auto device=pin,retention=on-demand; do
    check "$family:" "$options" "$work/$family"
  done
  preload="LD_PRELOAD=$build/lib/libpinion-heap.so:$build/lib/libpinion-preload.so" mutex=nanosleep
  for options in "${placed[@]}"; do
    check "$family:" "device=pin,$options" "$work/$family" thread
  done
done

# The verbs front starts with the first registration.
if [ -e "$build/tests/verbs/libibverbs.so.1" ]; then
  gcc -O1 -DWITH_VERBS "$here/sandboxed.c" -o "$work/verbs" "$build/tests/verbs/libibverbs.so.1" -Wl,-rpath,"$build/tests/verbs" -pthread || exit 1
  launch=() preload="LD_PRELOAD=$build/lib/libpinion-preload.so" mutex=
  traced plain "$work/verbs" '' thread
  for options in front=verbs,remote-keys=shared front=verbs,remote-keys=shared,retention=on-demand; do
    check "verbs:" "$options" "$work/verbs"
  done
  # Behind a sandbox that is there by then it stays off: such a list has what the program calls alone.
  program=$work/verbs options=front=verbs,remote-keys=shared
  for way in '' thread child 'child thread'; do
    traced alone "$work/verbs" '' first $way
    traced under env PINION="$options,log=$work/log" $preload "$program" '' first $way
    sort -u "$work/alone.all" "$work/under.before" | cut -d ' ' -f 1 >"$work/numbers"
    went_on 'verbs, closed before the first registration:' "$work/numbers" first $way
    [ -e "$work/log" ] && fail "verbs $way: Pinion started behind the sandbox"
  done
fi
[ "$failures" -eq 0 ]
