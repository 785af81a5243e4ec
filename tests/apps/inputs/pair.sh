# pair.sh PORT SERVER CLIENT: two commands of a pair, the client once the server listens; fails if either does.
port=$(printf ':%04X ' "$1")
eval "$2" &
server=$!
until grep -q "$port.* 0A " /proc/net/tcp /proc/net/tcp6 || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
eval "$3"
status=$?
wait $server || status=$?
exit $status
