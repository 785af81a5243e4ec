# redis: values of 1 MiB by its benchmark, a saved copy by a forked child, and what the copy holds.
redis-server --port 0 --unixsocket "$PWD/socket" --io-threads 2 --save '' --dir "$PWD" >log &
server=$!
while [ ! -S socket ]; do sleep 0.1; done
redis-benchmark -s "$PWD/socket" -n 200 -d 1000000 -r 20 -t set,get -q >/dev/null
redis-cli -s "$PWD/socket" bgsave
while [ "$(redis-cli -s "$PWD/socket" info persistence | tr -d '\r' | sed -n 's/^rdb_bgsave_in_progress://p')" = 1 ]; do sleep 0.1; done
redis-cli -s "$PWD/socket" info persistence | tr -d '\r' | grep last_bgsave_status
redis-cli -s "$PWD/socket" shutdown nosave
wait $server
