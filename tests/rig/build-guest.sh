#!/bin/bash
# build-guest.sh - build the throw-away Debian guest in which a real Linux kernel's NFS client runs.
#
# The kernel is Debian's user-mode Linux: an ordinary host process, no KVM, no module. The root file system holds
# the client's tools and what the tests run on a mount: git, gcc, make, tar, sqlite3, python3.
# Needs root, apt and a Debian mirror; one to three minutes, about 1.5 GB.
#
#   ./build-guest.sh           # builds into $TARN_RIG unless what is there is current
#   ./build-guest.sh --force   # builds again
set -euo pipefail

HERE=$(cd "$(dirname "$0")" && pwd)
OUT=${TARN_RIG:-${TARN_TOOLS:-/var/tmp/tarn-tools}/rig}
SUITE=bookworm
IMAGE_SIZE=2500M

PACKAGES=busybox-static,kmod,iproute2,iputils-ping,procps,util-linux,mount,ca-certificates
PACKAGES+=,nfs-common,rpcbind,netbase,attr,acl,libcap2-bin,python3
PACKAGES+=,git,gcc,libc6-dev,make,tar,sqlite3
HOST_PACKAGES="mmdebstrap e2fsprogs busybox-static kmod iproute2"

mirror() { # the mirror this machine's apt already uses, else Debian's own
    local found
    found=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
        head -1 | tr -d ' ') || true
    echo "${found:-http://deb.debian.org/debian}"
}

recipe=$(cat "$0" "$HERE/guest-init" "$HERE/guest-registers.c" | sha256sum | cut -c1-16)
if [ "${1:-}" != --force ] && [ "$(cat "$OUT/built" 2>/dev/null)" = "$recipe" ]; then
    echo "guest in $OUT is current"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
for package in $HOST_PACKAGES; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        apt-get install -y -q --no-install-recommends "$package" >/dev/null
done
mkdir -p "$OUT"
rm -rf "$OUT/built" "$OUT/root" "$OUT/debs" "$OUT/unpacked"
mkdir -p "$OUT/debs"

# 1. The kernel: unpacked, never installed on the host. apt's download user may not reach $OUT, so root downloads.
(cd "$OUT/debs" && apt-get -o APT::Sandbox::User=root download -q user-mode-linux >/dev/null)
dpkg-deb -x "$OUT"/debs/user-mode-linux_*.deb "$OUT/unpacked"
version=$(basename "$OUT"/unpacked/usr/lib/uml/modules/*)
cp "$OUT/unpacked/usr/bin/linux.uml" "$OUT/linux.uml"
cc -O2 -Wall -Wextra -shared -fPIC -o "$OUT/registers.so" "$HERE/guest-registers.c"

# 2. The root file system.
bootstrap() {
    rm -rf "$OUT/root"
    mmdebstrap --quiet --variant=minbase --mode=root \
        --aptopt='Acquire::Languages "none"' \
        --aptopt='Acquire::Retries "3"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --include="$PACKAGES" "$SUITE" "$OUT/root" "${RIG_MIRROR:-$(mirror)}" >"$OUT/mmdebstrap.log" 2>&1
}
bootstrap || bootstrap || { tail -20 "$OUT/mmdebstrap.log" >&2; exit 1; } # a mirror may fail once
mkdir -p "$OUT/root/lib/modules" "$OUT/root/rig" "$OUT/root/share"
mv "$OUT/unpacked/usr/lib/uml/modules/$version" "$OUT/root/lib/modules/"
depmod -b "$OUT/root" "$version"
install -m 755 "$HERE/guest-init" "$OUT/root/sbin/guest-init"
echo rig-guest >"$OUT/root/etc/hostname"
echo '127.0.0.1 localhost rig-guest' >"$OUT/root/etc/hosts"
for id in 1000 1001 1002; do # ordinary users for permission tests
    echo "user$id:x:$id:$id::/tmp:/bin/bash" >>"$OUT/root/etc/passwd"
    echo "user$id:x:$id:" >>"$OUT/root/etc/group"
done

# 3. The disk image. No journal: every run gets its own copy-on-write file and throws it away.
rm -f "$OUT/root.img"
mke2fs -q -t ext4 -O ^has_journal -m 0 -L rigroot -d "$OUT/root" "$OUT/root.img" "$IMAGE_SIZE"
rm -rf "$OUT/unpacked" "$OUT/debs" "$OUT/root"
echo "$recipe" >"$OUT/built"
echo "guest built in $OUT: kernel $version, $(du -h "$OUT/root.img" | cut -f1) on disk, ${SECONDS}s"
