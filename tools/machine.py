"""Find code that reads the machine's time or randomness, or starts a thread, outside the modules that may do so.

A simulation decides the time, the random numbers, and when the work of a thread is done. If code calls the operating system for
the time or for random numbers, or starts a thread, two runs with one seed differ. ``tools/tidy.py`` applies this rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from sources import Sources

_HOMES: Final = ("core/io/clock.py", "core/io/chance.py", "core/io/threads.py")
"""The only modules that may call the operating system's functions for time, random numbers and threads."""
_MAY_ASK: Final = re.compile(r"plugins/spark/")
"""Modules of Spark's own processes, which read a store or a broker from outside. No simulation runs these modules."""
_RULED: Final = re.compile(r"(core|plugins|dispatchers|flush|remoting|client)/|programs/(broker|name_server)/")
"""The folders and modules that a simulation of a broker, a name server and their clients runs."""
_ASKS: Final = re.compile(
    r"time\.(time|monotonic|perf_counter|thread_time)(_ns)?|random\.\w+|secrets\.\w+|os\.urandom|uuid\.uuid[14]|asyncio\.to_thread"
    r"|concurrent\.futures\.(Thread|Process)PoolExecutor"
)
_STARTS: Final = re.compile(r"threading\.(Thread|Timer)|.+\.run_in_executor")
"""Names of functions and classes that start threads. The check reports only calls of these names, because type annotations
contain the names, too."""


def machine_reads(sources: Sources) -> set[str]:
    """Return the uses of the machine's time, random numbers or threads by modules that may not use them, as ``path:name``."""
    return {
        f"{path}:{name}"
        for path in sources.modules
        if _RULED.match(path) and path not in _HOMES and not _MAY_ASK.match(path)
        for name in _asked(sources.tree(path))
    }


def _asked(tree: ast.Module) -> Iterator[str]:
    names: dict[str, str] = {}
    """Dotted names of imported modules and objects, keyed by the name that the importing module uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _STARTS.fullmatch(name := _full_name(node.func, names)):
            yield "run_in_executor" if name.endswith(".run_in_executor") else name
        elif isinstance(node, ast.Name | ast.Attribute) and _ASKS.fullmatch(name := _full_name(node, names)):
            yield name


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return the dotted name that an expression refers to, with the module that defines it."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        return f"{names.get(owner, '' if node.attr != 'run_in_executor' else owner)}.{node.attr}"
    return ""
