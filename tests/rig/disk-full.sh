#!/bin/bash
# disk-full.sh - log, state and store lie on one small disk, ext4, and it runs full: NOSPC, reading goes on, nothing lost.
#
# Also: what was answered is in the store all the same; killed and started while it is full; with the room taken by somebody else, files that are
# removed make what does not fit fit; and with room again the same server takes changes again by itself.
. "$(dirname "$0")/lib.sh"
begin
# Small caches: what is read comes from the store.
printf '[log]\nsize = "64MiB"\n[cache]\ndata = "16MiB"\nnames = "16MiB"\n' >"$CONFIG"
disk small 260M
DATA=$WORK/small/data
# What an operator can remove.
fallocate -l 90M "$WORK/small/ballast"
serve
write() { in_ns "$NFSLOAD" write --ledger "$WORK/ledger" --patience 60 "$@"; }
said=$(write --seconds 120 --until NOSPC 2>&1) || fail "filling: $said"
say "$said"
until_said 15 'FULL .*no space left'
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading while the disk is full"
in_ns timeout 60 "$TARN" checkpoint --data "$DATA" >"$WORK/checkpoint" 2>&1 || { cat "$WORK/checkpoint"; fail "what was answered does not fit"; }
# What makes no file grow is taken.
write --seconds 3 --rate 1000000 --over || fail "writing over while the disk is full"
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading what was written over"
in_ns "$NFSLOAD" drop --ledger "$WORK/ledger" || fail "removing while the disk is full"
in_ns timeout 60 "$TARN" checkpoint --data "$DATA" >"$WORK/checkpoint" 2>&1 || { cat "$WORK/checkpoint"; fail "a removal does not fit"; }

stop KILL
# Whether it starts on the full disk, or says what is wrong: both are right, losing anything is not.
if (serve) >"$WORK/start.out" 2>&1; then
    in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading after a start on the full disk"
    kill_all "$NS"
    started="it starts on the full disk"
else
    grep -qiE 'no (space|room)' "$WORK/server.log" || { cat "$WORK/server.log"; fail "no word of a full disk"; }
    started="it does not start on the full disk, and says why"
fi
rm "$WORK/small/ballast"
serve
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading with room again"

# Full to the last byte, by somebody else, and room made under the running server.
write --seconds 6 --rate 3000000 || fail "writing with room again"
cat /dev/zero >"$WORK/small/ballast" 2>/dev/null || true
say "$(stat -f -c %a "$WORK/small") blocks free"
! in_ns timeout 60 "$TARN" checkpoint --data "$DATA" >"$WORK/checkpoint" 2>&1 || fail "a checkpoint without room"
until_said 15 'FULL .*no space left'
write --seconds 60 --until NOSPC || fail "a full disk, and no word of it"
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading while the disk is full to the last byte"
# Room for the metadata alone. Files that are removed need no room for data of theirs that was never stored.
truncate -s -12M "$WORK/small/ballast"
removed=0
until in_ns timeout 60 "$TARN" checkpoint --data "$DATA" >"$WORK/checkpoint" 2>&1; do
    [ $((removed += 1)) -le 5 ] || { cat "$WORK/checkpoint"; fail "files were removed, and what is left does not fit"; }
    in_ns "$NFSLOAD" drop --ledger "$WORK/ledger" || fail "removing while the disk is full"
done
[ $removed -gt 0 ] || fail "all of it fitted"
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading once files were removed"
rm "$WORK/small/ballast"
for _ in $(seq 100); do says '  FULL' || break; sleep 0.2; done
! says '  FULL' || fail "there is room, and it still says full"
write --seconds 2 --rate 2000000 || fail "writing with room again"
# The same when only names have changed: what does not fit then is the metadata.
in_ns "$TARN" checkpoint --data "$DATA" >/dev/null || fail "a checkpoint with room again"
in_ns "$NFSLOAD" mkdir names || fail "a directory with room"
cat /dev/zero >"$WORK/small/ballast" 2>/dev/null || true
! in_ns timeout 60 "$TARN" checkpoint --data "$DATA" >"$WORK/checkpoint" 2>&1 || fail "a checkpoint of names without room"
until_said 15 'FULL .*no space left'
write --seconds 60 --until NOSPC || fail "a full disk, and no word of it, after names"
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading after the metadata did not fit"
rm "$WORK/small/ballast"
in_ns timeout 60 "$TARN" checkpoint --data "$DATA" >/dev/null || fail "there is room, and the checkpoint fails"
! says '  FULL|FAILING' || fail "there is room, and it still says full"
write --seconds 1 --rate 2000000 || fail "writing with room again, after names"

stop TERM
serve
in_ns "$NFSLOAD" read --ledger "$WORK/ledger" || fail "reading after a clean stop"
echo "$said; all of it is stored, reading goes on, fits after $removed removals of four files, $started; with room again it goes on by itself"
