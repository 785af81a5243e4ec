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
  [ "$(wc -l <"$work/$name.before")" -gt 20 ] || fail "$name: the trace was not understood"
}

# check WHAT OPTIONS PROGRAM: plain, then under Pinion, by the first thread and by another one.
check() {
  local what=$1 options=$2 program=$3 thread
  for thread in '' thread; do
    traced under env PINION="$options,log=$work/log" $preload "$program" '' $thread
    # The list of a program that was traced beforehand, as authors of sandboxes do, without us.
    sort -u "$work/plain.all" "$work/under.before" >"$work/list"
    comm -13 "$work/list" "$work/under.all" >"$work/late"
    [ -s "$work/late" ] && fail "$what $options $thread: made for the first time after the start: $(cut -d ' ' -f 2 "$work/late" | paste -sd ' ')"
    cut -d ' ' -f 1 "$work/list" >"$work/numbers"
    rm -rf "$work/log"
    "${launch[@]}" env PINION="$options,log=$work/log" $preload "$program" "$work/numbers" $thread >"$work/out" 2>&1 ||
      fail "$what $options $thread: status $?"
    grep -q '^went on' "$work/out" || fail "$what $options $thread: $(cat "$work/out")"
    "$pinion" report "$work/log" --json 2>/dev/null | tr -d ' \n' | finds -E '"acquires":\{"total":([3-9][0-9]|[0-9]{3})' || fail "$what $options $thread: Pinion was not at work"
  done
}

launch=() preload=
gcc -O1 -I"$here/../../include" "$here/sandboxed.c" -o "$work/api" -L"$build/lib" -Wl,-rpath,"$build/lib" -lpinion -pthread || exit 1
# This program is never without Pinion: beside the calls before its sandbox it prints, and ends.
strace -n -o "$work/echo" echo >/dev/null
sed -nE 's/^\[ *([0-9]+)\] ([a-z0-9_]+).*/\1 \2/p' "$work/echo" | sort -u >"$work/plain.all"
for options in device=pin device=pin,retention=on-demand device=pin,monitor=userfaultfd; do
  check "C API:" "$options" "$work/api"
done

for family in openmpi mpich; do
  command -v "mpicc.$family" >/dev/null && command -v "mpirun.$family" >/dev/null || continue
  "mpicc.$family" -O1 -DWITH_MPI "$here/sandboxed.c" -o "$work/$family" -pthread || continue
  launch=("mpirun.$family" -n 1) preload="LD_PRELOAD=$build/lib/libpinion-preload.so"
  traced plain "$work/$family" '' thread
  for options in device=pin device=auto device=pin,retention=on-demand; do
    check "$family:" "$options" "$work/$family"
  done
done
[ "$failures" -eq 0 ]
