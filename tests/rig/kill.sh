#!/bin/bash
# kill.sh raw|kernel TIMES - kill -9 under load; what was acknowledged is there after each restart.
#
#   raw     two raw clients that repeat a call until it is answered
#   kernel  the same, and a kernel client whose program notes each change after its call returned
# Nobody mounts again; the kernel client's program must still be running at the end.
. "$(dirname "$0")/lib.sh"
kind=$1 times=$2
begin
{
    declare -f export_to_all
    echo "export_to_all '$TARN' '$DATA' || exit 1"
} >"$WORK/prepare"
options=()
if [ "$kind" = kernel ]; then
    mkdir "$WORK/share"
    cp "$RIG/guest/journal.py" "$WORK/share/"
    : >"$WORK/share/journal"
    EXPORT=/vol
    options=(--journal "$WORK/share/journal")
    # The guest is started once the export is ready, and has changed something before the first kill.
    cat >>"$WORK/prepare" <<PREPARE
touch $WORK/ready
for _ in \$(seq 1200); do [ -s $WORK/share/journal ] && exit 0; sleep 0.1; done
echo "the kernel client does not begin"; exit 1
PREPARE
    (
        for _ in $(seq 600); do [ -e "$WORK/ready" ] && break; sleep 0.1; done
        guest -s "$WORK/share" -t 1700 '
            mount_export timeo=20,retrans=2 || exit 9
            mkdir /mnt/kernel
            python3 /share/journal.py /mnt/kernel /share/journal /share/stop || exit 1
            cd / && umount /mnt' >"$WORK/guest.out" 2>&1
        echo $? >"$WORK/guest.status"
    ) &
    guest=$!
fi
in_ns "$NFSLOAD" kill --times "$times" --prepare "bash $WORK/prepare" --log "$WORK/server.log" "${options[@]}" -- \
    "$TARN" serve --data "$DATA" --config "$CONFIG" --nfs 0.0.0.0:2049 >"$WORK/load.out" 2>&1 ||
    { cat "$WORK/load.out"; cat "$WORK/guest.out" 2>/dev/null || true; fail "$kind, $times kills"; }
cat "$WORK/load.out"
if [ "$kind" = kernel ]; then
    serve
    touch "$WORK/share/stop"
    wait "$guest" || true
    cat "$WORK/guest.out"
    [ "$(cat "$WORK/guest.status")" = 0 ] || fail "the kernel client did not carry on"
fi
tail -1 "$WORK/load.out"
