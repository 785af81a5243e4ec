#!/usr/bin/env bash
# Registered memory stays within the limit, and the program goes on: by eviction, or without registration.
. "$(dirname "$0")/common.bash"

# Every buffer of this program has 400,000 bytes: 98 or 99 pages. Strategies take the two devices in turn.
both=(pin emulated)
for retention in on-demand leave-pinned lru helper; do
  devices=("${both[turn++ % 2]}")
  [ -z "$all" ] || devices=("${both[@]}")
  for device in "${devices[@]}"; do
    what="limit far below a buffer: $retention, $device"
    under "--retention $retention --device $device --limit 64K" 2 "$programs/mpi_counted" || fail "$what: $(cat "$work/err")"
    verified || fail "$what: $(cat "$work/out")"
    books_balance "$what"
    report_says "$what" 'r.acquires.bounced == r.acquires.total == 160 and r.registered_bytes.peak == 0'
    report_says "$what" 'r.critical_path_seconds.bounce > 0'
    [ "$(grep -c 'said once' "$work/err")" -eq 2 ] || fail "$what: one line a rank: $(cat "$work/err")"
    # A command to type stays in one line.
    [ -z "$(awk 'length > 100 && !/^pinion:   pinion run /' "$work/err")" ] || fail "$what: beyond 100 columns: $(cat "$work/err")"
    case $device in
      pin) says='the MPI library registers such memory itself' ;;
      emulated) says='take the time of a copy' ;;
    esac
    [ "$(unwrapped "$work/err" | grep -c "limited to 64 KiB.*raise the limit; .*$says")" -eq 2 ] || fail "$what: $(cat "$work/err")"
  done

  what="limit of one buffer: $retention"
  under "--retention $retention --limit 400K" 2 "$programs/mpi_counted" || fail "$what: $(cat "$work/err")"
  verified || fail "$what: $(cat "$work/out")"
  books_balance "$what"
  report_says "$what" 'all(0 < rank.registered_bytes.peak <= 400 << 10 for rank in r.per_rank)'
  report_says "$what" 'r.registrations > 20'

  what="one region: $retention"
  under "--retention $retention --limit-regions 1 --tune threshold=1" 2 "$programs/mpi_datatypes" || fail "$what: $(cat "$work/err")"
  verified || fail "$what: $(cat "$work/out")"
  books_balance "$what"
done

# A device whose regions are smaller than a buffer: each is leased in four parts.
cat >"$work/small.nic" <<END
register_ns_base=1000
register_ns_per_page=10
deregister_ns_base=500
max_region_bytes=130K
END
for retention in on-demand leave-pinned helper; do
  what="small regions: $retention"
  under "--retention $retention --device emulated --nic $work/small.nic" 2 "$programs/mpi_counted" || fail "$what: $(cat "$work/err")"
  verified || fail "$what: $(cat "$work/out")"
  books_balance "$what"
  report_says "$what" 'r.acquires.bounced == 0 and r.acquires.total == 640'
done

# Many threads and requests under a limit that a few of them exhaust.
for program in threads requests; do
  under "--tune threshold=1 --limit 200K" 2 "$programs/mpi_$program" || fail "$program: $(cat "$work/err")"
  verified || fail "$program under a limit: $(cat "$work/out")"
  books_balance "$program under a limit"
  report_says "$program under a limit" 'all(rank.registered_bytes.peak <= 200 << 10 for rank in r.per_rank) and r.acquires.bounced > 0'
done

# RLIMIT_MEMLOCK of 64 KB, as an ordinary user.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
  as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs)
  chmod 755 "$work"
  mkdir -m 777 "$work/home"
else
  as_user=()
fi
user() { (ulimit -l 64 && cd / && HOME=${work}/home TMPDIR=$work/home "${as_user[@]}" timeout 240 "$@"); }
mkdir -p "$work/home"
if user test -x "$pinion" -a -r "$build/lib/libpinion-preload.so" -a -x "$programs/mpi_counted"; then
  what="64 KB of locked memory"
  user "$pinion" run --device pin --log "$work/home/log" -- "${launch[@]}" -n 2 "$programs/mpi_counted" >"$work/out" 2>"$work/err" ||
    fail "$what: status $?: $(cat "$work/err")"
  verified || fail "$what: $(cat "$work/out")"
  [ "$(grep -c '^pinion: rank .*RLIMIT_MEMLOCK' "$work/err")" -eq 2 ] || fail "$what: one line a rank: $(cat "$work/err")"
  grep -qE '^pinion:   ulimit -l [0-9]+$' "$work/err" || fail "$what: what to ask for: $(cat "$work/err")"
  mv "$work/home/log" "$work/log.memlock"
  [ "$(what_is 'r.acquires.bounced == r.acquires.total and r.registered_bytes.peak == 0' "$work/log.memlock")" = True ] ||
    fail "$what: $(what_is 'r.acquires' "$work/log.memlock")"
else
  echo "skipped: an ordinary user cannot read $build"
fi

[ "$failures" -eq 0 ]
