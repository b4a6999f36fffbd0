#!/bin/bash
# log-full.sh - the store is away and the log runs full: writers become slow, then are told JUKEBOX, and go on by themselves
# when the store is back. Nobody sees an error. Meanwhile the log's content is read.
. "$(dirname "$0")/lib.sh"
begin
printf '[log]\nsize = "64MiB"\n' >"$CONFIG"
away_store
serve --store "$STORE" --key-file "$WORK/key"
write() { in_ns "$NFSLOAD" write --ledger "$WORK/ledger" --patience 300 --timeout 30 "$@"; }
write --seconds 2 --rate 8000000 || fail "before the store goes away"
touch "$WORK/away"
write --seconds 35 --rate 8000000 --progress "$WORK/progress" >"$WORK/load.out" 2>&1 &
load=$!
put_off() { awk '{print $2}' "$WORK/progress" 2>/dev/null || echo 0; }
for _ in $(seq 400); do
    [ "$(put_off)" -gt 4 ] 2>/dev/null && break
    kill -0 $load 2>/dev/null || break
    sleep 0.1
done
[ "$(put_off)" -gt 4 ] || { cat "$WORK/load.out" "$WORK/progress"; tarn_status; fail "the log does not run full"; }
tarn_status | grep log
full=$(awk '{print $1}' "$WORK/progress")
in_ns "$NFSLOAD" list || fail "reading while the log is full"
rm "$WORK/away"
wait $load || { cat "$WORK/load.out"; fail "the load"; }
said=$(cat "$WORK/load.out")
# Slow first: a writer waited for room for ten seconds before it was put off.
grep -qE 'WRITE.*status=10008 millis=1?[0-9]{4}' "$WORK/server.log" || fail "nobody waited before JUKEBOX: $said"
after=$(($(awk '{print $1}' "$WORK/progress") - full))
[ "$after" -gt 50 ] || fail "only $after records after the store came back: $said"
stop KILL
serve --store "$STORE" --key-file "$WORK/key"
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "read back"
echo "$said; $after records after the store came back, nobody told an error"
