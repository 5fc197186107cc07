"""The four known CVEs of RocketMQ, and what keeps their like out (SECURITY.md): each is tried on a running server or read in
the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import flintmq
from flintmq.config import LoadedConfig, load_config
from flintmq.config.loading.schema import KEYS, Key, aliases
from flintmq.config.runtime import NAMESRV_RUNTIME_KEYS, RUNTIME_KEYS
from flintmq.config.secret import Secret
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.signature import add_signature
from flintmq.tests.support.blocking_client import blocking_client

ROOT = Path(str(flintmq.__file__)).parent
SERVERS = ("client", "config", "core", "dispatchers", "flush", "remoting", "plugins", "programs", "protocol", "testing")
TOOLS = ("testing", "programs/cli", "programs/bench", "plugins/spark/session.py",
         "plugins/spark/worker_python.py")  # fmt: skip
"""Run by people, never by a server: ``session.py`` starts Spark for a program that asks for a session, ``worker_python.py``
asks the Python that Spark would run in it what it has."""
BANNED_MODULES = {"subprocess", "pty", "pickle", "shelve", "marshal", "dill", "cloudpickle", "xmlrpc", "code", "codeop"}
STARTS = ("subprocess.", "asyncio.create_subprocess")
BANNED_CALLS = {"eval", "exec", "compile", "__import__"}
BANNED_METHODS = {"system", "popen", "fork", "execv", "execve", "execvp", "spawnv", "spawnl", "posix_spawn",
                  "create_subprocess_exec", "create_subprocess_shell", "unsafe_load", "full_load"}  # fmt: skip
FIXED_COMMANDS = {
    "plugins/spark/landing/worker.py": ("subprocess.Popen", "[sys.executable, '-m', MODULE]"),
    "plugins/console/child.py": ("asyncio.create_subprocess_exec", "*self._program, *self._arguments"),
    "programs/supervisor/supervisor.py": ("asyncio.create_subprocess_exec", "*self._command, *words, *supervised"),
}
"""Who may start a process, how, and the one command it may: this interpreter on a module of ours, with nothing added to it;
for ``run --brokers N`` what a person typed, with each broker's own settings; for the console its section of the configuration
and the name servers: none of these is what a request may change."""
SECRET = "the-secret-that-must-not-be-told"
ADMIN = "admin-key"


def server_modules() -> Iterator[Path]:
    for folder in SERVERS:
        for path in (ROOT / folder).rglob("*.py"):
            if not path.relative_to(ROOT).as_posix().startswith(TOOLS):
                yield path


@pytest.mark.parametrize("path", sorted(server_modules()), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_server_code_starts_programs_or_evaluates_text_as_code(path: Path) -> None:
    """CVE-2023-33246: a timer built a command line of settings that anyone could change. There is no such line to build."""
    fixed = FIXED_COMMANDS.get(path.relative_to(ROOT).as_posix())
    for node in ast.walk(ast.parse(path.read_text())):
        starts = fixed and isinstance(node, ast.Call) and ast.unparse(node.func).startswith(STARTS)
        if starts:
            assert isinstance(node, ast.Call)
            assert (ast.unparse(node.func), ", ".join(map(ast.unparse, node.args))) == fixed
            assert not {"shell", "executable", "preexec_fn"} & {keyword.arg for keyword in node.keywords}
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        banned = BANNED_MODULES - ({"subprocess"} if fixed is not None and fixed[0].startswith("subprocess") else set())
        assert not {name.partition(".")[0] for name in names} & banned, names
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                assert node.func.id not in BANNED_CALLS, f"line {node.lineno}"
            elif isinstance(node.func, ast.Attribute):
                assert node.func.attr not in BANNED_METHODS or starts, f"line {node.lineno}"


def small(folder: Path, *overrides: str) -> LoadedConfig:
    settings = [
        "listen.port=0", "listen.vip=false", "nameserver.port=0", "store.commit_log_file_bytes=1048576",
        "store.consume_queue_file_bytes=20000", "index.max_hash_slot_num=1000", "index.max_index_num=4000",
        f"store.path={folder}/store", *overrides,
    ]  # fmt: skip
    return load_config(None, settings, {})


def ask(
    address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"", key: str = ""
) -> RemotingCommand:
    sent = dict(fields or {})
    if key:
        add_signature(sent, body, key, Secret(SECRET), "")
    with blocking_client() as client:
        return client.invoke(address, request(code, sent, body), 5_000)


EVIL_NAMES = [
    "../../escaped",
    "..",
    ".",
    "/tmp/escaped",
    "a/b",
    "a\\b",
    "a\0b",
    "%2e%2e/x",
    "..%2fescaped",
    "T\n",
    "Ünïcode",
    "a" * 128,
]


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_cve_2019_17572_a_topic_name_never_creates_files_outside_the_store(name: str, tmp_path: Path) -> None:
    """Path traversal: a topic's name comes from the wire and becomes a folder. Tried on what makes topics."""
    send = {"a": "P", "b": name, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": ""}
    topic = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
             "topicFilterType": "SINGLE_TAG", "order": "false"}  # fmt: skip
    pull = {"consumerGroup": "G", "topic": name, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}  # fmt: skip
    before = set(tmp_path.parent.iterdir())
    with flintmq.Broker(small(tmp_path)) as broker:
        assert ask(broker.address, Code.SEND_MESSAGE_V2, send, b"x").code != 0
        assert ask(broker.address, Code.SEND_BATCH_MESSAGE, {**send, "m": "true"}, b"x").code != 0
        assert ask(broker.address, Code.UPDATE_AND_CREATE_TOPIC, topic).code != 0
        assert ask(broker.address, Code.PULL_MESSAGE, pull).code != 0
        assert ask(broker.address, Code.GET_MAX_OFFSET, {"topic": name, "queueId": "0"}).ext_fields in (
            None,
            {"offset": "0"},
        )
        ask(broker.address, Code.DELETE_TOPIC_IN_BROKER, {"topic": name})
    queues = tmp_path / "store" / "consumequeue"
    assert not queues.exists() or not list(queues.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert set(tmp_path.parent.iterdir()) == before


def test_cve_2023_33246_a_broker_setting_outside_the_allow_list_cannot_be_changed(tmp_path: Path) -> None:
    """Code execution by a changed setting: whatever is not on the list is refused, every key and RocketMQ's every name."""
    allowed = {*RUNTIME_KEYS, *(entry.name for entry in RUNTIME_KEYS.values())}
    others = {"rocketmqHome", "filterServerNums", "brokerConfigPath", "configBlackList", "aclEnable", "x"}
    refused = sorted({*KEYS, *aliases("broker"), *others} - allowed)
    with flintmq.Broker(small(tmp_path)) as broker:
        before = broker.config
        with blocking_client() as client:
            for name in refused:
                command = request(Code.UPDATE_BROKER_CONFIG, {}, f"{name}=/tmp/x\ntraceOn=false\n".encode())
                assert client.invoke(broker.address, command, 5_000).code == 16, name
        assert broker.config == before, "nothing of a refused change is made"


def test_cve_2023_37582_a_name_server_setting_outside_the_allow_list_cannot_be_changed(tmp_path: Path) -> None:
    """The same by way of the name server: a changed path made it write any file. No setting that is a path can be changed."""
    allowed = {*NAMESRV_RUNTIME_KEYS, *(entry.name for entry in NAMESRV_RUNTIME_KEYS.values())}
    others = {"configStorePath", "configStorePathName", "kvConfigPath", "rocketmqHome"}
    target = tmp_path / "written"
    with flintmq.NameServer(small(tmp_path)) as name_server, blocking_client() as client:
        before = name_server.config
        for name in sorted({*KEYS, *aliases("namesrv"), *others} - allowed):
            command = request(Code.UPDATE_NAMESRV_CONFIG, {}, f"{name}={target}\n".encode())
            assert client.invoke(name_server.address, command, 5_000).code == 16, name
        assert name_server.config == before
    assert not target.exists()


@pytest.mark.parametrize("runtime", [RUNTIME_KEYS, NAMESRV_RUNTIME_KEYS])
def test_no_setting_changeable_at_runtime_is_a_path_or_an_address(runtime: dict[str, Key]) -> None:
    """Paths, addresses, plugins and accounts are the operator's; what may change over the wire are numbers and switches."""
    for key in runtime.values():
        assert not key.spec.secret
        assert key.name.partition(".")[0] not in ("acl", "plugins", "authenticators", "listen")
        assert key.hint in (bool, int) or key.name == "store.delete_when", key.name


def test_cve_2024_23321_no_answer_contains_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Accounts could be fetched with their keys. Every code is asked, by an administrator, an account and a stranger."""
    caplog.set_level(0)
    path = tmp_path / "acl.yml"
    path.write_text(
        f"accounts:\n- {{accessKey: {ADMIN}, secretKey: {SECRET}, admin: true}}\n"
        f"- {{accessKey: other-key, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}\n"
    )
    path.chmod(0o600)
    own = (f"acl.file={path}", "acl.list_accounts=true", "nameserver.acl_enable=true", "aclEnable=true",
           f"namesrv.access_key={ADMIN}", f"namesrv.secret_key={SECRET}")  # fmt: skip
    with flintmq.NameServer(small(tmp_path, *own)) as names:  # noqa: SIM117 - the broker needs its address
        with flintmq.Broker(small(tmp_path, *own, f"namesrv.addresses={names.address}")) as broker:
            with blocking_client() as client:
                for address in (broker.address, names.address):
                    for code in Code:
                        for key in (ADMIN, "other-key", ""):
                            fields = (
                                {"topic": "T", "consumerGroup": "G", "group": "G", "accessKey": ADMIN} if key else {}
                            )
                            if code in (Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG):
                                fields = {}
                            if key:
                                add_signature(fields, b"{}", key, Secret(SECRET), "")
                            answer = client.invoke(address, request(code, fields, b"{}"), 5_000)
                            assert SECRET not in f"{answer.remark}{answer.ext_fields}", code
                            assert SECRET.encode() not in answer.body, code
    assert SECRET not in caplog.text
