#!/usr/bin/env bash
# against_java.sh [options of `flintmq bench compare`]: starts the real RocketMQ 4.9 broker of the peer kit and a FlintMQ beside
# it, and compares them in interleaved rounds. Needs Java 17 and Maven; the kit lies beside the checkout (../shared/peer;
# FLINTMQ_SHARED names another place).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
peer=${FLINTMQ_SHARED:-../shared}/peer
flintmq=${FLINTMQ:-flintmq}
work=$(mktemp -d)
base=$((12000 + RANDOM % 1000 * 8))
served=
finish() {
  if [[ -n $served ]]; then kill -TERM "$served" 2>/dev/null || true; wait "$served" || true; fi
  "$peer/stop.sh" "$work/java" >/dev/null 2>&1 || true
  "$peer/stop.sh" "$work/java-namesrv" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT

"$peer/fetch.sh" >/dev/null
"$peer/namesrv.sh" "$work/java-namesrv" "$base" >/dev/null
# What a loaded machine must not be taken for: a busy broker.
NAMESRV=127.0.0.1:$base "$peer/broker.sh" "$work/java" $((base + 4)) ASYNC_FLUSH false ASYNC_MASTER \
  waitTimeMillsInSendQueue=5000 osPageCacheBusyTimeOutMills=5000 >/dev/null
"$flintmq" run --store "$work/flintmq" --namesrv-port 0 --port 0 --log-level error >"$work/out" &
served=$!
until grep -q '^READY ' "$work/out"; do kill -0 "$served"; sleep 0.1; done
namesrv=$(sed -n 's/^READY namesrv=\([^ ]*\).*/\1/p' "$work/out")
"$flintmq" bench compare -n "$namesrv" --pid "$served" --against "127.0.0.1:$base" \
  --against-pid "$(cat "$work/java.run/pid")" "$@"
