#!/bin/bash
# workloads.sh - every workload of the load generator in its quick form against a live server, each answer checked, with a
# report that a browser shows; the same from two agents; and a run against a server that lies ends with a failure and an
# invalid report.
. "$(dirname "$0")/lib.sh"
BENCH=${TARN_BENCH:-$TARGET/debug/tarn-bench}
begin
serve --admin 127.0.0.1:9120
began=$SECONDS
URL=nfs://127.0.0.1:2049$EXPORT

quick() { # quick URL WORKLOAD NAME [flags]: prints what it says, leaves with what it leaves with
    in_ns "$BENCH" run "$2" --target "$1" --json "$WORK/$3.json" --html "$WORK/$3.html" "${@:4}" >"$WORK/$3.txt" 2>&1
}

# page NAME CELLS: a browser opens the page, says nothing against it, and its document has a mark for each cell of the
# JSON in each series, and axes with titles and units.
page() {
    in_ns chromium-headless-shell --no-sandbox --disable-gpu --user-data-dir="$WORK/browser" --enable-logging=stderr \
        --dump-dom "file://$WORK/$1.html" >"$WORK/$1.dom" 2>"$WORK/$1.said" || fail "$1: the browser leaves with $?"
    ! grep -E 'CONSOLE|Uncaught' "$WORK/$1.said" || fail "$1: the browser's console has an error"
    grep -q 'Not a SPEC result' "$WORK/$1.dom" || fail "$1: the page does not say that it is no SPEC result"
    grep -q 'Tarn [0-9]' "$WORK/$1.dom" || fail "$1: the page lacks the server's configuration"
    grep -q 'fdatasync' "$WORK/$1.dom" || fail "$1: the page lacks the statement on stable storage"
    [ "$2" -gt 1 ] || return 0
    local marks titles
    marks=$({ grep -o 'class="point"' "$WORK/$1.dom" || true; } | wc -l)
    [ "$marks" -eq $((2 * $2)) ] || fail "$1: $marks points in the plot for $2 cells in two series"
    titles=$(grep -o '<text class="axis"[^>]*>[^<]*' "$WORK/$1.dom" | sed 's/.*>//' | sort | tr '\n' ';')
    case $titles in
    'operations a second;response time, ms;' | 'cell (plain: read, hatched: write);throughput, MB/s;') ;;
    *) fail "$1: the axes are called \"$titles\"" ;;
    esac
}

names=$("$BENCH" run list | awk '{print $1}')
[ "$(wc -w <<<"$names")" -ge 15 ] || fail "the library has lost workloads: $names"
for name in $names; do
    quick "$URL" "$name" "$name" --quick || { cat "$WORK/$name.txt"; fail "$name"; }
    page "$name" "$(grep -c '"achieved"' "$WORK/$name.json")"
done
[ -z "$(in_ns nfs-ls "nfs://127.0.0.1$EXPORT?nfsport=2049&mountport=2049" | grep tarn-bench || true)" ] ||
    fail "a run has left its directory behind"
took=$((SECONDS - began))

# Two agents make the same load as one generator, and take nothing away that is not theirs.
head -c 24 /dev/urandom | base64 >"$WORK/token"
agents=()
for port in 7001 7002; do
    in_ns "$BENCH" agent --listen 127.0.0.1:$port --token-file "$WORK/token" >"$WORK/agent-$port.txt" 2>&1 &
    agents+=($!)
done
sleep 0.5
for name in sfs2008-like render; do
    quick "$URL" $name "$name-agents" --quick --agent 127.0.0.1:7001 --agent 127.0.0.1:7002 \
        --agent-token-file "$WORK/token" || { cat "$WORK/$name-agents.txt"; fail "$name from two agents"; }
done
files() { grep -m1 '"files"' "$WORK/$1.json"; }
[ "$(files render)" = "$(files render-agents)" ] || fail "two agents made other files than one generator"
for agent in "${agents[@]}"; do
    pkill -P "$agent" 2>/dev/null || true
    kill "$agent" 2>/dev/null || true
    wait "$agent" 2>/dev/null || true
done

# A relay in between lies; the run must say so. Each has a port of its own: the one before may still be ending.
relay_port=2050
lies() { # lies FAULT ONE_IN PATTERN [flags]
    relay_port=$((relay_port + 1))
    in_ns "$BENCH" bend --listen 127.0.0.1:$relay_port --to 127.0.0.1:2049 --fault "$1" --one-in "$2" &
    local relay=$!
    sleep 0.3
    if quick "nfs://127.0.0.1:$relay_port$EXPORT?mountport=2049" oltp "$1" "${@:4}"; then
        cat "$WORK/$1.txt"
        fail "a server that lies ($1) was believed"
    fi
    pkill -P $relay 2>/dev/null || true
    kill $relay 2>/dev/null || true
    wait $relay 2>/dev/null || true
    grep -q "$3" "$WORK/$1.txt" || { cat "$WORK/$1.txt"; fail "$1: the reason is not told"; }
    grep -q '"valid": false' "$WORK/$1.json" || fail "$1: the report counts as valid"
    grep -q 'class="invalid"' "$WORK/$1.html" || fail "$1: the page does not say that it is invalid"
}
lies corrupt 5000 "WRONG DATA" --quick
lies forget 1000 "WRONG DATA" --quick
lies die 20000 "no connection" --quick --patience 1
lies stall 20000 "an operation took" --scale 0.01 --warm-up 0.2 --seconds 3
echo "$(wc -w <<<"$names") workloads in $took s, every byte right, every page opened; two agents did the same; four lies found out"
