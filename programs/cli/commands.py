"""The table of FlintMQ's commands: name, module and help text."""

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
    "consume": ("consume:consume", "Print a topic's messages as they arrive."),
    "query": ("query:query", "Find messages by key or id. Exit code 1 if none is found."),
    "topics": ("topics:topics", "List, show, create and delete topics. The default is list."),
    "groups": ("groups:groups", "List, show, create, reset and delete groups. The default is list."),
    "status": (
        "status:status",
        "Show clusters, brokers, rates, totals and disks. Exit code 1 if an alarm is critical.",
    ),
    "ping": (
        "ping:ping",
        "Check whether servers answer; a refusal is an answer, too. Exit code 4 if a server does not answer.",
    ),
    "console": ("console:console", "Show and change a cluster in a browser."),
    "top": (
        "top:top",
        "Show a live view of a cluster: rates, lag, alarms, brokers, topics, groups. "
        "Needs the extra 'top'; --once and --json do not.",
    ),
    "pipeline": (
        {
            "run": (
                "pipeline:run",
                "Run a pipeline (source, decode, SQL steps, sinks) as a batch, or as a stream with a checkpoint.",
            ),
            "demo": (
                "pipeline:demo",
                "Fill a store with orders, run a pipeline on it, and check that it writes every order.",
            ),
        },
        "Run pipelines on Spark.",
    ),
    "spark": (
        {
            "offsets": (
                "spark_offsets:offsets",
                "Show the offset of a streaming query, compare it with the source, or move the query to another offset.",
            ),
        },
        "Show and move the offsets of Spark's streaming queries.",
    ),
    "bench": (
        {
            "flush": (
                "bench_flush:flush",
                "Compare flush strategies: speed, latency, syncs, bytes written, and messages lost in a power cut.",
            ),
            "feed": (
                "bench:feed",
                "Measure brokers with and without the dispatcher spark_feed, in turn. "
                "Prints a line of JSON per run, then medians and ratios.",
            ),
            "recover": (
                "bench:recover",
                "Measure starts of a broker (after a crash, a kill, a stop, without queues and index) and look-ups. "
                "Prints one line of JSON.",
            ),
            "send": ("bench:send", "Measure sending. --set configures the broker that is started."),
            "consume": (
                "bench:consume",
                "Measure consuming: pull all stored messages, repeatedly.",
            ),
            "latency": (
                "bench:latency",
                "Measure the time from the sending of a message to its arrival at a consumer. Prints a line of JSON per "
                "run, then the ratios between the runs.",
            ),
            "report": (
                "bench_flush:report",
                "Compare two reports of 'bench flush --report': their differences, and the ratio of each figure.",
            ),
        },
        "Measure a broker. Prints one line of JSON per run. Without -n, a broker is started for the measurement.",
    ),
    "store": (
        {
            "verify": (
                "store:verify",
                "Check every record, queue unit, index slot and configuration file. Changes nothing.",
            ),
            "explain": (
                "store:explain",
                "Explain a position, a message or a key; without an option, the steps that a broker would take at its start.",
            ),
            "repair": (
                "store:repair",
                "Recover the log, then rebuild queues and index from it. Old files are kept in STORE/flint/replaced.",
            ),
            "salvage": (
                "store:salvage",
                "Copy all undamaged records, including records after damaged parts, to a new store. "
                "The old store is not changed.",
            ),
            "diff": (
                "store:diff",
                "Compare two stores: logs record by record, topics, groups and offsets. Exit code 1 if they differ.",
            ),
            "backup": (
                "store_backup:backup",
                "Back up a store while its broker runs, complete up to a printed position; later runs copy only new data.",
            ),
            "restore": (
                "store_backup:restore",
                "Restore a backup to a new store, with queues and index rebuilt; or check a backup (--verify).",
            ),
            "cat": ("store:cat", "Print messages as JSON lines in the order of the log, or write them as Parquet."),
            "rebuild": (
                "store_scale:rebuild",
                "Rebuild queues and index of a large, sound store in parallel; use 'repair' for a damaged store.",
            ),
            "export": ("store_scale:export", "Write the messages of a time range to Parquet files."),
            "compact": (
                "store_scale:compact",
                "Write the newest message of each topic and key (KEYS) to Parquet files. The store is not changed.",
            ),
            "audit": (
                "store_scale:audit",
                "Search for gaps in queues, damaged bodies and duplicate messages, and count by topic. "
                "Changes nothing.",
            ),
        },
        "Check, explain, rebuild, salvage, compare and print stores of stopped brokers, and back up any store.\n\n"
        "Exit codes: 0: the store is sound, the stores are equal, or the work is done; 1: errors were found, or the stores "
        "differ; 2: wrong usage; 3: the store cannot be opened.",
    ),
    "config": (
        {
            "show": ("config:show", "Show every setting with its value, the value's origin, and RocketMQ's name."),
            "init": (
                "config_files:init",
                "Write a commented starting configuration: for development, durable, replicated, or edge.",
            ),
            "schema": (
                "config_files:schema",
                "Print a JSON Schema of the configuration with plugins' sections, for editors and programs.",
            ),
            "import": (
                "config:import_",
                "Translate RocketMQ's broker.conf to YAML; settings without an equivalent are listed on stderr.",
            ),
            "check": (
                "plugins:check",
                "Check a configuration and its plugins without starting a server. "
                "Exit code 2 with the reason and the line if it is not valid.",
            ),
        },
        "Write, show, check and import configurations.",
    ),
    "plugins": ("plugins:plugins", "List the plugins that a broker with this configuration would load."),
    "plugin": (
        {
            "new": (
                "plugin_new:new",
                "Write a project for a new plugin, which can be installed and passes its tests.",
            ),
        },
        "Create plugins.",
    ),
}
"""FlintMQ's commands in the order of the help. The help lists the commands of plugins after FlintMQ's commands."""
