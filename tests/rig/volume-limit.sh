#!/bin/bash
# volume-limit.sh - a volume's size limit is exact to a record: clients that write at once get as many records as fit, no more
# and no fewer, then NOSPC. At the limit what is there can be written over, before and after a restart; what is removed
# makes exactly as much room.
. "$(dirname "$0")/lib.sh"
records=407
begin
serve
in_ns "$TARN" volume set vol --data "$DATA" --record-size 128KiB --size-limit $((records * 131072)) >/dev/null ||
    fail "setting the limit"
write() { in_ns "$NFSLOAD" write --ledger "$WORK/ledger" --size 131072 --patience 20 "$@"; }
acknowledged() { awk '{sum = 0; for (i = 4; i <= NF; i++) sum += $i; print sum}' "$WORK/ledger"; }
exactly() { [ "$(acknowledged)" = "$records" ] || fail "$1: $(acknowledged) records are in, $records fit"; }
write --seconds 60 --until NOSPC || fail "filling"
exactly "four clients at once"
write --seconds 60 --over || fail "writing over at the limit"
write --seconds 5 --until NOSPC --then-never 1 || fail "still full"
exactly "after a second try"
# From the store, with nothing in memory: the pointers have to be fetched to know that nothing grows.
in_ns "$TARN" checkpoint --data "$DATA" >/dev/null || fail "checkpoint"
stop KILL
serve
write --seconds 60 --over || fail "writing over after a restart"
write --seconds 5 --until NOSPC || fail "full after a restart"
exactly "after a restart"
removed=$(in_ns "$NFSLOAD" drop --ledger "$WORK/ledger") || fail "removing: $removed"
[ "$(acknowledged)" -lt "$records" ] || fail "nothing was removed"
write --seconds 60 --until NOSPC || fail "filling again"
exactly "after removing"
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading"
# The limit raised by one record lets one record in.
records=$((records + 1))
in_ns "$TARN" volume set vol --data "$DATA" --size-limit $((records * 131072)) >/dev/null || fail "raising the limit"
write --seconds 60 --until NOSPC || fail "one more"
exactly "with one more"
stop TERM
serve
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading after a clean stop"
in_ns "$TARN" fsck --data "$DATA" >"$WORK/fsck" 2>&1 || { cat "$WORK/fsck"; fail "fsck"; }
echo "$records records fit, $records were taken; $removed, as many fit again; writing over at the limit is free"
