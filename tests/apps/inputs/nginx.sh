# nginx with two workers serves 300 requests of 1 MiB by four clients at a time.
head -c 1048576 /dev/zero >file
cat >conf <<END
worker_processes 2;
error_log $PWD/error.log;
pid $PWD/pid;
events {}
http { access_log off; server { listen unix:$PWD/socket; root $PWD; } }
END
chmod 755 .
nginx -c "$PWD/conf" -p "$PWD"
seq 300 | xargs -P 4 -n 50 sh -c 'for i; do curl -s --unix-socket socket http://x/file | cksum; done' _ | sort | uniq -c
kill "$(cat pid)"
while [ -e pid ]; do sleep 0.1; done
