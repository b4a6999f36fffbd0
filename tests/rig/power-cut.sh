#!/bin/bash
# power-cut.sh TIMES - the server in a guest, log and store on a disk file of its own; the guest is killed under load again
# and again, and everything that raw clients outside were told is durable must be there after each boot.
#
# A killed guest loses its page cache: what was written and not flushed is gone. The test shows first that it is so, for a
# file written with and one without fsync.
# TARN_MUTANT is handed to the server.
. "$(dirname "$0")/lib.sh"
times=$1
begin
mkdir "$WORK/share"
cp "$TARN" "$WORK/share/tarn"
printf '[log]\nsize = "64MiB"\n' >"$WORK/share/tarn.toml"
truncate -s 1200M "$WORK/disk"
mke2fs -q -t ext4 "$WORK/disk"
boot=(ip netns exec "$NS" "$RIG/run-in-guest.sh" -s "$WORK/share" -d "$WORK/disk" -P "$WORK/group")

# The cut cuts.
"${boot[@]}" -t 60 '
    mkdir /disk && mount /dev/ubdb /disk || exit 9
    head -c 1000000 /dev/urandom >/share/random
    for file in flushed written; do head -c 1000000 /dev/zero >/disk/$file; done
    sync
    dd if=/share/random of=/disk/flushed conv=notrunc,fdatasync 2>/dev/null
    dd if=/share/random of=/disk/written conv=notrunc 2>/dev/null
    touch /share/ready
    sleep 60' >"$WORK/cut.out" 2>&1 &
for _ in $(seq 600); do [ -e "$WORK/share/ready" ] && break; sleep 0.05; done
[ -e "$WORK/share/ready" ] || { cat "$WORK/cut.out"; fail "the guest does not come up"; }
kill -9 -- "-$(cat "$WORK/group")"
wait $! || true
"${boot[@]}" -t 60 '
    mkdir /disk && mount /dev/ubdb /disk || exit 9
    cmp /disk/flushed /share/random || { echo "what was flushed is gone"; exit 1; }
    ! cmp -s /disk/written /share/random || { echo "what was not flushed is there: a killed guest is no power cut"; exit 1; }
    rm /disk/flushed /disk/written && umount /disk' || fail "the rig itself"
say "a killed guest keeps what was flushed and loses what was not"

cat >"$WORK/share/serve" <<'SERVE'
mkdir /disk && mount -o noatime /dev/ubdb /disk || exit 9
/share/tarn serve --data /disk/data --config /share/tarn.toml --nfs 0.0.0.0:2049 >>/share/server.log 2>&1 &
server=$!
until /share/tarn volume set vol --data /disk/data --exports '* rw,no_root_squash,insecure' >/dev/null 2>&1; do
    kill -0 $server 2>/dev/null || { echo "the server ended"; exit 1; }
    sleep 0.1
done
touch /share/exported
until [ -e /share/stop ]; do
    kill -0 $server 2>/dev/null || { echo "the server ended"; exit 1; }
    sleep 0.1
done
kill -TERM $server
wait $server || exit 1
cd / && umount /disk
SERVE
cat >"$WORK/prepare" <<PREPARE
for _ in \$(seq 600); do [ -e $WORK/share/exported ] && exit 0; sleep 0.1; done
echo "the guest's server does not come up"; exit 1
PREPARE
in_ns "$NFSLOAD" kill --times "$times" --address 10.99.0.2:2049 --timeout 3 --group "$WORK/group" \
    --stop "$WORK/share/stop" --prepare "bash $WORK/prepare" --log "$WORK/guest.log" -- \
    "$RIG/run-in-guest.sh" -s "$WORK/share" -d "$WORK/disk" -P "$WORK/group" -t 3600 \
    "export TARN_MUTANT=${TARN_MUTANT:-}; . /share/serve" >"$WORK/load.out" 2>&1 ||
    { cat "$WORK/load.out" "$WORK/guest.log"; tail -20 "$WORK/share/server.log"; fail "$times power cuts"; }
cat "$WORK/load.out"
tail -1 "$WORK/load.out" | sed 's/kills/power cuts/'
