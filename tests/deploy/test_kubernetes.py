"""The base of deploy/kubernetes: Kubernetes takes it, its parts fit one another, and what its pods run serves."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import flintmq
from flintmq.remoting.client import AdminClient
from flintmq.remoting.client.access import AclSigner
from flintmq.tests.support.ports import free_ports

BASE = Path(flintmq.__file__).parent / "deploy" / "kubernetes"
BUILT: dict[str, Any] = yaml.safe_load((BASE / "kustomization.yaml").read_text())
DOCUMENTS = [one for name in BUILT["resources"] for one in yaml.safe_load_all((BASE / name).read_text())]
SETS = {one["metadata"]["name"]: one["spec"] for one in DOCUMENTS if one["kind"] == "StatefulSet"}
ACCOUNT = ("broker-account", "a-long-secret-key")


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = SETS[name]["template"]["spec"]
    return found


def container(name: str) -> dict[str, Any]:
    (only,) = pod(name)["containers"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("version", ["1.28", "1.31", "1.36"])
def test_manifests_match_the_kubernetes_schemas(version: str) -> None:
    """Against the schemas of several releases, without a key that they do not know; and a misspelt one is seen."""
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate: pip install '.[deploy]'")
    for one in DOCUMENTS:
        validator.validate(one, version, strict=True)
    bent = {**DOCUMENTS[0], "spec": {**DOCUMENTS[0]["spec"], "publishNotReady": True}}
    with pytest.raises(validator.ValidationError):
        validator.validate(bent, version, strict=True)


def test_the_kustomization_lists_every_manifest_and_config_file() -> None:
    """A file that it does not name is not applied, without a word."""
    assert sorted(BUILT["resources"]) == sorted(
        path.name for path in BASE.glob("*.yaml") if path.name != "kustomization.yaml"
    )
    named = [BASE / file for one in BUILT["configMapGenerator"] for file in one["files"]]
    assert sorted(named) == sorted((BASE / "config").iterdir())
    assert BUILT["images"][0]["newTag"] == flintmq.__version__


@pytest.mark.parametrize("name", SETS)
def test_every_label_and_port_and_volume_to_which_a_manifest_refers_is_defined(name: str) -> None:
    """What refers by a name to something that is not there waits for ever."""
    one, run = SETS[name], container(name)
    label = {"app.kubernetes.io/name": name}
    assert one["selector"]["matchLabels"] == label == one["template"]["metadata"]["labels"]
    others = {doc["kind"]: doc for doc in DOCUMENTS if doc["metadata"]["name"] == name}
    assert others.keys() == {"Service", "PodDisruptionBudget", "StatefulSet"}
    assert (
        others["Service"]["spec"]["selector"]
        == label
        == others["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    )
    assert one["serviceName"] == name
    ports = {port["name"]: port["containerPort"] for port in run["ports"]}
    assert {port["name"]: port["port"] for port in others["Service"]["spec"]["ports"]} == ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in run:
            assert (
                next(iter(run[probe].get(kind) for kind in ("httpGet", "tcpSocket") if kind in run[probe]))["port"]
                in ports
            )
    volumes = {one["name"] for one in pod(name)["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in one.get("volumeClaimTemplates", ())}
    assert {mount["name"] for mount in run["volumeMounts"]} == volumes
    generated = {one["name"]: {Path(file).name for file in one["files"]} for one in BUILT["configMapGenerator"]}
    (config,) = (mount for mount in run["volumeMounts"] if mount["name"] == "config")
    assert config["subPath"] in generated[name]
    assert run["args"][run["args"].index("-c") + 1] == config["mountPath"]


@pytest.mark.parametrize("name", SETS)
def test_a_pod_has_the_restricted_security_settings(name: str) -> None:
    """The level "restricted" of Kubernetes' pod security standards, and a root that nobody writes to."""
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    assert pod(name)["securityContext"]["runAsUser"] == 10001, "the image's"
    assert pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod(name)["automountServiceAccountToken"] is False
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_broker_configuration_lists_the_address_of_every_name_server_replica() -> None:
    """A third replica that nobody registers with would know no broker."""
    config = yaml.safe_load((BASE / "config" / "broker.yaml").read_text())
    name = "flintmq-namesrv"
    wanted = [f"{name}-{number}.{name}:9876" for number in range(SETS[name]["replicas"])]
    assert config["namesrv"]["addresses"] == wanted


@contextmanager
def as_pod(name: str, number: int, folder: Path, *settings: str) -> Iterator[dict[str, str]]:
    """The process of a pod: its arguments and environment as Kubernetes makes them, files and ports of this machine."""
    folder.mkdir()
    known = {"POD_NAME": f"{name}-{number}", "POD_NAMESPACE": "shop"}
    for one in container(name).get("env", ()):
        if "value" in one:
            known[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], one["value"])
        elif "secretKeyRef" in one["valueFrom"]:
            known[one["name"]] = ACCOUNT[one["valueFrom"]["secretKeyRef"]["key"] == "secret-key"]
    accounts = folder / "plain_acl.yml"
    accounts.write_text(f"accounts:\n- {{accessKey: {ACCOUNT[0]}, secretKey: {ACCOUNT[1]}, admin: true}}\n")
    accounts.chmod(0o440)
    config = BASE / "config" / Path(container(name)["args"][2]).name
    arguments = [str(config) if word.startswith("/etc/") else word for word in container(name)["args"]]
    checkout = folder / "checkout"
    checkout.mkdir()
    (checkout / "flintmq").symlink_to(Path(flintmq.__file__).parent)
    small = ("store.commit_log_file_bytes=4MiB", f"store.path={folder / 'store'}", f"acl.file={accounts}", *settings)
    command = [sys.executable, "-m", "flintmq", *arguments, *(word for each in small for word in ("--set", each))]
    environment = {**known, "PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin"}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("READY "), (folder / "log").read_text()
            yield dict(word.split("=", 1) for word in line.split()[1:])
            process.terminate()
            assert process.wait(30) == 0, (folder / "log").read_text()
        finally:
            process.kill()


def test_the_command_of_the_broker_pods_starts_a_broker_that_registers_and_passes_its_probes(tmp_path: Path) -> None:
    """Brokers sign, register at both name servers under their pods' names, and are ready by the probe's own address."""
    pytest.importorskip("prometheus_client", reason="needs the extra metrics, which the image has")
    ports = free_ports(5)
    with ExitStack() as stack:
        for number in (0, 1):
            stack.enter_context(
                as_pod("flintmq-namesrv", number, tmp_path / f"n{number}", f"nameserver.port={ports[number]}")
            )
        addresses = ";".join(f"127.0.0.1:{port}" for port in ports[:2])
        for number in (0, 1):
            own = (f"listen.port={ports[2 + number]}", "metrics.port=0", f"namesrv.addresses={addresses}")
            ready = stack.enter_context(as_pod("flintmq-broker", number, tmp_path / f"b{number}", *own))
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert status(ready["metrics"], container("flintmq-broker")[probe]["httpGet"]["path"]) == 200
        for address in addresses.split(";"):
            assert asyncio.run(masters(address)) == {
                f"flintmq-broker-{number}": f"flintmq-broker-{number}.flintmq-broker.shop.svc.cluster.local:{ports[2 + number]}"
                for number in (0, 1)
            }


def status(address: str, path: str) -> int:
    """What a probe is answered. ``address`` names a host that clients reach; the probe comes from the machine."""
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 10) as asking:
        asking.sendall(f"GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n".encode())
        return int(asking.makefile("rb").readline().split()[1])


async def masters(name_server: str) -> dict[str, str]:
    async with AdminClient(name_server, hooks=[AclSigner(*ACCOUNT)]) as admin:
        return await admin.masters()
