#!/bin/bash
# fsx.sh MODE OPERATIONS - random reads, writes, maps and truncations of one file, each read verified.
#
#   buffered  through the page cache, with mapped writes and cache drops
#   direct    -o noac, every open with O_DIRECT (a preloaded shim), no maps
# Afterwards a second client, a machine of its own, mounts, drops its caches and must read the same bytes.
. "$(dirname "$0")/lib.sh"
mode=$1 operations=$2
begin
serve
mkdir "$WORK/share"
cp "$TOOLS/bin/fsx" "$RIG/direct.c" "$WORK/share/"
seed=$((RANDOM * 32768 + RANDOM))
if [ "$mode" = direct ]; then
    options=noac
    weights='mapread = 0
mapwrite = 0'
    preload='gcc -shared -fPIC -O -o /tmp/direct.so /share/direct.c -ldl && export LD_PRELOAD=/tmp/direct.so'
else
    options=
    weights='mapread = 5
mapwrite = 5
invalidate = 1'
    preload=:
fi
cat >"$WORK/share/fsx.toml" <<CONF
flen = 2097152
[weights]
$weights
read = 10
write = 10
truncate = 3
fsync = 1
close_open = 1
CONF
say "$operations operations, $mode, seed $seed"
guest -s "$WORK/share" -t 1500 "
    mount_export $options || exit 9
    ($preload && cd /tmp && /share/fsx -q -N $operations -S $seed -f /share/fsx.toml -P /tmp /mnt/fsx.file) || exit 1
    sha256sum </mnt/fsx.file >/share/first
    stat -c %s /mnt/fsx.file
    umount /mnt" || fail "fsx, seed $seed"
guest -s "$WORK/share" '
    mount_export || exit 9
    echo 3 >/proc/sys/vm/drop_caches
    sha256sum </mnt/fsx.file >/share/second' || fail "the second client cannot read"
cmp "$WORK/share/first" "$WORK/share/second" || fail "the second client reads other bytes, seed $seed"
echo "$operations operations, $mode, seed $seed, the second client reads the same"
