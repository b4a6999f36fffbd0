#!/bin/bash
# store-away.sh SECONDS LOG - the object store answers 503 for SECONDS, while 20 MB/s of durable writes go on; the log has
# LOG bytes. No client sees an error or is put off; when the store is back, everything is brought to it.
. "$(dirname "$0")/lib.sh"
seconds=$1 size=$2
begin
printf '[log]\nsize = "%s"\n' "$size" >"$CONFIG"
away_store
serve --store "$STORE" --key-file "$WORK/key"
# So that the store is asked all the time.
in_ns "$TARN" volume set vol --data "$DATA" --write-back-delay 1s >/dev/null || fail "setting the delay"
write() { in_ns "$NFSLOAD" write --ledger "$WORK/ledger" --rate 20000000 "$@"; }
write --seconds 3 || fail "before the store goes away"
touch "$WORK/away"
said=$(write --seconds "$seconds" 2>&1) || fail "while the store was away: $said"
say "away: $said"
[[ $said == *" 0 times JUKEBOX"* ]] || fail "clients were put off: $said"
until_said 30 'FAILING: .*503'
rm "$WORK/away"
began=$SECONDS
# The first try may be told of what failed while the store was away.
drained() { in_ns timeout 600 "$TARN" checkpoint --data "$DATA" >/dev/null 2>"$WORK/checkpoint"; }
for _ in $(seq 30); do drained && break; sleep 1; done
drained || fail "the store is back, and checkpoints fail: $(cat "$WORK/checkpoint")"
drained=$((SECONDS - began))
! says FAILING || fail "still failing: $(tarn_status)"
# The bucket alone has it: neither log nor memory is asked.
stop KILL
rm -rf "$WORK/data/log"
serve --store "$STORE" --key-file "$WORK/key" --accept-loss
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "read back from the bucket"
echo "${seconds} s of 503: $said, no error; drained in $drained s, all of it in the bucket"
