#!/bin/bash
# again.sh ROUNDS - files read again and again from the server's memory, of which there is too little for all of them.
#
# What large reads ask for often is sent from pages that the kernel was handed (crates/base/src/pages.rs); what gives way
# makes room for other bytes at the same address. A kernel client that keeps nothing reads everything, two files at a time,
# and each must be what was written: what is stored, and what was just written over and waits for its checkpoint. After either
# such pages must be in use, or the test has seen nothing.
. "$(dirname "$0")/lib.sh"
rounds=$1
begin
CACHE_MIB=16
CHANGES_MIB=64
printf '[log]\nsize = "256MiB"\n[cache]\ndata = "%dMiB"\n[checkpoint]\nmemory = "%dMiB"\n' $CACHE_MIB $CHANGES_MIB >"$CONFIG"
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
            readers=
            for name in \$pair; do grep \" \$name\$\" /share/sums | sha256sum -c --quiet & readers+=\" \$!\"; done
            for reader in \$readers; do wait \$reader || exit 1; done
        done
    done" || fail "a file is not what was written"
# The address space of pages of one size: as much as the cache and changes may take, mapped in one piece.
held() {
    awk -v size=$(((CACHE_MIB + CHANGES_MIB) << 10)) '$1 == "Size:" {ours = $2 == size} $1 == "Rss:" && ours {print $2}' \
        "/proc/$SERVER/smaps"
}
stored=$(held)
[ "${stored:-0}" -gt 2048 ] || fail "the server has ${stored:-no} KiB of pages to hand over: nothing was sent from there"
# Nothing is in memory but what is written now.
stop
serve
guest -s "$WORK/share" -t 1500 "
    mount_export || exit 9
    cd /mnt
    for round in \$(seq $rounds) last; do
        for name in a b; do head -c \$((6 << 20)) /dev/urandom | tee \$name | sha256sum | sed \"s/-/\$name/\" >/tmp/\$name || exit 1; done
        sync
        for time in 1 2 3 4 5 6 7 8; do
            echo 3 >/proc/sys/vm/drop_caches
            readers=
            for name in a b; do sha256sum -c --quiet /tmp/\$name & readers+=\" \$!\"; done
            for reader in \$readers; do wait \$reader || exit 1; done
        done
    done" || fail "a file is not what was just written"
waiting=$(held)
[ "${waiting:-0}" -gt 2048 ] || fail "the server has ${waiting:-no} KiB of pages to hand over: nothing just written was sent from there"
echo "$rounds rounds of 40 files read, each as it was written; $stored KiB lay in pages to hand over, and $waiting of what was just written"
