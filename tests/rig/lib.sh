# lib.sh - what every test with a real client shares; sourced, never run.
#
# - `begin` makes a network namespace and a work directory that belong to the test; on exit, however it comes, every
#   process in the namespace is killed and both are removed. Nothing ever listens on the host's own network.
# - A test leaves with 0 (passed) or 1 (failed), and its last line says what it saw.
# - RIG_SERVER=ganesha puts NFS-Ganesha in Tarn's place: to check a test, and to know what the field does.
set -euo pipefail

RIG=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOOLS=${TARN_TOOLS:-/var/tmp/tarn-tools}
TARGET=${CARGO_TARGET_DIR:-$RIG/../../target}
TARN=${TARN:-$TARGET/debug/tarn}
NFSLOAD=${TARN_NFSLOAD:-$TARGET/debug/nfsload}
RIG_SERVER=${RIG_SERVER:-tarn}
PATH=$TOOLS/bin:$TOOLS/node_modules/.bin:$PATH:/usr/sbin:/sbin
MOUNT_OPTIONS=vers=3,nolock,proto=tcp,hard

say() { echo "$(date +%H:%M:%S) $*"; }
fail() { echo "FAILED: $*"; exit 1; }

begin() {
    NS=tarn-rig-$$
    sweep
    WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/tarn-rig.$$.XXXXXX")
    chmod 755 "$WORK"
    trap finish EXIT
    trap 'exit 130' INT TERM HUP
    ip netns add "$NS"
    ip -n "$NS" link set lo up
    DATA=$WORK/data
    SERVER=
    CONFIG=$WORK/tarn.toml
    printf '[log]\nsize = "256MiB"\n' >"$CONFIG"
}

# What a test that was killed outright has left behind.
sweep() {
    local name owner
    for name in $(ip netns list 2>/dev/null | awk '/^tarn-rig-/{print $1}'); do
        owner=${name#tarn-rig-}
        [ -e "/proc/$owner" ] && continue
        kill_all "$name"
        ip netns del "$name" 2>/dev/null || true
        unmount_below "${TMPDIR:-/var/tmp}/tarn-rig.$owner."
        rm -rf "${TMPDIR:-/var/tmp}/tarn-rig.$owner".*
    done
}

unmount_below() { # everything mounted under a path that begins so, the innermost first
    local place
    awk -v begin="$1" 'index($5, begin) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r place; do
        umount -l "$place"
    done
}

# disk NAME SIZE: a file system of its own, ext4, at $WORK/NAME.
disk() {
    mkdir "$WORK/$1"
    truncate -s "$2" "$WORK/$1.image"
    mke2fs -q -t ext4 -m 0 "$WORK/$1.image"
    mount -o loop "$WORK/$1.image" "$WORK/$1"
}

ready() { # the server answers its administrator: its log is made, it has recovered; or it is gone
    for _ in $(seq 1200); do
        tarn_status >/dev/null 2>&1 && return
        kill -0 "$SERVER" 2>/dev/null || { SERVER=; fail "the server ended instead of serving"; }
        sleep 0.1
    done
    fail "the server does not answer after 120 s"
}

# tarn_status [flags]: what `tarn status` says.
tarn_status() { in_ns "$TARN" status --data "$DATA" "$@"; }

# says PATTERN: whether `tarn status` says so.
says() {
    tarn_status >"$WORK/status" 2>&1 || true
    grep -qE "$1" "$WORK/status"
}

# until_said SECONDS PATTERN: waits until it does.
until_said() {
    for _ in $(seq $(($1 * 5))); do
        says "$2" && return
        sleep 0.2
    done
    cat "$WORK/status"
    fail "tarn status does not say \"$2\" within $1 s"
}

# An S3 server, and the line to it that the file $WORK/away takes away; $STORE is its URL.
away_store() {
    export AWS_ACCESS_KEY_ID=rigaccess AWS_SECRET_ACCESS_KEY=rigsecret AWS_REGION=us-east-1
    export AWS_ENDPOINT=http://127.0.0.1:7071 AWS_ALLOW_HTTP=true
    mkdir -p "$WORK/s3/bucket"
    setsid ip netns exec "$NS" versitygw --access rigaccess --secret rigsecret --port 127.0.0.1:7070 \
        posix "$WORK/s3" </dev/null >"$WORK/s3.log" 2>&1 &
    disown
    setsid ip netns exec "$NS" "$NFSLOAD" proxy --listen 127.0.0.1:7071 --to 127.0.0.1:7070 --away "$WORK/away" \
        </dev/null >"$WORK/proxy.log" 2>&1 &
    disown
    for port in 7070 7071; do port_opens $port; done
    STORE=s3://bucket/one
}

port_opens() {
    for _ in $(seq 300); do in_ns ss -Hltn "sport = :$1" | grep -q . && return; sleep 0.1; done
    fail "nothing listens on port $1 after 30 s"
}

kill_all() { # every process in a namespace
    local pids
    for _ in 1 2 3 4 5; do
        pids=$(ip netns pids "$1" 2>/dev/null || true)
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086
        kill -9 $pids 2>/dev/null || true
        sleep 0.1
    done
}

finish() {
    local status=$?
    trap - EXIT
    set +e
    if [ $status -ne 0 ] && [ -s "$WORK/server.log" ]; then
        echo "--- the server said last:"
        tail -30 "$WORK/server.log"
    fi
    kill_all "$NS"
    ip netns del "$NS" 2>/dev/null
    unmount_below "$WORK"
    [ -n "${RIG_KEEP:-}" ] && echo "kept: $WORK" || rm -rf "$WORK"
    exit $status
}

in_ns() { ip netns exec "$NS" "$@"; }

# serve [flags of tarn serve]: starts the server and waits until it answers.
serve() {
    if [ "$RIG_SERVER" = ganesha ]; then
        serve_ganesha
        return
    fi
    setsid ip netns exec "$NS" "$TARN" serve --data "$DATA" --config "$CONFIG" --nfs 0.0.0.0:2049 "$@" \
        </dev/null >>"$WORK/server.log" 2>&1 &
    SERVER=$!
    disown
    EXPORT=/vol
    listening
    ready
    [ -e "$WORK/exported" ] || in_ns bash -c "$(declare -f export_to_all); export_to_all '$TARN' '$DATA'" ||
        fail "cannot set the export's rules"
    touch "$WORK/exported"
}

# Everything in the namespace belongs to the test: root stays root, any port will do.
export_to_all() { # TARN DATA, once the server listens to its administrator
    for _ in $(seq 100); do
        "$1" volume set vol --data "$2" --exports '* rw,no_root_squash,insecure' >/dev/null 2>&1 && return
        sleep 0.1
    done
    "$1" volume set vol --data "$2" --exports '* rw,no_root_squash,insecure'
}

listening() { # the server answers on port 2049, or is gone
    for _ in $(seq 300); do
        in_ns ss -Hltn "sport = :2049" | grep -q . && return
        kill -0 "$SERVER" 2>/dev/null || { SERVER=; fail "the server ended instead of serving"; }
        sleep 0.1
    done
    fail "nothing listens on port 2049 after 30 s"
}

# stop SIGNAL: ends the server and waits until it is gone.
stop() {
    local signal=${1:-TERM}
    kill -"$signal" "$SERVER" 2>/dev/null || true
    for _ in $(seq 600); do
        kill -0 "$SERVER" 2>/dev/null || { SERVER=; return 0; }
        sleep 0.05
    done
    fail "the server did not end within 30 s of $signal"
}

serve_ganesha() {
    EXPORT=$WORK/ganesha
    mkdir -p "$EXPORT" /run/ganesha
    chmod 1777 "$EXPORT"
    cat >"$WORK/ganesha.conf" <<CONF
NFS_CORE_PARAM { Protocols = 3; NFS_Port = 2049; MNT_Port = 20048; NLM_Port = 32803; Enable_RQUOTA = false; }
EXPORT { Export_Id = 1; Path = $EXPORT; Pseudo = /vol; Access_Type = RW; Squash = No_Root_Squash;
  Protocols = 3; Transports = TCP; SecType = sys; PrivilegedPort = false; FSAL { Name = VFS; } }
CONF
    setsid ip netns exec "$NS" rpcbind -w -f </dev/null >>"$WORK/server.log" 2>&1 &
    sleep 0.5
    setsid ip netns exec "$NS" rpc.statd --no-notify -F </dev/null >>"$WORK/server.log" 2>&1 &
    setsid ip netns exec "$NS" ganesha.nfsd -F -f "$WORK/ganesha.conf" -L "$WORK/server.log" -p "$WORK/ganesha.pid" \
        -N NIV_EVENT </dev/null >>"$WORK/server.log" 2>&1 &
    SERVER=$!
    disown -a
    listening
}

# guest [options of run-in-guest.sh] 'command': $MOUNT in the command mounts the export on /mnt.
guest() {
    local command="${!#}" ports=port=2049,mountport=2049
    [ "$RIG_SERVER" = tarn ] || ports=port=2049,mountport=20048
    set -- "${@:1:$#-1}"
    in_ns "$RIG/run-in-guest.sh" "$@" "
        mount_export() { mount -t nfs -o $MOUNT_OPTIONS,$ports\${1:+,\$1} \$HOST:$EXPORT /mnt; }
        $command"
}
