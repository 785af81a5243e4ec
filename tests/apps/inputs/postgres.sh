# A PostgreSQL server of its own: pgbench's tables, 200 transactions by each of 4 clients, and its end.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
chmod 777 .
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
as "$bin/initdb" -D data -A trust >/dev/null
as "$bin/pg_ctl" -D data -w -l log -o "-k $PWD -h ''" start >/dev/null
as "$bin/pgbench" -h "$PWD" -i -s 2 -q postgres 2>/dev/null
as "$bin/pgbench" -h "$PWD" -c 4 -j 2 -t 200 postgres | grep processed
as "$bin/psql" -h "$PWD" -Atc 'select count(*), sum(abalance) = (select sum(delta) from pgbench_history) from pgbench_accounts' postgres
as "$bin/pg_ctl" -D data -w -m fast stop >/dev/null
