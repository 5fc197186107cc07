"""``flintmq.protocol`` gives out the objects that the built-in processors use, and loads no more than a name needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq.protocol
from flintmq.remoting.wire import headers_admin, headers_message, headers_route
from flintmq.remoting.wire.header_codec import CommandHeader

SOURCE = Path(flintmq.protocol.__file__)


@pytest.mark.parametrize("name", flintmq.protocol.__all__)
def test_each_name_exported_by_the_protocol_package_is_the_same_object_as_in_its_defining_module(name: str) -> None:
    """Two classes of one name would not be equal in ``isinstance`` and ``except``."""
    value = getattr(flintmq.protocol, name)
    home = flintmq.protocol._HOME_OF[name]
    assert value is (sys.modules[home] if home.endswith(f".{name}") else getattr(sys.modules[home], name))


def test_type_checkers_see_exactly_the_names_that_the_protocol_package_exports_at_run_time() -> None:
    """Type checkers read the imports; a program reads the table."""
    (checked,) = [one for one in ast.parse(SOURCE.read_text()).body if isinstance(one, ast.If)]
    homes = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    homes["needs"] = f"{homes['needs']}.needs"
    assert homes == flintmq.protocol._HOME_OF
    assert set(flintmq.protocol.__all__) == set(homes) <= set(dir(flintmq.protocol))
    with pytest.raises(AttributeError, match="no attribute 'RequestCodes'"):
        flintmq.protocol.RequestCodes  # noqa: B018


def test_every_header_class_is_exported_by_the_protocol_package() -> None:
    """Whoever replaces a processor needs the headers of its codes."""
    headers = {
        name
        for module in (headers_admin, headers_message, headers_route)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, CommandHeader) and value.__module__ == module.__name__
    }
    assert headers <= set(flintmq.protocol.__all__)


def test_a_command_that_sends_a_request_imports_no_broker_modules() -> None:
    """A plugin's module is imported at each start of the command line."""
    script = (
        "import sys; from flintmq.protocol import RequestCode, request\n"
        "unwanted = ('flintmq.core.broker', 'flintmq.core.store', 'flintmq.remoting.processors', 'numpy')\n"
        "print([name for name in unwanted if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
