#!/usr/bin/env bash
# tools/try_systemd.sh: boots a Debian in namespaces of its own, with systemd as its init, and tries the units of deploy/systemd in
# it: start, load, restart, a kill, a wrong configuration, several brokers. Needs root and mmdebstrap; takes about two minutes the
# first time. Its files stay in WORK (default: a new folder in /tmp). Prints what failed, and then exits with 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(realpath -m "${WORK:-$(mktemp -d)}") checkout=$PWD
mkdir -p "$work"
[[ $EUID == 0 ]] || { echo "needs root: it makes namespaces and mounts" >&2; exit 2; }
command -v mmdebstrap >/dev/null || { echo "needs mmdebstrap (Debian's package)" >&2; exit 2; }
root=$work/root
[[ -d $root ]] || mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus,python3,python3-venv bookworm "$root"
rm -rf "$work/wheels" && mkdir -p "$work/wheels" && rm -rf "$root/root/wheels"
python3 -m venv "$work/venv" && "$work/venv/bin/pip" wheel -q --wheel-dir "$root/root/wheels" "$checkout[fast]"
cp deploy/systemd/*.service "$root/etc/systemd/system/"
cp deploy/systemd/flintmq.sysusers.conf "$root/usr/lib/sysusers.d/flintmq.conf"

cat > "$work/boot.sh" <<'BOOT'
set -e
mount --bind "$1" "$1" && mount --make-private "$1"
mount -t proc proc "$1/proc" && mount -t sysfs sysfs "$1/sys" && mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$1/run" && mount -t tmpfs tmpfs "$1/tmp" && mount -t tmpfs -o mode=755 tmpfs "$1/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$1/dev/${device%:*}" c 1 "${device#*:}"; done
mknod -m 666 "$1/dev/tty" c 5 0 && mkdir "$1/dev/pts" "$1/dev/shm" && mount -t devpts devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx" && ln -s /proc/self/fd "$1/dev/fd"
cd "$1" && mkdir -p .old && pivot_root . .old && cd / && umount -l /.old
exec env -i container=flintmq-try PATH=/usr/sbin:/usr/bin /usr/lib/systemd/systemd
BOOT

cat > "$root/root/try.sh" <<'TRY'
flintmq=/opt/flintmq/bin/flintmq failed=0
is() { local got; got=$("${@:2}" 2>&1) || true; if [[ $got == $1 ]]; then echo "ok: ${*:2}: $got"; else echo "FAILED: ${*:2}: $got, not $1"; failed=1; fi; }
state() { systemctl show -P "$1" "$2"; }
until_is() { for _ in $(seq 100); do [[ $("${@:2}") == "$1" ]] && return; sleep 0.2; done; }
python3 -m venv --clear /opt/flintmq && /opt/flintmq/bin/pip install -q --no-index --find-links /root/wheels 'flintmq[fast]'
systemd-sysusers && rm -rf /var/lib/flintmq* /var/log/flintmq /etc/flintmq /etc/systemd/system/flintmq.service.d && install -d -g flintmq -m 750 /etc/flintmq && cd /etc/flintmq
$flintmq config init --for durable --output broker.yaml >/dev/null
printf 'nameserver: {port: 9876}\n' > namesrv.yaml
printf 'broker: {name: a}\nlisten: {port: 20911, loop: asyncio}\nnamesrv: {addresses: 127.0.0.1:9876}\n' > a.yaml
printf 'broker: {name: b}\nlisten: {port: 20931, loop: uvloop}\nnamesrv: {addresses: 127.0.0.1:9876}\n' > b.yaml
chgrp flintmq *.yaml && chmod 640 *.yaml && systemctl daemon-reload

systemctl start flintmq
is active systemctl is-active flintmq
is 'namesrv=127.0.0.1:9876 broker=127.0.0.1:10911 *' state StatusText flintmq
is 'topic Orders has*' $flintmq topics create Orders
is '*SEND_OK*' $flintmq send Orders hello
systemctl kill -s KILL flintmq && until_is 1 state NRestarts flintmq && until_is active systemctl is-active flintmq
is '*hello' $flintmq consume Orders --from first --count 1
systemctl stop flintmq
is success state Result flintmq
is 'ls: cannot access*' ls /var/lib/flintmq/store/abort
echo 'nonsense: 1' >> broker.yaml; systemctl start flintmq 2>/dev/null; sleep 6
is 'failed' systemctl is-active flintmq
is '0' state NRestarts flintmq
sed -i /nonsense/d broker.yaml && systemctl reset-failed flintmq

systemctl start flintmq-namesrv flintmq-broker@a flintmq-broker@b
for name in a b; do
  is '*"errors": 0,*' $flintmq bench send -n 127.0.0.1:9876 --seconds 2
  pid=$(state MainPID "flintmq-broker@$name")
  is 'touch: cannot touch*Read-only file system' nsenter -t "$pid" -m touch /var/lib/x
  is '*CapEff:	0000000000000000*Seccomp:	2*' grep -E 'CapEff|Seccomp:' "/proc/$pid/status"
done
is '' journalctl -q -u 'flintmq-broker@*' -o cat -g 'not permitted|Traceback'
systemctl stop flintmq-broker@a flintmq-broker@b flintmq-namesrv
is $'success\n\nsuccess\n\nsuccess' systemctl show -P Result flintmq-broker@a flintmq-broker@b flintmq-namesrv

mkdir -p /etc/systemd/system/flintmq.service.d
printf '[Service]\nExecStart=\nExecStart=%s run -c /etc/flintmq/broker.yaml --store /var/lib/flintmq/many --brokers 2 --log-file /var/log/flintmq/flintmq.log\n' $flintmq \
  > /etc/systemd/system/flintmq.service.d/brokers.conf
systemctl daemon-reload && systemctl start flintmq
is 'namesrv=127.0.0.1:9876 brokers=127.0.0.1:10911,127.0.0.1:10921 *' state StatusText flintmq
children() { cat "/proc/$1/task/$1/children"; }
main=$(state MainPID flintmq) && read -r one _ <<< "$(children "$main")" && kill -9 "$one"
until_is yes bash -c '[[ $(wc -w < "$0") == 2 ]] && ! grep -qw "$1" "$0" && echo yes' "/proc/$main/task/$main/children" "$one"
is 0 state NRestarts flintmq
systemctl stop flintmq
is success state Result flintmq
is '*broker-* was ended by SIGKILL*started again in 1 s*' grep 'started again' /var/log/flintmq/flintmq.log
exit $failed
TRY

mkdir -p "$work/cgroup"
unshare -m --propagation private bash -c '
  mount -t cgroup2 cgroup2 "$1/cgroup" && mkdir -p "$1/cgroup/flintmq-try" && echo $$ > "$1/cgroup/flintmq-try/cgroup.procs"
  exec unshare -C -p -f -u -i -n -m --kill-child bash "$1/boot.sh" "$1/root"' _ "$work" > "$work/boot.log" 2>&1 < /dev/null &
booted=$!
ended() {
  kill -KILL "$booted" && wait "$booted" 2>/dev/null || true # --kill-child ends its processes
  unshare -m --propagation private bash -c 'mount -t cgroup2 cgroup2 "$1/cgroup"; for _ in 1 2 3 4 5; do
    find "$1/cgroup/flintmq-try" -depth -type d -exec rmdir {} + 2>/dev/null && break; sleep 0.5; done' _ "$work"
}
trap ended EXIT
inside() { read -r init < "/proc/$booted/task/$booted/children" || true; nsenter -t "$init" -m -u -i -n -p -C -r -w env -i PATH=/usr/sbin:/usr/bin LANG=C.UTF-8 "$@"; }
for _ in $(seq 100); do
  sleep 0.3
  case $(inside systemctl is-system-running 2>/dev/null || true) in running|degraded) break ;; esac
done
inside python3 -c 'import fcntl, socket, struct
s = socket.socket(); r = struct.pack("16sh14x", b"lo", 1); fcntl.ioctl(s, 0x8914, r)'
inside bash /root/try.sh
