"""Determines which of the registered processors answers each request code at a server."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flintmq.core.errors import PluginError
from flintmq.core.kernel.plugin_shapes import PROCESSOR
from flintmq.core.kernel.ports.processor import RequestDeclaration
from flintmq.core.kernel.registries import Registries
from flintmq.core.kernel.registry import Registered, ServerPart


def processors_of(registries: Registries, server: str) -> tuple[Registered[ServerPart], ...]:
    """Return the request processors of a server (``broker`` or ``nameserver``), in which each request code belongs to exactly
    one processor.

    Raises:
        PluginError: two third parties, or two built-in processors, claim one code.
    """
    return _one_per_code(entry for entry in registries.processors.all() if entry.value.is_for(server))


def default_processor_of(registries: Registries, server: str) -> Registered[ServerPart] | None:
    """Return the default processor of a server (``broker`` or ``nameserver``), which answers all request codes without a
    processor; None if no default processor is registered.

    Raises:
        PluginError: two default processors are registered.
    """
    found = [entry for entry in registries.default_processors.every() if entry.value.is_for(server)]
    if len(found) > 1:
        names = " or ".join(f"'{name}'" for name in dict.fromkeys(entry.owner.name for entry in found))
        both = " and ".join(f"'{entry.full_name}'" for entry in found)
        raise PluginError(f"a {server} has one default processor, not {both}: list {names} in 'disabled_plugins'")
    return found[0] if found else None


def _one_per_code(processors: Iterable[Registered[ServerPart]]) -> tuple[Registered[ServerPart], ...]:
    """Return the request processors, with each request code assigned to only one processor.

    If a third party's processor and a built-in processor declare the same code, the third party's processor gets the code. A
    built-in processor without remaining codes is left out. If the third party's processor declares the code without an access
    rule, the code keeps the access rule and the audit setting of the built-in processor.

    Raises:
        PluginError: two third parties, or two built-in processors, claim one code.
    """
    entries = tuple(processors)
    claimed: dict[int, Registered[ServerPart]] = {}
    declared: dict[int, RequestDeclaration] = {}
    for entry in entries:
        for one in entry.value.declarations:
            code, other = one.code, claimed.get(one.code)
            if other is not None and other.owner.built_in == entry.owner.built_in:
                raise PluginError(
                    f"{PROCESSOR.where(entry.owner, entry.name)}: expected codes that no other plugin's processor answers; "
                    f"found {code}, which '{other.full_name}' answers: list '{other.owner.name}' or '{entry.owner.name}' in "
                    "'disabled_plugins'"
                )
            if other is None or other.owner.built_in:
                claimed[code] = entry
                declared[code] = one.under(declared[code]) if other is not None else one
            else:
                declared[code] = declared[code].under(one)
    kept = []
    for entry in entries:
        left = tuple(declared[code] for code in entry.value.codes if claimed[code] is entry)
        if left:
            kept.append(msgspec.structs.replace(entry, value=msgspec.structs.replace(entry.value, declarations=left)))
    return tuple(kept)
