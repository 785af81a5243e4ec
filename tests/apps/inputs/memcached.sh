# memcached with four threads, filled and read by memcached's own clients.
memcached -u root -s "$PWD/socket" -t 4 -m 64 &
server=$!
while [ ! -S socket ]; do sleep 0.1; done
head -c 900000 /dev/zero | tr '\0' x >value
for i in 1 2 3 4 5 6 7 8; do cp value "value$i"; memccp --servers="$PWD/socket" "value$i"; done
for i in 1 2 3 4 5 6 7 8; do memccat --servers="$PWD/socket" "value$i" | cksum; done
kill $server
wait $server
