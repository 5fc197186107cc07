#!/usr/bin/env bash
# conformance.sh GROUPS|secure|whole [options]: runs the real Java client's suite against FlintMQ.
#   GROUPS  such as wire,route,send: against `flintmq run` on free ports
#   secure  the groups acl and tls and some of the others: every client signs and encrypts, broker and name server refuse
#           unsigned requests; then sends and pulls where a client certificate is required
#   whole   every group, with traces and with restarts by SIGKILL and SIGTERM: against `flintmq namesrv` and `flintmq broker`
# The suite gets the options (--jobs 1, --patience 2, --acl KEY:SECRET, ...). FLINTMQ_SET="key=value ..." adds settings.
# The suite lies beside the checkout (../shared/conformance, or $FLINTMQ_SHARED/conformance) and needs Java 17.
# A case that fails while others run is run once more alone: the suite measures latencies, and the machine may be busy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
groups=$1
shift
shared=${FLINTMQ_SHARED:-../shared}
flintmq=$(command -v "${FLINTMQ:-flintmq}")
work=$(mktemp -d)
settings=()
while IFS= read -r line; do settings+=(--set "$line"); done < <(grep -v '^#' "$shared/conformance/broker.conf")
for setting in ${FLINTMQ_SET:-}; do settings+=(--set "$setting"); done

# await NAME: waits until NAME has printed READY; NAME's pid, output and errors lie in $work
await() {
  for _ in $(seq 300); do
    grep -q '^READY ' "$work/$1.out" && return
    kill -0 "$(cat "$work/$1.pid")" 2>/dev/null || break
    sleep 0.1
  done
  echo "conformance: $1 does not get ready" >&2
  cat "$work/$1.err" >&2
  return 1
}
start() { local name=$1; shift; "$flintmq" "$@" >"$work/$name.out" 2>>"$work/$name.err" & echo $! >"$work/$name.pid"; await "$name"; }
told() { sed -n "s/^READY .*$2=\([^ ]*\).*/\1/p;s/^READY $2=\([^ ]*\).*/\1/p" "$work/$1.out" | head -1; }
finish() {
  for pid in "$work"/*.pid; do kill -TERM "$(cat "$pid")" 2>/dev/null || true; done
  wait || true
  rm -rf "$work"
}
trap finish EXIT

extra=()
once_more=()        # what a case keeps when it is run again, alone
if [[ $groups == secure ]]; then
  for name in server client; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$name" -keyout "$work/$name.key" -out "$work/$name.pem" \
      2>"$work/openssl.err" || { cat "$work/openssl.err" >&2; exit 1; }
  done
  cat "$work/client.pem" "$work/server.pem" >"$work/known.pem"        # the broker is a client of the name server
  install -m 600 "$shared/conformance/plain_acl.yml" "$work/plain_acl.yml"
  settings+=(
    --set aclEnable=true --set acl.file="$work/plain_acl.yml" --set acl.list_accounts=true
    --set namesrv.access_key=flintadmin --set namesrv.secret_key=flintsecret
    --set tls.server.certPath="$work/server.pem" --set tls.server.keyPath="$work/server.key"
  )
  once_more=(--acl flintadmin:flintsecret --tls)
  extra=("${once_more[@]}" --only acl,tls,route,filter)
  start broker run --store "$work/store" --namesrv-port 0 --port 0 "${settings[@]}" --set tls.server.mode=permissive
  namesrv=$(told broker namesrv)
elif [[ $groups == whole ]]; then
  # The broker is restarted on its port, so the port must be none that the system hands to clients meanwhile.
  port=$((12000 + RANDOM % 1000 * 8))
  start namesrv namesrv --port 0
  namesrv=$(told namesrv namesrv)
  start broker broker -n "$namesrv" --store "$work/store" --port "$port" "${settings[@]}"
  {
    printf '#!/usr/bin/env bash\nset -euo pipefail\ncd %q\n' "$PWD"
    printf 'work=%q flintmq=%q\n' "$work" "$flintmq"
    declare -f await
    printf 'pid=$(cat "$work/broker.pid")\n'
    printf 'if [[ $1 == kill ]]; then kill -KILL "$pid"; else kill -TERM "$pid"; fi\n'
    printf 'while kill -0 "$pid" 2>/dev/null && ! grep -q "^State:.Z" "/proc/$pid/status"; do sleep 0.02; done\n'
    printf 'setsid nohup "$flintmq" broker -n %q --store "$work/store" --port %q' "$namesrv" "$port"
    printf ' %q' "${settings[@]}"
    printf ' >"$work/broker.out" 2>>"$work/broker.err" </dev/null &\necho $! >"$work/broker.pid"\nawait broker\n'
  } >"$work/restart"
  chmod +x "$work/restart"
  once_more=(--trace --restart-cmd "$work/restart")
  extra=("${once_more[@]}")
else
  extra=(--only "$groups")
  start broker run --store "$work/store" --namesrv-port 0 --port 0 "${settings[@]}"
  namesrv=$(told broker namesrv)
fi

suite() { "$shared/conformance/conformance.sh" --namesrv "$namesrv" "$@" | tee "$work/cases"; return "${PIPESTATUS[0]}"; }
status=0
suite "${extra[@]}" "$@" || status=$?
if [[ $status -eq 1 ]]; then
  again=$(sed -n 's/^FAIL \([^ :]*\).*/\1/p' "$work/cases" | sort -u | paste -sd,)
  echo "conformance: once more, alone: $again"
  status=0
  suite "${once_more[@]}" --only "$again" --jobs 1 "$@" || status=$?
fi
if [[ $status -eq 0 && $groups == secure ]]; then
  # The closed house: the name server takes nothing unsigned, nobody speaks in clear or without a certificate of ours. The real
  # client has one only outside its test mode.
  start closed run --store "$work/closed-store" --namesrv-port 0 --port 0 "${settings[@]}" --set nameserver.acl_enable=true \
    --set tls.server.mode=required --set tls.server.trustCertPath="$work/known.pem" --set tls.server.authClient=true
  namesrv=$(told closed namesrv)
  export JAVA_TOOL_OPTIONS="-Dtls.test.mode.enable=false -Dtls.client.certPath=$work/client.pem -Dtls.client.keyPath=$work/client.key"
  suite "${once_more[@]}" --only send/sync-result,send/async,pull/from-offset,tls/send-and-pull "$@" || status=$?
fi
if [[ $status -ne 0 ]]; then echo "--- the broker said:" >&2; tail -n 50 "$work"/*.err >&2; exit "$status"; fi

pid=$(cat "$work/broker.pid")
kill -TERM "$pid"
while kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$pid/status"; do sleep 0.05; done
[[ ! -e $work/store/abort ]] || { echo "conformance: the broker left an abort file" >&2; tail -20 "$work/broker.err" >&2; exit 1; }
