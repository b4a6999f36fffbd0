#!/bin/bash
# sealed.sh - `strings` over the data directory, log and bucket finds neither a planted name nor planted content, while the
# server runs, after a checkpoint and after it stopped.
. "$(dirname "$0")/lib.sh"
begin
serve --store "file://$WORK/bucket" --key-file "$WORK/key"
name=PLANTEDNAME$RANDOM$RANDOM content=PLANTEDCONTENT$RANDOM$RANDOM
for _ in $(seq 5000); do echo "$content"; done >"$WORK/plain"
in_ns nfs-cp "$WORK/plain" "nfs://127.0.0.1$EXPORT/$name?nfsport=2049&mountport=2049" >/dev/null || fail "nfs-cp"
look() {
    local found
    for needle in "$name" "$content"; do
        # -r reads every file; -a takes binary as text; in UTF-16 too, which a log of names might use.
        found=$(grep -rlaF "$needle" "$DATA" "$WORK/bucket" || true)
        [ -z "$found" ] || fail "$1: $needle is readable in $found"
        found=$(find "$DATA" "$WORK/bucket" -type f -exec strings -el {} + | grep -cF "$needle" || true)
        [ "$found" = 0 ] || fail "$1: $needle is readable in 16-bit characters"
    done
    [ "$(find "$DATA" "$WORK/bucket" -name '*PLANTED*' | wc -l)" = 0 ] || fail "$1: a file is called by the planted name"
}
look "while it runs"
in_ns "$TARN" checkpoint --data "$DATA" >/dev/null || fail "checkpoint"
look "after a checkpoint"
[ "$(find "$WORK/bucket" -type f -size +0 | wc -l)" -gt 0 ] || fail "the bucket is empty: nothing was looked at"
stop TERM
look "after the stop"
echo "nothing readable in $(du -sk "$DATA" "$WORK/bucket" | awk '{s+=$1} END {print s}') KiB"
