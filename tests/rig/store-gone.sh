#!/bin/bash
# store-gone.sh deleted|read-only - under a running node the store's directory is deleted, or its disk becomes read-only.
#
# Changes go on, in the log; `tarn status` says what is wrong and where; what the store held is brought back (from a copy, or
# by making the disk writable), and everything acknowledged is there. What a read-only store holds is read meanwhile.
. "$(dirname "$0")/lib.sh"
how=$1
begin
disk elsewhere 400M
store=$WORK/elsewhere/store
serve --store "file://$store" --key-file "$WORK/key"
write() { in_ns "$NFSLOAD" write --ledger "$WORK/ledger" --rate 4000000 "$@"; }
write --seconds 2 || fail "before"
in_ns "$TARN" checkpoint --data "$DATA" >/dev/null || fail "checkpoint"
case $how in
deleted)
    # Nothing is on its way: everything is in the store, and no load.
    cp -a "$store" "$WORK/elsewhere/copy"
    rm -rf "$store"
    ;;
read-only)
    # Nothing of it is in memory.
    stop TERM
    serve --store "file://$store" --key-file "$WORK/key"
    for _ in $(seq 100); do mount -o remount,ro "$WORK/elsewhere" 2>/dev/null && break; sleep 0.05; done
    grep -q " $WORK/elsewhere .* ro[, ]" /proc/mounts || grep -qE "$WORK/elsewhere ext4 ro" /proc/mounts ||
        fail "the disk cannot be made read-only"
    # A checkpoint of metadata alone: it is the metadata's own writing that fails.
    in_ns "$TARN" volume create --data "$DATA" another >/dev/null || fail "a volume while the store is read-only"
    ! in_ns timeout 5 "$TARN" checkpoint --data "$DATA" >"$WORK/checkpoint" 2>&1 || fail "metadata is written to a read-only store"
    said=$(in_ns timeout 20 "$NFSLOAD" read --ledger "$WORK/ledger") || fail "while the store is read-only: $said"
    ;;
esac
write --seconds 4 || fail "changes while the store is $how"
! in_ns timeout 20 "$TARN" checkpoint --data "$DATA" >"$WORK/checkpoint" 2>&1 || fail "a checkpoint succeeded without a store"
until_said 20 "FAILING: .*$store"
case $how in
deleted) words='removed' ;;
read-only) words='[Rr]ead-only' ;;
esac
says "FAILING: .*$words" || { cat "$WORK/status"; fail "status does not say what is wrong"; }
write --seconds 2 || fail "changes after the failed checkpoint"
case $how in
deleted)
    stop KILL
    # Without the store it does not start, says why, and makes nothing in its place.
    if (serve --store "file://$store" --key-file "$WORK/key") >"$WORK/start.out" 2>&1; then
        fail "it starts without its store: $(cat "$WORK/start.out")"
    fi
    [ ! -e "$store" ] || fail "it made a store in the place of the one that is missing: $(find "$store")"
    mv "$WORK/elsewhere/copy" "$store"
    serve --store "file://$store" --key-file "$WORK/key"
    ;;
read-only)
    mount -o remount,rw "$WORK/elsewhere"
    in_ns timeout 60 "$TARN" checkpoint --data "$DATA" >/dev/null || fail "the disk is writable again, and the checkpoint fails"
    ! says FAILING || fail "still failing"
    stop KILL
    serve --store "file://$store" --key-file "$WORK/key"
    ;;
esac
said=$(in_ns "$NFSLOAD" read --ledger "$WORK/ledger") || fail "$said"
write --seconds 1 || fail "changes afterwards"
stop TERM
echo "the store $how: changes went on in the log, status said so; $said"
