"""A broker that encrypts nothing must not hold OpenSSL in memory, and one that does must find it whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flintmq.core.kernel.finder import may_have_entry_points


def said_by(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_BEGIN = """
import sys, types
from flintmq.plugins.cli import late_imports
late_imports.begin()

def is_full(name):
    return type(sys.modules[name]) is types.ModuleType
"""


def test_an_import_is_no_look_and_a_look_fills() -> None:
    """Several modules name it, the second ``import`` included, and nobody pays before one of them needs it."""
    program = """
import ssl
import ssl as again
before = is_full("ssl"), "_ssl" in sys.modules
made = again.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
print(before, is_full("ssl"), type(made).__module__, ssl.__file__.endswith("ssl.py"), repr(ssl)[:13])
"""
    assert said_by(_BEGIN + program) == "(False, False) True ssl True <module 'ssl'"


def test_taking_a_name_is_a_look() -> None:
    """``from X import name`` works as ever, and a name that is not there is an ImportError."""
    program = """
from hmac import compare_digest
try:
    from ssl import no_such_name
except ImportError as error:
    print(compare_digest(b"a", b"a"), is_full("hmac"), error.name)
"""
    assert said_by(_BEGIN + program) == "True True ssl"


def test_who_looks_while_another_thread_fills_waits_for_it() -> None:
    """Half a module must not be seen: a TLS handshake and a reload of certificates may begin at one moment."""
    program = """
import threading, ssl
start, found = threading.Barrier(8), []

def look():
    start.wait()
    found.append((ssl.SSLContext, ssl.create_default_context))  # one at the module's beginning, one at its end

threads = [threading.Thread(target=look) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), len(set(found)))
"""
    assert said_by(_BEGIN + program) == "8 1"


def test_a_module_that_cannot_be_filled_says_so_each_time(tmp_path: Path) -> None:
    """An installation that is broken must not look like a module without the name."""
    (tmp_path / "secrets.py").write_text("import no_such_module\n", encoding="utf-8")
    program = """
sys.path.insert(0, sys.argv[1])
import secrets
for _ in range(2):
    try:
        secrets.token_hex
    except ModuleNotFoundError as error:
        print(error.name)
"""
    assert said_by(_BEGIN + program, str(tmp_path)).split() == ["no_such_module"] * 2


def test_asyncio_serves_plain_connections_without_ssl_and_encrypted_ones_with_it() -> None:
    """asyncio asks of sockets whether they are ``ssl.SSLSocket``: that alone must not bring OpenSSL in."""
    program = """
import asyncio, socket

async def plain():
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=sock)
    _, writer = await asyncio.open_connection(*sock.getsockname())
    writer.close()
    server.close()

asyncio.run(plain())
print("_ssl" in sys.modules, is_full("asyncio.sslproto"))
import ssl

async def encrypted():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    transport = asyncio.sslproto.SSLProtocol(
        asyncio.get_running_loop(), asyncio.Protocol(), context, None, server_side=True
    )
    print(type(transport).__module__, asyncio.sslproto.SSLAgainErrors[0] is ssl.SSLWantReadError)
    print(isinstance(socket.socket(), ssl.SSLSocket), asyncio.base_events.ssl.SSLSocket is ssl.SSLSocket)

asyncio.run(encrypted())
"""
    lines = said_by(_BEGIN + program).splitlines()
    assert lines == ["False False", "asyncio.sslproto True", "False True"]


def test_typing_extensions_is_whole_for_who_needs_it() -> None:
    """msgspec is told what typing has; whoever else asks gets the module's own."""
    program = """
import msgspec, typing_extensions
print(is_full("typing_extensions"), msgspec.json.decode(b"[1]", type=list[int]))
from typing_extensions import get_type_hints
print(is_full("typing_extensions"), get_type_hints is typing_extensions.get_type_hints, get_type_hints.__module__)
"""
    first, second = said_by(_BEGIN + program).splitlines()
    assert first == "False [1]"
    assert second.startswith("True True typing")


UNWANTED = {
    # Extension modules and libraries that others name, and that a broker without TLS, access control, filters or a
    # configuration file does not use.
    "_hashlib",
    "_ssl",
    "email",
    "http",
    "multiprocessing",
    "numpy",
    "shutil",
    "stringprep",
    "yaml",
    "zipfile",
    # Ours.
    "flintmq.plugins.acl.account_store",
    "flintmq.plugins.filters.parser",
    "flintmq.plugins.replication.sealed_stream",
    "flintmq.core.store.feed_file",
    "flintmq.plugins.cli.main",
    "flintmq.plugins.broker.in_process",
    "flintmq.plugins.replication.master",
    "flintmq.remoting.client.consumer",
    "flintmq.remoting.server.tls",
}


@pytest.mark.timeout(60)
def test_a_broker_at_rest_has_nothing_in_memory_that_it_does_not_use(tmp_path: Path) -> None:
    """Each of these costs from 0.1 to 13 MiB, and milliseconds of every start."""
    program = """
import os, signal, sys
before = set(sys.modules)  # of an interpreter that finds packages in its own ways

class Out:
    def write(self, text):
        if text.startswith("READY"):
            sys.__stdout__.write(" ".join(set(sys.modules) - before))
            os.kill(os.getpid(), signal.SIGTERM)
    def flush(self):
        sys.__stdout__.flush()

sys.stdout = Out()
from flintmq.plugins.cli.entry import main
sys.argv = ["flintmq", "run", "--store", sys.argv[1], "--port", "0", "--namesrv-port", "0", "--log-level", "error"]
main()
"""
    loaded = set(said_by(program, str(tmp_path / "store")).split())
    assert "flintmq.remoting.processors.send_message" in loaded
    unwanted = UNWANTED if may_have_entry_points() else UNWANTED | {"importlib_metadata"}
    assert sorted(loaded & unwanted) == []
