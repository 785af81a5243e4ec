#!/usr/bin/env bash
# Limits of a process and of a node on a program that needs more: it goes on, slower, and the report has the
# cost; and policies for helpers with more ranks than cores. fft3d has three arrays of 4 MiB a rank here (two
# ranks), at most two in use.
one_by_one=yes
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
fft=("$examples/fft3d" --grid 128x64x64 --iterations 12)
mib=$((1 << 20))

# runs WHAT OPTIONS RANKS
runs() {
  under "--device emulated $2" "$3" "${fft[@]}" || fail "$1: status $?: $(cat "$work/err")"
  verified || fail "$1: $(cat "$work/out")"
  books_balance "$1"
}

# Leave-pinned needs more than the limit, but the memory in use at a time fits: every transfer is registered.
for retention in leave-pinned helper; do
  what="limit of two arrays: $retention"
  runs "$what" "--retention $retention --limit 9M" 2
  report_says "$what" "all(rank.registered_bytes.peak <= 9 * $mib < rank.registered_bytes.leave_pinned_peak for rank in r.per_rank)"
  report_says "$what" 'r.acquires.bounced == 0'
done

# Not even that fits: the rest is copied, and charged.
what="limit of one array"
runs "$what" "--limit 5M" 2
report_says "$what" "all(rank.registered_bytes.peak <= 5 * $mib < rank.registered_bytes.oracle_peak for rank in r.per_rank)"
report_says "$what" 'r.acquires.bounced > 0 and r.critical_path_seconds.bounce > 0 and r.seconds_added > 0'

# A limit of the node: the sum over its ranks, at every moment. Four ranks have three arrays of 2 MiB each.
for retention in leave-pinned helper; do
  what="limit of the node: $retention"
  runs "$what" "--retention $retention --node-limit 18M" 4
  report_says "$what" "r.registered_bytes.peak <= 18 * $mib"
done
what="limit of the node below what is in use"
runs "$what" "--node-limit 6M" 4
report_says "$what" "r.registered_bytes.peak <= 6 * $mib and r.acquires.bounced > 0"

# Shares are safe if the shared file cannot be made: equal parts of known ranks, 0 for an unknown number of processes.
alone() { unshare -m sh -c 'mount -t tmpfs -o ro none /dev/shm && exec "$@"' sh "$@"; }
if [ "$family" = mpich ] && alone true 2>/dev/null; then
  rm -rf "$work/log"
  UCX_POSIX_DIR=$work alone timeout 120 "$pinion" run --device emulated --retention leave-pinned --node-limit 18M --log "$work/log" -- \
    "${launch[@]}" -n 4 "${fft[@]}" >"$work/out" 2>"$work/err" || fail "no table: status $?: $(cat "$work/err")"
  verified || fail "no table: $(cat "$work/out")"
  [ "$(unwrapped "$work/err" | grep -c 'each of 4 keeps to an equal part of --node-limit, 4.5 MiB$')" -eq 4 ] || fail "no table: $(cat "$work/err")"
  report_says "no table" "r.registered_bytes.peak <= 18 * $mib"
  output=$(PINION=node-limit=18M alone "$build/bin/examples/registration_cache" 30 2>&1) || fail "no table, no rank: $output"
  unwrapped - <<<"$output" | grep -q 'nothing is registered; use --limit' && grep -q ' 30 bounced' <<<"$output" || fail "no table, no rank: $output"
fi

# More ranks than this machine has cores, or a core for each and none idle.
ranks=$(($(nproc) + 1))
[ $ranks -ge 4 ] || ranks=4
[ $ranks -le 8 ] || ranks=8
for policy in none-if-busy aggressive conservative; do
  what="$ranks ranks, policy $policy"
  runs "$what" "--tune policy=$policy --tune policy-every=4 --node-limit 64M" "$ranks"
  report_says "$what" "r.registered_bytes.peak <= 64 * $mib"
  if [ "$ranks" -gt "$(nproc)" ]; then
    report_says "$what" 'r.registrations - r.acquires.misses <= r.ranks'  # nobody registers ahead
  fi
done

# Nothing is left behind.
if compgen -G "/dev/shm/pinion-$(id -u)-*" >"$work/left"; then
  for table in $(cat "$work/left"); do
    # Another job of this user may run.
    [ "$table" -ot "$work/version" ] || fail "left behind: $table"
  done
fi

[ "$failures" -eq 0 ]
