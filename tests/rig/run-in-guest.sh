#!/bin/bash
# run-in-guest.sh - boot the guest, run one command in it as root, print its output, leave with its exit status.
#
#   ip netns exec NAME run-in-guest.sh 'mount -t nfs -o vers=3,nolock $HOST:/vol /mnt && ls /mnt'
#
# In the guest $HOST is the host's end of a private tap device in this network namespace.
#   -s DIR       share a host directory, /share in the guest
#   -m MB        guest memory (default 768)
#   -n NAME      the guest's host name (locks are owned by host names; default rig-guest)
#   -d FILE      a second disk, /dev/ubdb in the guest, which stays when the guest ends
#   -P FILE      write the guest's process group there: `kill -9 -- -$(cat FILE)` is a power cut. The guest's page cache
#                dies with it; what it flushed is in the disk file. (The host's page cache lives on: what the guest wrote
#                without a barrier, but did write, is there too; losing that is the simulator's part.)
#   -t SECONDS   give up after this long (default 600), status 124
# Guests run side by side, each with a tap and a copy-on-write file of its own. The network namespace belongs to
# the test, so that the test network stays off every other interface; whoever made it cleans it up.
set -uo pipefail
OUT=${TARN_RIG:-${TARN_TOOLS:-/var/tmp/tarn-tools}/rig}
share= memory=768 name=rig-guest limit=600 disk= groupfile=
while getopts s:m:n:t:d:P: option; do
    case $option in
    s) share=$(realpath "$OPTARG") ;; m) memory=$OPTARG ;; n) name=$OPTARG ;; t) limit=$OPTARG ;;
    d) disk=$(realpath "$OPTARG") ;; P) groupfile=$OPTARG ;; *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -eq 1 ] || { sed -n '2,18p' "$0" >&2; exit 2; }
[ -e "$OUT/built" ] || { echo "no guest in $OUT: run tests/rig/build-guest.sh" >&2; exit 2; }
[ -n "$(ip netns identify $$)" ] || { echo "run me and the server in a network namespace" >&2; exit 2; }

run=$(mktemp -d "${TMPDIR:-/var/tmp}/rig-run.XXXXXX")
printf '%s\n' "$1" >"$run/command"
: >"$run/out"; : >"$run/err"; : >"$run/status"
tap= guest= group=
cleanup() {
    [ -n "$guest" ] && kill "$guest" 2>/dev/null
    [ -n "$group" ] && kill -9 -- "-$group" 2>/dev/null
    [ -n "$tap" ] && ip link del "$tap" 2>/dev/null
    rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

for i in $(seq 0 250); do
    ip tuntap add "rigtap$i" mode tap 2>/dev/null && { tap=rigtap$i index=$i; break; }
done
[ -n "$tap" ] || { echo "no tap device (are you root, is there /dev/net/tun?)" >&2; exit 2; }
ip addr add "10.99.$index.1/30" dev "$tap"
ip link set "$tap" txqueuelen 10000 up

(cd "$run" && TMPDIR=/dev/shm exec timeout -k 5 "$limit" env LD_PRELOAD="$OUT/registers.so" "$OUT/linux.uml" \
    mem="${memory}M" umid="$(basename "$run")" uml_dir="$run/" \
    ubd0="$run/cow,$OUT/root.img" ${disk:+ubd1="$disk"} root=/dev/ubda rw init=/sbin/guest-init \
    vec0:transport=tap,ifname="$tap",depth=512,gro=1 \
    con=null con0=null,fd:1 ssl=null \
    rig.run="$run" rig.share="$share" rig.name="$name" \
    rig.address="10.99.$index.2/30" rig.gateway="10.99.$index.1") </dev/null >"$run/console" 2>&1 &
guest=$!
# User-mode Linux makes a session of its own, named by its first process.
for _ in $(seq 100); do
    p=$(pgrep -P "$guest" | head -1)
    [ -n "$p" ] && [ "$(ps -o pgid= -p "$p" | tr -d ' ')" = "$p" ] && { group=$p; break; }
    sleep 0.05
done
[ -z "$groupfile" ] || echo "$group" >"$groupfile"
# The output files grow as the guest writes; follow them until it is gone.
tail -q -c +1 -s 0.1 -f --pid="$guest" "$run/out" & out=$!
tail -q -c +1 -s 0.1 -f --pid="$guest" "$run/err" >&2 & err=$!
wait "$guest"
ended=$?
guest=
wait "$out" "$err" 2>/dev/null
status=$(tr -dc 0-9 <"$run/status")
if [ -z "$status" ]; then
    [ "$ended" = 124 ] && { echo "run-in-guest: no result after ${limit}s" >&2; exit 124; }
    echo "run-in-guest: the guest ended without a result (status $ended); console:" >&2
    tail -20 "$run/console" >&2
    exit 125
fi
exit "$status"
