#!/usr/bin/env bash
# Collectives among neighbours, one-sided and file operations, partitioned and freed requests, sessions: contents as
# in plain runs, in every form, and the books balance.
. "$(dirname "$0")/common.bash"

try() {
  local options=$1 n=$2
  shift 2
  under "$options" "$n" "$@" || fail "$options: $*: status $?: $(cat "$work/out" "$work/err")"
  cmp -s "$work/plain" "$work/out" || fail "$options: $*: $(cat "$work/out")"
  books_balance "$options: $*"
}

devices=(pin emulated)
for program in "2 neighbours" "3 neighbours" "2 onesided" "2 files" "2 buffered" "2 freed" "2 arrivals" "2 partitioned" \
  "2 sessions"; do
  read -r n name <<<"$program"
  [ -x "$programs/mpi_$name" ] || continue
  command=("$programs/mpi_$name")
  [ "$name" = files ] && command+=("$work/file")
  ranks "$n" "${command[@]}" >"$work/plain" 2>&1 || fail "$name without Pinion: $(cat "$work/plain")"
  choose_retentions
  for retention in "${retentions[@]}"; do
    try "--retention $retention --tune threshold=1 --device ${devices[turn++ % 2]}" "$n" "${command[@]}"
  done
  try "--device ${devices[turn++ % 2]}" "$n" "${command[@]}"
done

# These are the same programs with counts that are MPI_Count.
for name in blocking requests collectives neighbours onesided files buffered; do
  [ -x "$programs/mpi_${name}_large" ] || continue
  command=("$programs/mpi_${name}_large")
  [ "$name" = files ] && command+=("$work/file")
  ranks 2 "${command[@]}" >"$work/plain" 2>&1 || fail "${name}_large without Pinion: $(cat "$work/plain")"
  try "--retention on-demand --tune threshold=1" 2 "${command[@]}"
  try "" 2 "${command[@]}"
done

[ "$failures" -eq 0 ]
