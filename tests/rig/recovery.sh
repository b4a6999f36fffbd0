#!/bin/bash
# recovery.sh HOW - a tree is written by a raw client, the node is lost, another directory gives everything back.
#
#   bucket   a clean stop; the bucket and the recovery code alone open on an empty data directory
#   log      kill -9; the node's log and the bucket open on another data directory
#   s3       both of these over a real S3 server (versitygw)
#   azure    both of these over a real Azure Blob server (Azurite)
. "$(dirname "$0")/lib.sh"
how=$1
begin
export AWS_ACCESS_KEY_ID=rigaccess AWS_SECRET_ACCESS_KEY=rigsecret AWS_REGION=us-east-1
export AWS_ENDPOINT=http://127.0.0.1:7070 AWS_ALLOW_HTTP=true
# The emulator's well-known account.
export AZURE_STORAGE_ACCOUNT_NAME=devstoreaccount1
export AZURE_STORAGE_ACCOUNT_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
export AZURE_STORAGE_USE_EMULATOR=true AZURE_ALLOW_HTTP=true

store_s3() {
    mkdir -p "$WORK/s3/bucket"
    setsid ip netns exec "$NS" versitygw --access rigaccess --secret rigsecret --port 127.0.0.1:7070 \
        posix "$WORK/s3" </dev/null >"$WORK/s3.log" 2>&1 &
    disown
    port_opens 7070
}

store_azure() {
    setsid ip netns exec "$NS" azurite-blob --silent --disableTelemetry --skipApiVersionCheck --blobHost 127.0.0.1 \
        --blobPort 10000 --location "$WORK/azure" </dev/null >"$WORK/azure.log" 2>&1 &
    disown
    port_opens 10000
    in_ns node "$RIG/azure-container.js" container || fail "the container cannot be made"
}

# once KIND URL: KIND is bucket (clean stop) or log (kill -9, the log is carried over).
once() {
    local kind=$1 url=$2 code seed=$RANDOM
    DATA=$WORK/$kind-first
    rm -f "$WORK/exported"
    say "$kind over $url"
    serve --store "$url" --key-file "$WORK/$kind.key" --log "$WORK/$kind-log"
    in_ns "$NFSLOAD" fill --seed "$seed" || fail "fill"
    code=$("$TARN" key export --data "$DATA" --key-file "$WORK/$kind.key") || fail "tarn key export"
    if [ "$kind" = bucket ]; then
        stop TERM
        rm -rf "$WORK/$kind-log"
    else
        stop KILL
        mv "$WORK/$kind-log" "$WORK/$kind-carried"
    fi
    rm -rf "$DATA" "$WORK/$kind.key"
    DATA=$WORK/$kind-second
    local log=$WORK/$kind-carried
    [ "$kind" = log ] || log=$WORK/$kind-newlog
    TARN_RECOVERY_CODE=$code serve --store "$url" --key-file "$WORK/$kind.newkey" --log "$log"
    in_ns "$NFSLOAD" check --seed "$seed" || fail "$kind over $url"
    stop TERM
}

case $how in
bucket | log)
    once "$how" "file://$WORK/elsewhere"
    ;;
s3 | azure)
    "store_$how"
    url=s3://bucket
    [ "$how" = s3 ] || url=az://container
    once bucket "$url/one"
    once log "$url/two"
    ;;
*) fail "unknown: $how" ;;
esac
echo "$how: everything is back"
