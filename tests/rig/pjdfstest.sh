#!/bin/bash
# pjdfstest.sh - POSIX conformance through the kernel client: 398 tests.
#
# Allowed to fail: at most what NFS-Ganesha fails too (pjdfstest.fail). Allowed to be skipped: exactly what is skipped on
# any NFSv3 server (pjdfstest.skip).
# RIG_RECORD=DIR writes the two lists as seen into DIR instead of judging them.
. "$(dirname "$0")/lib.sh"
begin
serve
mkdir "$WORK/share"
cp "$TOOLS/bin/pjdfstest" "$WORK/share/"
cp "$RIG/pjdfstest.toml" "$WORK/share/"
say "running"
guest -s "$WORK/share" '
    mount_export || exit 9
    mkdir -p /mnt/pjd && chmod 777 /mnt/pjd
    cd /tmp && /share/pjdfstest -c /share/pjdfstest.toml -p /mnt/pjd' >"$WORK/out" 2>"$WORK/err" || true
sed 's/\x1b\[[0-9;]*m//g' "$WORK/out" >"$WORK/plain"
cat "$WORK/plain" "$WORK/err"

# A result line is `NAME ... ok`, `NAME ... FAILED` or `NAME ... skipped`, reasons below it.
names() { sed -nE "s/^([A-Za-z0-9_:]*[a-z0-9_])[[:space:]]+$1\b.*/\1/p" "$WORK/plain" | sort -u; }
names FAILED >"$WORK/fail"
names skipped >"$WORK/skip"
passed=$(names ok | wc -l)
failed=$(wc -l <"$WORK/fail")
skipped=$(wc -l <"$WORK/skip")
figures="$passed passed, $failed failed, $skipped skipped of $((passed + failed + skipped))"
if [ -n "${RIG_RECORD:-}" ]; then
    cp "$WORK/fail" "$RIG_RECORD/pjdfstest.fail"
    cp "$WORK/skip" "$RIG_RECORD/pjdfstest.skip"
    echo "$figures"
    exit 0
fi
[ "$passed" -gt 0 ] || fail "pjdfstest gave no results"
more=$(grep -vxFf "$RIG/pjdfstest.fail" "$WORK/fail" || true)
[ -z "$more" ] || fail "$figures; these pass elsewhere: $(echo $more)"
odd=$(grep -vxFf "$RIG/pjdfstest.skip" "$WORK/skip" || true)
[ -z "$odd" ] || fail "$figures; these are skipped only here: $(echo $odd)"
[ "$((passed + failed + skipped))" = 398 ] || fail "$figures, not of 398"
echo "$figures"
