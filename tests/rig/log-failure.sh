#!/bin/bash
# log-failure.sh flush|write - the disk under the log fails once, with EIO, and seems to work again (failing-log.c).
#
# From the failure on nothing is acknowledged; the node is read-only, says so and names the log's file; what was durable is
# read. The log is carried to another disk, and a server on it has everything that was acknowledged, and takes changes.
. "$(dirname "$0")/lib.sh"
how=$1
begin
gcc -shared -fPIC -O1 -Wall -o "$WORK/failing-log.so" "$RIG/failing-log.c" -ldl -lpthread
serve_failing() {
    LD_PRELOAD=$WORK/failing-log.so FAILING_LOG=$WORK/fail-now serve --store "file://$WORK/store" --key-file "$WORK/key" \
        --log "$WORK/log" --admin 127.0.0.1:9120
}
serve_failing
write() { in_ns "$NFSLOAD" write --ledger "$WORK/ledger" --size 32768 --patience 5 "$@"; }
old() { in_ns "$NFSLOAD" write --ledger "$WORK/old" --name old --size 32768 --patience 5 "$@"; }
old --seconds 1 || fail "before any failure"
write --seconds 2 || fail "before any failure"
in_ns "$TARN" checkpoint --data "$DATA" >/dev/null || fail "checkpoint"
write --clients 4 --seconds 20 --until ANY --then-never 3 >"$WORK/load.out" 2>&1 &
load=$!
sleep 1.5
printf %s "$how" >"$WORK/fail-now"
wait $load || { cat "$WORK/load.out"; fail "the load"; }
cat "$WORK/load.out"
grep -q 'failing-log: the disk has failed' "$WORK/server.log" || fail "the failure was never met"
kill -0 "$SERVER" || fail "the server ended: reading should go on"

# It says so, wherever one looks.
until_said 5 "READ ONLY .*$WORK/log/tarn.log"
until_said 5 "FAILED: .*$WORK/log/tarn.log"
in_ns bash -c 'exec 3<>/dev/tcp/127.0.0.1/9120; printf "GET /healthz HTTP/1.0\r\n\r\n" >&3; cat <&3' >"$WORK/health"
grep -q '^HTTP.* 503' "$WORK/health" || fail "healthz is content: $(cat "$WORK/health")"
grep -q "$WORK/log/tarn.log" "$WORK/health" || fail "healthz does not name the log: $(cat "$WORK/health")"
grep -qE "ERROR.*$WORK/log/tarn.log" "$WORK/server.log" || fail "the server's own report does not name the log"
# A client that comes now reads what is durable, and is told that nothing can be changed.
in_ns "$NFSLOAD" read --ledger "$WORK/old" || fail "reading after the failure"
old --seconds 10 --until ROFS --then-never 2 || fail "changes after the failure"
old --seconds 10 --until ROFS --over || fail "writing over after the failure"

stop KILL
mkdir "$WORK/good-disk"
cp "$WORK/log/tarn.log" "$WORK/good-disk/"
serve --store "file://$WORK/store" --key-file "$WORK/key" --log "$WORK/good-disk"
said=$(in_ns "$NFSLOAD" read --ledger "$WORK/ledger") || fail "on a good disk: $said"
in_ns "$NFSLOAD" read --ledger "$WORK/old" || fail "on a good disk, the old ones"
write --seconds 2 || fail "changes on a good disk"
stop TERM
serve --store "file://$WORK/store" --key-file "$WORK/key" --log "$WORK/good-disk"
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "after a clean stop"
echo "$how fails once: nothing acknowledged afterwards, read-only and said so; on a good disk $said"
