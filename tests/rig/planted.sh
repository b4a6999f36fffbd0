#!/bin/bash
# planted.sh - the tests that kill must see what they are there to see. A server with planted bugs (TARN names a
# `tarn-mutant`) is killed by them: with none of its bugs it passes, with each of these it fails within five kills.
#
#   log-flush-omitted    a power cut loses what was only written; a killed process would not
#   reply-before-append  a killed process loses what was answered before the log had it
set -euo pipefail
RIG=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# noticed BUG TEST: the test must fail, and by what a client misses, not by anything else.
noticed() {
    local bug=$1
    shift
    if TARN_MUTANT=$bug "$RIG/$1" "${@:2}" >"$out" 2>&1; then
        cat "$out"
        echo "FAILED: $bug is not noticed by $*"
        exit 1
    fi
    grep -E 'nfsload: (kill|restart) [0-9]+:' "$out" || {
        cat "$out"
        echo "FAILED: $* fails with $bug, but not because of what was lost"
        exit 1
    }
    grep -E 'client [0-9]: ' "$out" || true
}

for test in "power-cut.sh 1" "kill.sh raw 2"; do
    # shellcheck disable=SC2086
    TARN_MUTANT= "$RIG/"$test >"$out" 2>&1 || {
        cat "$out"
        echo "FAILED: $test without any planted bug"
        exit 1
    }
done
noticed log-flush-omitted power-cut.sh 5
noticed reply-before-append kill.sh raw 5
echo "both planted bugs are noticed within five kills, and without them all is well"
