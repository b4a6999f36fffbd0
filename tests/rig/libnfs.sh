#!/bin/bash
# libnfs.sh - libnfs's own programs: list, copy in, copy out, identical; as root and as an ordinary user, finding the
# ports by portmap and told them.
. "$(dirname "$0")/lib.sh"
begin
[ "$RIG_SERVER" = tarn ] && serve --portmap || serve
url=nfs://127.0.0.1$EXPORT
ports='?nfsport=2049&mountport=2049'
[ "$RIG_SERVER" = tarn ] || ports='?nfsport=2049&mountport=20048'
in_ns "$NFSLOAD" mkdir --export "$EXPORT" ${RIG_MOUNT_ADDRESS:-} open || fail "mkdir"
head -c 30000001 /dev/urandom >"$WORK/out"
chmod 644 "$WORK/out"
mkdir -m 777 "$WORK/back"
as_root() { in_ns timeout 120 "$@"; }
as_user() { in_ns timeout 120 setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }
for who in as_root as_user; do
    for how in '' "$ports"; do
        name=$who-${how:+told}
        $who nfs-cp "$WORK/out" "$url/open/$name$how" >/dev/null || fail "nfs-cp in, $name"
        $who nfs-ls "$url/open$how" >"$WORK/list" || fail "nfs-ls, $name"
        grep -q "30000001.*$name" "$WORK/list" || { cat "$WORK/list"; fail "nfs-ls does not list $name"; }
        $who nfs-cp "$url/open/$name$how" "$WORK/back/$name" >/dev/null || fail "nfs-cp out, $name"
        cmp "$WORK/out" "$WORK/back/$name" || fail "$name comes back different"
    done
done
grep -E '1000 +1000 +30000001.*as_user-$' <(as_root nfs-ls "$url/open") >/dev/null || fail "the user's file is not the user's"
echo "4 copies in and out identical, as root and as an ordinary user"
