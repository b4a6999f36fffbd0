# sqlite.sh DIR - in the guest: SQLite in rollback and write-ahead mode, a writer killed in between, integrity check.
# Without a lock manager (nolock) both modes work within one machine; write-ahead needs one process or shared maps,
# which the kernel client gives on one machine.
dir=$1
cd "$dir"
for mode in delete wal; do
    db=$mode.db
    [ "$(sqlite3 "$db" "pragma journal_mode=$mode;")" = "$mode" ]
    sqlite3 "$db" 'create table t(id integer primary key, v blob, sum integer);'
    for round in 1 2 3; do
        # A writer of endless transactions, killed in the middle of one.
        (while :; do
            echo 'begin; insert into t(v, sum) select randomblob(500), 500 from generate_series(1, 200); commit;'
        done | sqlite3 "$db" 2>/dev/null) &
        writer=$!
        sleep 2
        pkill -9 -P "$writer" sqlite3 2>/dev/null || true
        kill -9 "$writer" 2>/dev/null || true
        wait "$writer" 2>/dev/null || true
        pkill -9 -u "$(id -u)" sqlite3 2>/dev/null || true
        [ "$(sqlite3 "$db" 'pragma integrity_check;')" = ok ] || { echo "$mode: integrity, round $round"; exit 1; }
        rows=$(sqlite3 "$db" 'select count(*) from t;')
        [ $((rows % 200)) = 0 ] || { echo "$mode: half a transaction, $rows rows"; exit 1; }
    done
    sqlite3 "$db" 'update t set v = randomblob(900) where id % 3 = 0; delete from t where id % 5 = 0; vacuum;'
    [ "$(sqlite3 "$db" 'pragma integrity_check;')" = ok ]
    [ "$rows" -gt 0 ] || { echo "$mode: nothing was written"; exit 1; }
    echo "$mode: $rows rows, ok"
done
