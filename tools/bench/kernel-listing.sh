#!/bin/bash
# kernel-listing.sh BENCH TARN [COUNT] - how fast the Linux kernel's client lists a directory of COUNT files (default a
# million) that the server has not in memory: names alone, then names and attributes. Needs the guest of tests/rig, which
# has one CPU in user mode: the figure is a floor.
. "$(dirname "$0")/../../tests/rig/lib.sh"
bench=$1 TARN=$2 count=${3:-1000000}
begin
mkfifo "$WORK/enter"
exec 3<>"$WORK/enter" # opened for both, so that it neither waits for a writer nor ends
in_ns "$bench" directory --tarn "$TARN" --directory "$WORK" --count "$count" --listen 0.0.0.0 --port 2049 --hold \
    <&3 3>&- >"$WORK/bench.log" 2>&1 &
for _ in $(seq 3000); do
    grep -q 'press Enter' "$WORK/bench.log" && break
    kill -0 $! 2>/dev/null || { cat "$WORK/bench.log"; fail "the directory was not filled"; }
    sleep 0.2
done
EXPORT=/vol
guest -m 2048 -t 900 '
    mount_export
    names() { before=$(date +%s%N); "$@" | wc -l; after=$(date +%s%N); echo "$(( (after - before) / 1000000 )) ms: $*"; }
    names ls -fU /mnt/large
    umount /mnt && mount_export
    names ls -lUn /mnt/large'
