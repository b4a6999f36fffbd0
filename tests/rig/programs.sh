#!/bin/bash
# programs.sh WHAT - ordinary programs on a mount, run as an ordinary user:
#
#   git     clone a repository of at least 50 MB, check it, look for differences
#   tar     unpack a tree, pack it again, compare every byte and attribute
#   make    build a C program of many files with make -j, run it, touch one file, build again
#   sqlite  write-ahead and rollback mode, killed writers, integrity check, read back after a new mount
. "$(dirname "$0")/lib.sh"
what=$1
begin
serve
mkdir "$WORK/share"
cp "$RIG/guest/$what.sh" "$WORK/share/"
say "$what"
guest -s "$WORK/share" -t 900 -m 1024 "
    mount_export || exit 9
    mkdir /mnt/home && chown 1000:1000 /mnt/home
    setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/mnt/home bash -eu /share/$what.sh /mnt/home || exit 1
    cd / && umount /mnt" || fail "$what"
echo "$what: ok"
