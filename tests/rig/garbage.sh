#!/bin/bash
# garbage.sh SECONDS [release] - noise, mutated calls and a thousand half-open connections beside an honest client: nothing of
# its is lost or changed, the server stays small, the honest client stays quick, and the store is clean afterwards.
#
# `release` builds the server as it is released. Caches and memory for changes are kept small: their filling is no growth.
. "$(dirname "$0")/lib.sh"
# In the short form a few slow moments of the machine make the slowest hundredth: it is held to less.
slower=10
if [ "${2:-}" = release ]; then
    slower=3
    cargo build --quiet --release --package tarn-filer || fail "cargo build"
    TARN=$TARGET/release/tarn
fi
begin
ulimit -n 8192
cat >"$CONFIG" <<CONF
[log]
size = "256MiB"
[cache]
data = "16MiB"
names = "16MiB"
[checkpoint]
memory = "64MiB"
CONF
serve --portmap
in_ns "$NFSLOAD" garbage --seconds "$1" --process "$SERVER" --slower $slower >"$WORK/load.out" 2>&1 ||
    { cat "$WORK/load.out"; fail "garbage for $1 s"; }
cat "$WORK/load.out"
in_ns "$TARN" fsck --data "$DATA" --config "$CONFIG" --deep || fail "fsck with the server"
stop TERM
in_ns "$TARN" fsck --data "$DATA" --config "$CONFIG" --deep || fail "fsck after it"
tail -1 "$WORK/load.out"
