#!/usr/bin/env bash
# The bookkeeping of a message of 1 MiB, both sides together, in instructions of the threads that send and
# receive: callgrind counts them while the program's loop runs, over a network that is made up. Beside it a
# plain get between memory that is registered throughout. The bounds are the counts that were measured and one
# quarter more; the helper's own thread is counted by helper_instructions.sh.
source "$(dirname "$0")/script.bash"
command -v valgrind >/dev/null || exit 77
rounds=$build/tests/transfer_rounds

# instructions HOW ROUNDS
instructions() {
  timeout 240 valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='*rounds(long*' \
    "$rounds" "$1" "$2" 2>&1 | awk '/Collected/ {print $4}'
}

# The first rounds, with all that is done once, cancel out.
few=100 many=400
for case in "registered 1640" "leave-pinned 17400" "helper 17400"; do
  read -r how bound <<<"$case"
  count=$((($(instructions "$how" $many) - $(instructions "$how" $few)) / (many - few)))
  echo "$how: $count instructions a message"
  [ "$count" -gt 0 ] && [ "$count" -le "$bound" ] || fail "$how: '$count' instructions, not $bound"
done

[ "$failures" -eq 0 ]
