#!/bin/bash
# again.sh ROUNDS - files read again and again from the server's memory, of which there is too little for all of them.
#
# What large reads ask for often is sent from pages that the kernel was handed (crates/base/src/pages.rs); what gives way
# makes room for other bytes at the same address. A kernel client that keeps nothing reads everything, two files at a time,
# and each must be what was written. At the end such pages must have been in use, or the test has seen nothing.
. "$(dirname "$0")/lib.sh"
rounds=$1
begin
CACHE_MIB=16
printf '[log]\nsize = "256MiB"\n[cache]\ndata = "%dMiB"\n' $CACHE_MIB >"$CONFIG"
serve
mkdir "$WORK/share"
guest -s "$WORK/share" '
    mount_export || exit 9
    for name in a b c d; do head -c $((6 << 20)) /dev/urandom >/mnt/$name; done
    cd /mnt && sha256sum a b c d >/share/sums' || fail "cannot write"
# From now on nothing of it is in memory but what is read.
stop
serve
guest -s "$WORK/share" -t 1500 "
    mount_export || exit 9
    cd /mnt
    for round in \$(seq $rounds); do
        for pair in 'a b' 'a b' 'a b' 'a b' 'a b' 'a b' 'a b' 'c d' 'b c' 'b c' 'b c' 'b c' 'b c' 'b c' 'd a' 'd a' 'd a' 'd a' 'd a' 'd a'; do
            echo 3 >/proc/sys/vm/drop_caches
            for name in \$pair; do grep \" \$name\$\" /share/sums | sha256sum -c --quiet & done
            for name in \$pair; do wait -n || exit 1; done
        done
    done" || fail "a file is not what was written"
# The address space of pages of this size: as much as the cache, mapped in one piece.
held=$(awk -v size=$((CACHE_MIB << 10)) '$1 == "Size:" {ours = $2 == size} $1 == "Rss:" && ours {print $2}' \
    "/proc/$SERVER/smaps")
[ "${held:-0}" -gt 2048 ] || fail "the server has ${held:-no} KiB of pages to hand over: nothing was sent from there"
echo "$rounds rounds of 40 files read, each as it was written; $held KiB lay in pages to hand over"
