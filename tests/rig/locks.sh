#!/bin/bash
# locks.sh - flock and fcntl contended between two guests, through NLM and NSM (--portmap).
#
# Both count in one file under a lock: no count is lost. Both hold what the other waits for: a waiter is woken when the lock
# is free, not by chance much later. A try fails while the other holds. Byte ranges that do not meet do not wait.
. "$(dirname "$0")/lib.sh"
begin
[ "$RIG_SERVER" = tarn ] && serve --portmap || serve
MOUNT_OPTIONS=vers=3,proto=tcp,hard
mkdir "$WORK/share"
cp "$RIG/guest/locks.py" "$WORK/share/"
run() {
    guest -s "$WORK/share" -n "$1" -t 200 "
        rpcbind -w; rpc.statd --no-notify
        mount_export || exit 9
        python3 /share/locks.py /mnt $1 $2 || exit 1
        cd / && umount /mnt" >"$WORK/$1.out" 2>&1
}
run alpha beta &
alpha=$!
run beta alpha &
beta=$!
status=0
wait $alpha || status=1
wait $beta || status=1
sed 's/^/alpha: /' "$WORK/alpha.out"
sed 's/^/beta: /' "$WORK/beta.out"
[ $status = 0 ] || fail "locks between two guests"
echo "flock and fcntl between two guests: nothing lost, waiters woken"
