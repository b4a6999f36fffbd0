#!/bin/bash
# listing.sh COUNT - a directory of COUNT files listed by a kernel client, with every file's attributes: from the store, with
# nothing of it in anybody's memory, and once more out of what that client keeps. Each name must come once.
#
# How long both take is told; the second is what the client itself needs.
. "$(dirname "$0")/lib.sh"
count=$1
begin
serve
mkdir "$WORK/share"
cp "$RIG/listing.c" "$WORK/share/"
guest -s "$WORK/share" -t 1500 "
    mount_export || exit 9
    mkdir /mnt/d && cd /mnt/d
    python3 -c 'import os
for i in range($count): os.close(os.open(\"file-%07d\" % i, os.O_CREAT | os.O_WRONLY))'" || fail "cannot create"
stop
serve
guest -s "$WORK/share" -t 1500 '
    mount_export || exit 9
    gcc -O2 -o /tmp/listing /share/listing.c || exit 8
    /tmp/listing /mnt/d >/share/cold && /tmp/listing /mnt/d >/share/warm || exit 1
    grep READDIRPLUS: /proc/self/mountstats >/share/calls' || fail "cannot list"
for run in cold warm; do
    read -r names twice milliseconds <"$WORK/share/$run"
    [ "$names" -eq $((count + 2)) ] || fail "$run: $names names instead of $((count + 2))"
    [ "$twice" -eq 0 ] || fail "$run: $twice names came twice"
    declare "$run=$milliseconds"
done
read -r _ calls _ _ _ _ _ answered _ <"$WORK/share/calls"
[ "$calls" -gt 0 ] || fail "the client did not ask for attributes with the names"
echo "$count names with attributes, each once: $cold ms, of which $calls READDIRPLUS of both took $answered;" \
    "out of the client's memory $warm ms"
