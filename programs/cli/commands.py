"""Every command of FlintMQ: its name, the module that holds it, and the line that says what it does."""

from __future__ import annotations

from typing import Final

from flintmq.programs.cli.parser import Table

COMMANDS: Final[Table] = {
    "run": ("run:run", "Run a name server and a broker in one process."),
    "namesrv": ("run:namesrv", "Run a name server."),
    "broker": ("run:broker", "Run a broker that registers with name servers."),
    "demo": (
        "demo:demo",
        "Start FlintMQ with each flush strategy, send messages over the wire, consume them and check every one.",
    ),
    "send": ("send:send", "Send messages."),
    "consume": ("consume:consume", "Print a topic's messages as they come."),
    "query": ("query:query", "Find messages by key or id. Nothing found is a failure (exit code 1)."),
    "topics": ("topics:topics", "List, show, create and delete topics. Without a command: list."),
    "groups": ("groups:groups", "List, show, create, reset and delete groups. Without a command: list."),
    "status": (
        "status:status",
        "Show clusters, brokers, rates, totals and disks. Ends with 1 when one of its alarms is critical.",
    ),
    "ping": (
        "ping:ping",
        "Ask servers whether they are there; any answer will do, a refusal too. Ends with 4 when one does not answer.",
    ),
    "console": ("console:console", "Show and change a cluster in a browser."),
    "top": (
        "top:top",
        "Show a cluster as it goes: rates, lag, alarms, brokers, topics, groups. "
        "Needs the extra 'top'; --once and --json do not.",
    ),
    "pipeline": (
        {
            "run": (
                "pipeline:run",
                "Run a pipeline: source, decode, SQL steps, sinks; in a batch, or streaming with a checkpoint.",
            ),
            "demo": (
                "pipeline:demo",
                "Fill a store with orders, run a pipeline over it, and check that every one came out.",
            ),
        },
        "Run pipelines on Spark.",
    ),
    "spark": (
        {
            "offsets": (
                "spark_offsets:offsets",
                "Show where a streaming query stands, compare it with what there is, and have it go on elsewhere.",
            ),
        },
        "Look after streaming queries of Spark.",
    ),
    "bench": (
        {
            "flush": (
                "bench_flush:flush",
                "Compare flush strategies: speed, latency, syncs, bytes written, and what a power cut would take.",
            ),
            "feed": (
                "bench:feed",
                "Measure brokers without and with the dispatcher spark_feed, in turn. "
                "A line of JSON per run, then medians and ratios.",
            ),
            "recover": (
                "bench:recover",
                "Measure starts on a store (after a crash, a kill, a stop, without queues and index) and look-ups. "
                "One line of JSON.",
            ),
            "send": ("bench:send", "Measure sending. --set configures the broker that is started."),
            "consume": (
                "bench:consume",
                "Measure consuming: pulls of what is stored, from the first message again when the last one is reached.",
            ),
            "latency": (
                "bench:latency",
                "Measure end to end: from the send to a listener that waits. One line of JSON per run, then the ratios.",
            ),
            "report": (
                "bench_flush:report",
                "Compare two reports that 'bench flush --report' wrote: what was different, and the ratio of each figure.",
            ),
        },
        "Measure a broker: one line of JSON per run. Without -n a FlintMQ of its own is started for it.",
    ),
    "store": (
        {
            "verify": (
                "store:verify",
                "Check every record, queue unit, index slot and configuration file. Changes nothing.",
            ),
            "explain": (
                "store:explain",
                "Explain a place, a message or a key; without any of them, what a start would decide.",
            ),
            "repair": (
                "store:repair",
                "Recover the log, then make queues and index again from it; the old ones are kept in STORE/flint/replaced.",
            ),
            "salvage": (
                "store:salvage",
                "Copy everything whole, also what lies behind damage, into a new store. The old one is not changed.",
            ),
            "diff": (
                "store:diff",
                "Compare two stores: logs record by record, topics, groups and offsets. Differences are exit code 1.",
            ),
            "backup": (
                "store_backup:backup",
                "Back up a store while its broker runs: whole up to the position it states; the next time only what is new.",
            ),
            "restore": (
                "store_backup:restore",
                "Make a store of a backup, its queues and index from its log; or check a backup (--verify).",
            ),
            "cat": ("store:cat", "Print messages as JSON lines, in the log's order, or write them as Parquet."),
            "rebuild": (
                "store_scale:rebuild",
                "Make queues and index again from the log of a large, sound store, in parallel; "
                "see 'repair' for one that is not.",
            ),
            "export": ("store_scale:export", "Write the messages of a time range into Parquet files."),
            "compact": (
                "store_scale:compact",
                "Write the newest message of each key (KEYS) of each topic into Parquet files. The store is not changed.",
            ),
            "audit": (
                "store_scale:audit",
                "Look for holes in queues, changed bodies and messages that are there twice, and count by topic. "
                "Changes nothing.",
            ),
        },
        "Check, explain, rebuild, save, compare and print stores that no broker runs on, and back up any.\n\n"
        "Exit codes: 0 sound, same or done; 1 errors found, or stores differ; 2 usage; 3 the store cannot be opened.",
    ),
    "config": (
        {
            "show": ("config:show", "Show every setting with where its value comes from, and RocketMQ's name for it."),
            "init": (
                "config_files:init",
                "Write a commented configuration to begin with: for development, durable, replicated, or edge.",
            ),
            "schema": (
                "config_files:schema",
                "Print a JSON Schema of the configuration, plugins' sections included, for editors and programs.",
            ),
            "import": (
                "config:import_",
                "Translate RocketMQ's broker.conf to YAML; what cannot be taken over is listed on stderr with the reason.",
            ),
            "check": (
                "plugins:check",
                "Check a configuration, its plugins included, without starting anything. "
                "Exit code 2 says what is wrong and where.",
            ),
        },
        "Write, show, check and import configurations.",
    ),
    "plugins": ("plugins:plugins", "List the plugins a broker of this configuration would load."),
    "plugin": (
        {
            "new": (
                "plugin_new:new",
                "Write the project of a new plugin, which installs, works and passes its tests as it is.",
            ),
        },
        "Begin a plugin.",
    ),
}
"""The commands of FlintMQ itself, in the order in which help lists them; those of plugins follow."""
