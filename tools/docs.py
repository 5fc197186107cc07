"""Writes the pages of docs/ that are derived from the code: ``python tools/docs.py`` (``--check`` only compares).

The page of settings is derived from the configuration's models, the page of hooks from the hook specifications, and the page of
request codes from the declarations of request handlers. A test runs ``--check``, and fails if a page differs from the code.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import flintmq
from flintmq.config import BrokerConfig
from flintmq.config.loading.json_schema import BEYOND
from flintmq.config.loading.schema import COMPOSITES, KEYS
from flintmq.config.loading.show import display
from flintmq.config.rocketmq.names import FIXED
from flintmq.core.kernel.hookspecs import FlintSpecs
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.ports.access import Access
from flintmq.core.kernel.ports.processor import RequestDeclaration
from flintmq.plugins.builtin import BUILTIN_PLUGINS, name_server_plugins
from flintmq.plugins.metrics.families import GROUPS
from flintmq.programs.broker.processors import ProcessorsPlugin
from flintmq.programs.broker.processors_in_force import processors_of
from flintmq.remoting.wire.codes import OF_ROCKETMQ_5, PUSHED, RequestCode

sys.path.insert(0, str(Path(__file__).parent))

from log_events import lines as find_lines
from reference import cli_reference, client_reference
from refusals import Refusal
from refusals import refusals as find_refusals

DOCS = Path(flintmq.__file__).resolve().parent / "docs"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def settings() -> str:
    """Return the text of docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "This page lists every key of the configuration with its default, and the RocketMQ names that are accepted in place of",
        "the key. Sizes have units (`64MiB`), and so have durations (`500ms`). A value comes from the default, the file, the",
        "environment (`FLINTMQ_FLUSH__STRATEGY`) or the command line (`--set key=value`); a later one in this list overrides",
        "the earlier ones. The file is YAML, or an unchanged `broker.conf` of RocketMQ. [configuration.md](configuration.md)",
        "describes how to write a file, and how an editor completes keys. `tools/docs.py` writes this page.",
        "",
        "| key | default | RocketMQ's name | meaning |",
        "|---|---|---|---|",
    ]
    config = BrokerConfig()
    for name, key in KEYS.items():
        names = COMPOSITES if name == "flush.strategy" else key.spec.rocketmq
        default = display(key.value_of(config), key.spec)
        shown = f"`{_cell(default)}`" if default else ""
        lines.append(f"| `{name}` | {shown} | {', '.join(f'`{n}`' for n in names)} | {_cell(key.doc)} |")
    lines += [
        "",
        "## RocketMQ's keys that have one value here",
        "",
        "The keys of RocketMQ in the next table have one value in FlintMQ. A broker reports this value to clients that request",
        "its configuration (request code 26, `mqadmin getBrokerConfig`). If a `broker.conf` sets another value, the value has",
        "no effect, and the broker logs a warning at its start.",
        "",
        "| RocketMQ's name | reported value | reason |",
        "|---|---|---|",
    ]
    for name, fixed in FIXED.items():
        lines.append(f"| `{name}` | {f'`{fixed.value}`' if fixed.value else ''} | {_cell(fixed.why)} |")
    lines += [
        "",
        "## Rules that the JSON Schema cannot express",
        "",
        "`flintmq config schema` prints a JSON Schema for configuration files. The schema accepts the same files as a broker,",
        "with these exceptions:",
        "",
        *(f"* **{rule}**: {text}" for rule, text in BEYOND.items()),
    ]
    return "\n".join(lines) + "\n"


def hooks() -> str:
    """Return the text of docs/hooks.md."""
    lines = [
        "# Hooks",
        "",
        "This page lists the hooks that a plugin can implement. The manual, with types, is `core/kernel/hookspecs.py`; "
        "this page is written by `tools/docs.py`.",
        "",
        inspect.cleandoc(FlintSpecs.__doc__ or ""),
        "",
    ]
    for name, function in vars(FlintSpecs).items():
        if name.startswith("flintmq_"):
            arguments = [argument for argument in inspect.signature(function).parameters if argument != "self"]
            lines += [f"## `{name}({', '.join(arguments)})`", "", inspect.cleandoc(function.__doc__ or ""), ""]
    return "\n".join(lines)


def answered_by() -> tuple[dict[int, str], set[int]]:
    """Return the name of the broker's processor for each request code, and the request codes that the name server answers."""
    broker, name_server = declared_by_server()
    return {code: name for code, (name, _one) in broker.items()}, set(name_server)


def declared_by_server() -> tuple[dict[int, tuple[str, RequestDeclaration]], dict[int, tuple[str, RequestDeclaration]]]:
    """Return, for each request code of the broker and of the name server, the processor's name and the code's declaration."""
    broker = processors_of(Kernel.assemble((), (*BUILTIN_PLUGINS, ProcessorsPlugin())).registries, "broker")
    name_server = processors_of(Kernel.assemble((), name_server_plugins()).registries, "nameserver")
    found = (
        {one.code: (entry.name, one) for entry in entries for one in entry.value.declarations}
        for entries in (broker, name_server)
    )
    of_broker, of_name_server = found
    return of_broker, of_name_server


def access_of(declared: RequestDeclaration) -> str:
    """Return the kind of account that may send a request code, in one or two words."""
    if declared.needs is None:
        return "nobody"
    if declared.needs.access is Access.CLIENT:
        return "rights" if declared.needs.needs is not None else "any account"
    return "everyone" if declared.needs.access is Access.PUBLIC else "administrators"


def tested_by() -> dict[int, str]:
    """Return a test file for each request code that a test file names. Test files in folders ``processors`` are preferred."""
    tests = DOCS.parent / "tests"
    files = sorted(tests.rglob("test_*.py"), key=lambda file: ("processors" not in file.parts, file.as_posix()))
    found: dict[int, str] = {}
    for file in files:
        names = set(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", file.read_text()))
        for code in RequestCode:
            if code.name in names:
                found.setdefault(int(code), file.relative_to(tests).as_posix())
    return found


def request_codes() -> str:
    """Return the text of docs/request-codes.md."""
    broker, name_server = declared_by_server()
    tests = tested_by()
    lines = [
        "# Request codes",
        "",
        "This page lists every request code of RocketMQ 4.9, the codes of RocketMQ 5 that FlintMQ answers, and the processor",
        "of each code. A broker and a name server answer any other code with code 3 and a remark, for example",
        "`request type 13 not supported [code.unsupported]`. RocketMQ's name server does not answer such a request.",
        "The remark for one of the [codes of RocketMQ 5](#codes-of-rocketmq-5) also gives the reason. The column *needs* is",
        "for access control: *rights* are rights to the topics and groups that a request names. An *audited* request causes a",
        "line in the audit log. `tools/docs.py` writes this page from the declarations of the handlers.",
        "",
        "| code | name | broker's processor | name server | tested by (in `tests/`) | queue | needs | audited | what it does |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for code in sorted(RequestCode):
        declared = broker.get(code) or name_server.get(code)
        here = f"`{broker[code][0]}`" if code in broker else "sends it to clients" if code in PUSHED else ""
        if not here and code not in name_server:
            here = "not supported"
        there = "yes" if code in name_server else ""
        test = f"`{tests[code]}`" if code in tests and here != "not supported" else ""
        row = f"| {int(code)} | {code.name} | {here} | {there} | {test} |"
        if declared is not None:
            one = declared[1]
            row += f" `{one.pool}` | {access_of(one)} | {'yes' if one.audited else ''} | {_cell(one.summary)} |"
        else:
            row += "  |  |  |  |"
        lines.append(row)
    lines += [
        "",
        "## Codes of RocketMQ 5",
        "",
        "Clients and tools of RocketMQ 5 send the request codes of the next table, which FlintMQ does not support. If a broker",
        "refuses such a request, the remark of its answer gives the reason and the alternative.",
        "",
        "| name | code | reason |",
        "|---|---|---|",
        *(f"| {name} | {code} | {_cell(why)} |" for code, (name, why) in sorted(OF_ROCKETMQ_5.items())),
    ]
    return "\n".join(lines) + "\n"


def refusals() -> str:
    """Return the text of docs/refusals.md."""
    lines = [
        "# Refusals",
        "",
        "If a request is refused, the remark of the answer describes the error, in RocketMQ's words if RocketMQ has the error.",
        "The remark ends with `[reason; measured value; see key]`. The reason is an id for programs, which never changes. Some",
        "refusals also have the value that led to the refusal and the setting to change. In the table, `…` stands for text of",
        "the request or the broker.",
        "",
        "A pull that finds no message is not a refusal: its remark is the store's status, as in RocketMQ.",
        "`tools/docs.py` writes this page.",
        "",
        "| reason | response code | message | key to change |",
        "|---|---|---|---|",
    ]
    by_reason: dict[str, list[Refusal]] = {}
    for one in find_refusals(DOCS.parent):
        by_reason.setdefault(one.reason or "", []).append(one)
    for reason, found in by_reason.items():
        codes, messages, keys = (
            list(dict.fromkeys(getattr(one, part) for one in found if getattr(one, part) not in ("", "…")))
            for part in ("code", "message", "key")
        )
        names = ", ".join(code if code.isupper() else "as the request's" for code in codes)
        text = "<br>".join(_cell(message.strip()) for message in messages)
        lines.append(f"| `{reason}` | {names} | {text} | {', '.join(f'`{_cell(key)}`' for key in keys)} |")
    return "\n".join(lines) + "\n"


def log_events() -> str:
    """Return the text of docs/log-events.md."""
    lines = [
        "# Log events",
        "",
        "FlintMQ logs through the module `logging` of the standard library, to loggers below `flintmq`. It installs no",
        "handler: the program chooses the destination of the lines. Each record has two more attributes: `event`, an id that",
        "does not change when the text changes, and `fields`, the values in the text, keyed by name. With",
        "`--log-format json`, `flintmq run`, `broker` and `namesrv` write each line as JSON. A program does the",
        "same if it sets the formatter `flintmq.core.log_events.JsonFormatter()` on its handler.",
        "",
        "Lines at DEBUG are for developers: they are not listed, and their ids may change. The lines of installed plugins are",
        "not listed either. `tools/docs.py` derives this page from the logging calls in the code.",
        "",
        "| event | level | text | fields |",
        "|---|---|---|---|",
    ]
    levels: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for line in find_lines(DOCS.parent):
        if line.faults:
            raise SystemExit(f"{line.place}: {'; '.join(line.faults)}")
        if line.level != "DEBUG":
            levels.setdefault((line.event, line.unnamed, line.fields), set()).update(line.level.split(", "))
    for (event, text, fields), told in sorted(levels.items()):
        level = ", ".join(one for one in ("INFO", "WARNING", "ERROR", "CRITICAL") if one in told)
        lines.append(f"| `{event}` | {level} | {_cell(text)} | {', '.join(f'`{one}`' for one in fields)} |")
    return "\n".join(lines) + "\n"


def metric_names() -> str:
    """Return the text of docs/metric-names.md."""
    lines = [
        "# Metrics",
        "",
        "This page lists the metrics of `/metrics` ([metrics.md](metrics.md)). Every metric has the labels of its group and",
        "the further labels in its row. `tools/docs.py` writes this page from the definitions in",
        "`plugins/metrics/families.py`.",
    ]
    for group in GROUPS:
        labels = ", ".join(f"`{label}`" for label in group.common)
        common = (
            f"Every metric of the next table has these labels: {labels}."
            if labels
            else "The metrics have no common labels."
        )
        lines += ["", f"## {group.title}", "", _cell(group.about), "", common, ""]
        lines += ["| metric | kind | further labels | meaning |", "|---|---|---|---|"]
        for one in group.families:
            further = ", ".join(f"`{label}`" for label in one.labels)
            lines.append(f"| `{one.name}` | {one.kind} | {further} | {_cell(one.meaning)} |")
    return "\n".join(lines) + "\n"


PAGES = {
    "client-reference.md": client_reference,
    "commands.md": cli_reference,
    "log-events.md": log_events,
    "metric-names.md": metric_names,
    "refusals.md": refusals,
    "settings.md": settings,
    "hooks.md": hooks,
    "request-codes.md": request_codes,
}


def main(arguments: list[str]) -> int:
    """Write the derived pages of docs/, or with ``--check`` print the pages that differ from the code."""
    stale = []
    for name, make in PAGES.items():
        path = DOCS / name
        text = make()
        if "--check" in arguments:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            DOCS.mkdir(exist_ok=True)
            path.write_text(text)
    for name in stale:
        print(f"docs/{name} is stale: run python tools/docs.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
