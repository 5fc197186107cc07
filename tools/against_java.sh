#!/usr/bin/env bash
# against_java.sh [options of tools/bench_compare.py]: starts the RocketMQ 4.9 broker of the peer kit and a FlintMQ, and compares
# them in turn, round after round. Needs Java 17, Maven and a C compiler. The kit lies beside the checkout (../shared/peer, or
# $FLINTMQ_SHARED/peer). FLINTMQ and PYTHON name the programs to run.
#   FLUSH=async   RocketMQ with ASYNC_FLUSH, FlintMQ with flush_real_time (the default)
#   FLUSH=sync    RocketMQ with SYNC_FLUSH, FlintMQ with group_commit
#   FLUSH=pool    RocketMQ with the transient store pool, FlintMQ with commit_real_time; each pool has three buffers
#   BROKERS=2     measures `flintmq run --brokers 2`, beside RocketMQ's broker and a single FlintMQ; two generators send to each
#   PREPARE=...   a command that gets the addresses of both name servers before the measurement
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for word in "$@"; do
  case $word in -h | --help) exec "${PYTHON:-python}" tools/bench_compare.py --help ;; esac
done
peer=$(cd "${FLINTMQ_SHARED:-../shared}/peer" && pwd)
flintmq=${FLINTMQ:-flintmq}
work=$(mktemp -d)
base=$((12000 + RANDOM % 1000 * 8))
served=()
finish() {
  for pid in "${served[@]}"; do kill -TERM "$pid" 2>/dev/null || true; wait "$pid" || true; done
  for name in java java-start java-namesrv; do "$peer/stop.sh" "$work/$name" >/dev/null 2>&1 || true; done
  rm -rf "$work"
}
trap finish EXIT

case ${FLUSH:-async} in
  async) java=(ASYNC_FLUSH false ASYNC_MASTER) ours=(--set flush.strategy=flush_real_time) ;;
  sync) java=(SYNC_FLUSH false ASYNC_MASTER) ours=(--set flush.strategy=group_commit) ;;
  pool) java=(ASYNC_FLUSH true ASYNC_MASTER transientStorePoolSize=3)
        ours=(--set flush.strategy=commit_real_time --set flush.commit_real_time.pool_size=3) ;;
  *) echo "FLUSH is async, sync or pool" >&2; exit 2 ;;
esac
# RocketMQ's broker must not refuse sends as busy only because the machine is loaded.
java+=(waitTimeMillsInSendQueue=5000 osPageCacheBusyTimeOutMills=5000)

"$peer/fetch.sh" >/dev/null
cc -O2 -o "$work/loadgen" "$peer/bench/loadgen.c"
"$peer/namesrv.sh" "$work/java-namesrv" "$base" >/dev/null
export NAMESRV=127.0.0.1:$base
"$peer/broker.sh" "$work/java" $((base + 4)) "${java[@]}" >/dev/null
# For the row 'start': a broker with a store of its own, empty at each start.
cat >"$work/start" <<END
#!/bin/sh
rm -rf "$work/java-start" && exec "$peer/broker.sh" "$work/java-start" $((base + 4)) ${java[*]}
END
cat >"$work/stop" <<END
#!/bin/sh
for name in java java-start; do [ ! -e "$work/\$name.run/pid" ] || "$peer/stop.sh" "$work/\$name"; done
END
chmod +x "$work/start" "$work/stop"
run() {  # run NAME OPTION...: a FlintMQ; its name server is in $namesrv, its process in $pid
  "$flintmq" run --store "$work/$1" --namesrv-port 0 --port 0 --log-level error "${ours[@]}" "${@:2}" >"$work/$1.out" &
  pid=$!
  served+=("$pid")
  until grep -q '^READY ' "$work/$1.out"; do kill -0 "$pid"; sleep 0.1; done
  namesrv=$(sed -n 's/^READY namesrv=\([^ ]*\).*/\1/p' "$work/$1.out")
}
also=() several=()
if [[ ${BROKERS:-1} != 1 ]]; then
  run single
  also=(--also "$namesrv" --also-pid "$pid" --generators "$BROKERS")
  several=(--brokers "$BROKERS")
fi
run flintmq "${several[@]}"
if [[ -n ${PREPARE:-} ]]; then $PREPARE "$namesrv" "$NAMESRV"; fi
"${PYTHON:-python}" tools/bench_compare.py -n "$namesrv" --pid "$pid" "${also[@]}" --against "$NAMESRV" --against-pid "$(cat "$work/java.run/pid")" \
  --client "$peer/bench.sh" --generator "$work/loadgen" --against-start "$work/start" --against-stop "$work/stop" "$@"
