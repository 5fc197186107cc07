"""The examples at the end of each command's help. Every example can be run unchanged.

They use the folders, files and topics of the README. The tests parse every line.
"""

from __future__ import annotations

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "run": (
        "flintmq run --store ./store",
        "flintmq run -c broker.yaml --port 0 --namesrv-port 0",
        "flintmq run --store ./store --brokers auto",
    ),
    "namesrv": ("flintmq namesrv --port 9876",),
    "broker": ("flintmq broker -n 127.0.0.1:9876 --store ./store --set flush.strategy=group_commit",),
    "demo": ("flintmq demo --messages 1000 --json",),
    "send": (
        "flintmq send Orders '{\"id\": 1}' --tags new --keys order-1",
        "flintmq send Orders --file orders.jsonl --lines --batch 32",
    ),
    "consume": (
        "flintmq consume Orders --from 2026-01-31T12:00 --tags 'new || paid'",
        "flintmq consume Orders --group billing --count 1 --json",
    ),
    "query": ("flintmq query Orders --key order-1", "flintmq query --id 7F00000100002A9F0000000000000000"),
    "console": (
        "flintmq console -n 127.0.0.1:9876",
        "flintmq console -n 10.0.0.5:9876 --port 0 --audit console.jsonl",
    ),
    "topics": ("flintmq topics --all --json",),
    "topics list": ("flintmq topics list --json",),
    "topics show": ("flintmq topics show Orders",),
    "topics create": (
        "flintmq topics create Orders --queues 4",
        "flintmq topics create Audit --broker broker-a",
    ),
    "topics delete": ("flintmq topics delete Orders",),
    "groups": ("flintmq groups --json",),
    "groups list": ("flintmq groups list --all",),
    "groups show": ("flintmq groups show billing Orders",),
    "groups create": ("flintmq groups create billing --retries 3",),
    "groups reset": (
        "flintmq groups reset billing Orders --to 2026-01-31T12:00 --dry-run",
        "flintmq groups reset billing Orders --queue broker-a:0 --offset 120 --yes",
    ),
    "groups delete": ("flintmq groups delete billing --offsets",),
    "status": ("flintmq status --topic Orders",),
    "ping": ("flintmq ping", "flintmq ping 127.0.0.1:9876 127.0.0.1:10911 --timeout 500ms"),
    "top": ("flintmq top -n 127.0.0.1:9876", "flintmq top --once", "flintmq top --json"),
    "pipeline": ("flintmq pipeline run examples/pipelines/demo.yaml", "flintmq pipeline demo"),
    "pipeline run": (
        "flintmq pipeline run examples/pipelines/demo.yaml --dry-run",
        "flintmq pipeline run examples/pipelines/orders-stream.yaml --master 'local[2]' --json",
    ),
    "pipeline demo": ("flintmq pipeline demo --folder ./pipeline-demo",),
    "spark": ("flintmq spark offsets /data/checkpoint",),
    "spark offsets": (
        "flintmq spark offsets /data/checkpoint --source nameServer=127.0.0.1:9876 --source subscribe=orders",
        "flintmq spark offsets /data/checkpoint --source path=/data/store --source subscribe=orders --move wire",
    ),
    "bench": ("flintmq bench send --seconds 5", "flintmq bench flush --rounds 3"),
    "bench send": (
        "flintmq bench send --seconds 5 --set flush.strategy=group_commit",
        "flintmq bench send -n 127.0.0.1:9876 --connections 32 --inflight 8",
    ),
    "bench consume": ("flintmq bench consume --seconds 5",),
    "bench flush": (
        "flintmq bench flush --rounds 3 --report before.json",
        "flintmq bench flush -s group_commit,flush_real_time:interval_ms=100",
    ),
    "bench latency": (
        "flintmq bench latency --rate 2000",
        "flintmq bench latency --rate 200 --against 127.0.0.1:9876 --rounds 5",
    ),
    "bench report": ("flintmq bench report before.json after.json",),
    "bench feed": ("flintmq bench feed --seconds 3",),
    "bench recover": ("flintmq bench recover --store ./store",),
    "store": ("flintmq store verify ./store", "flintmq store backup ./store ./backup"),
    "store verify": ("flintmq store verify ./store --json",),
    "store explain": (
        "flintmq store explain ./store",
        "flintmq store explain ./store --position 4711",
        "flintmq store explain ./store --queue Orders/0/17",
        "flintmq store explain ./store --key Orders order-1",
    ),
    "store repair": ("flintmq store repair ./store",),
    "store salvage": ("flintmq store salvage ./damaged ./saved",),
    "store diff": ("flintmq store diff ./master ./slave",),
    "store backup": (
        "flintmq store backup ./store ./backup",
        "flintmq store backup ./store ./backup --limit 50MiB --prune --verify --json",
    ),
    "store restore": (
        "flintmq store restore ./backup ./restored",
        "flintmq store restore ./backup --verify",
    ),
    "store cat": (
        "flintmq store cat ./store --topic Orders --limit 10",
        "flintmq store cat ./store --parquet orders.parquet",
    ),
    "store rebuild": ("flintmq store rebuild /data/store --engine process",),
    "store export": ("flintmq store export /data/store /lake/day --from 2026-11-01T00:00 --until 2026-11-02T00:00",),
    "store compact": ("flintmq store compact /data/store /lake/newest --topic prices",),
    "store audit": ("flintmq store audit /data/store --engine spark --master 'local[8]' --json",),
    "config": (
        "flintmq config init --for durable --output broker.yaml",
        "flintmq config check broker.yaml",
    ),
    "config show": ("flintmq config show -c broker.yaml --changed",),
    "config init": (
        "flintmq config init --for development",
        "flintmq config init --for durable --output broker.yaml --schema flintmq.schema.json",
    ),
    "config schema": ("flintmq config schema -c broker.yaml",),
    "config check": ("flintmq config check broker.yaml",),
    "config import": ("flintmq config import broker.conf -o broker.yaml",),
    "plugins": (
        "flintmq plugins -c broker.yaml",
        "flintmq plugins --trace -c broker.yaml",
        "flintmq plugins --trace -b 127.0.0.1:10911 --json",
    ),
    "plugin": ("flintmq plugin new flintmq-large-messages --kind dispatcher",),
    "plugin new": (
        "flintmq plugin new flintmq-large-messages --kind dispatcher",
        "flintmq plugin new flintmq-disk-watch --kind service --dir ./disk-watch --json",
    ),
}
"""Examples of command lines, keyed by the words of the command's name, such as ``plugin new``."""
