#!/bin/bash
# restarts.sh TIMES - the server is restarted under a mounted, busy kernel client: every second time with SIGTERM, every second
# time killed. No call of any process there ever fails (no EIO, no ESTALE), nobody mounts again, files stay open throughout
# (tests/rig/guest/busy.py).
. "$(dirname "$0")/lib.sh"
times=$1
begin
serve
mkdir "$WORK/share"
cp "$RIG/guest/busy.py" "$WORK/share/"
: >"$WORK/share/journal"
(
    guest -s "$WORK/share" -t 3000 '
        mount_export timeo=20,retrans=2 || exit 9
        mkdir /mnt/busy
        python3 /share/busy.py /mnt/busy /share/journal /share/stop || exit 1
        dmesg | grep -iE "nfs.*(error|stale)|i/o error" && exit 1
        cd / && umount /mnt' >"$WORK/guest.out" 2>&1
    echo $? >"$WORK/guest.status"
) &
guest=$!
rounds() { wc -l <"$WORK/share/journal"; }
goes_on() { # every process there has done something more
    local worker from=$(($(rounds) + 1))
    for worker in 0 1 2 3; do
        for _ in $(seq 1200); do
            tail -n "+$from" "$WORK/share/journal" | grep -q "^$worker " && continue 2
            [ ! -e "$WORK/guest.status" ] || break
            sleep 0.1
        done
        cat "$WORK/guest.out"
        fail "$1: process $worker does not go on"
    done
}
goes_on "before any restart"
for round in $(seq "$times"); do
    sleep "0.$((RANDOM % 9))"
    signal=TERM
    [ $((round % 2)) = 0 ] || signal=KILL
    stop $signal
    # Sometimes it stays away for a while.
    [ $((round % 10)) != 9 ] || sleep 3
    serve
    goes_on "restart $round"
    [ $((round % 10)) != 0 ] || say "$round restarts, $(rounds) rounds"
done
touch "$WORK/share/stop"
wait $guest || true
cat "$WORK/guest.out"
[ "$(cat "$WORK/guest.status")" = 0 ] || fail "the kernel client met an error"
stop TERM
serve
in_ns "$TARN" fsck --data "$DATA" >"$WORK/fsck" 2>&1 || { cat "$WORK/fsck"; fail "fsck"; }
echo "$times restarts, $(tail -1 "$WORK/guest.out")"
