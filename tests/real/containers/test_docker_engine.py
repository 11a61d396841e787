"""The Docker adapter on a real engine: the same containers as the docker program makes, and every failure explained."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spark_tui.base import errors
from spark_tui.base.engine.container import (
    ContainerSpec,
    ContainerStatus,
    EnvVar,
    Gpus,
    Mount,
    PublishedPort,
    RestartPolicy,
    Ulimit,
)
from spark_tui.base.engine.docker_run import render_text
from spark_tui.machine.docker.engine import DockerEngine
from tests.real.lab import Lab, PrivateEngine, PrivateRegistry, SlowLink
from tests.real.lab.images import BUSYBOX, architecture, ensure_layered

MakeEngine = Callable[..., PrivateEngine]

SLEEP = ("sleep", "1000")


@pytest.fixture
async def docker(engine: PrivateEngine) -> AsyncIterator[DockerEngine]:
    """The adapter on the shared engine."""
    adapter = DockerEngine(engine.environ())
    yield adapter
    await adapter.close()


@pytest.fixture
async def other(engine: PrivateEngine, container_name: str) -> AsyncIterator[str]:
    """A second container name of this test's own."""
    name = f"{container_name}-2"
    engine.try_docker("rm", "--force", name)
    yield name
    engine.try_docker("rm", "--force", name)


# --- the same container -------------------------------------------------------------------------------

SPECS = {
    "least": ContainerSpec("", BUSYBOX, SLEEP),
    "a launch": ContainerSpec(
        "",
        BUSYBOX,
        (*SLEEP, "--flag", "a b", "it's $HOME", "\x1b[31m\n", ""),
        entrypoint=("busybox",),
        env=(EnvVar("A", "b c"), EnvVar("QUOTE", "'\"$(x)`y`\\"), EnvVar("EMPTY", ""), EnvVar("A", "again")),
        mounts=(Mount("/tmp", "/host", read_only=True), Mount("/usr", "/host usr")),
        ports=(PublishedPort(8000, 0), PublishedPort(8000, 0, "0.0.0.0"), PublishedPort(9000, 0, "", "udp")),
        gpus=Gpus(),
        ipc="host",
        shm_size=64 * 1024**2,
        user="0:0",
        ulimits=(Ulimit("memlock", -1, -1), Ulimit("stack", 67108864, 67108864), Ulimit("nofile", 1024, 4096)),
        restart=RestartPolicy("on-failure", 3),
        labels=(("io.spark-tui.preset", "x"), ("odd", "a=b 'c' \"d\"")),
        oom_score_adj=500,
        cap_add=("IPC_LOCK", "sys_nice"),
        security_opt=("no-new-privileges", "seccomp=unconfined"),
        init=True,
    ),
    "no entrypoint": ContainerSpec("", BUSYBOX, SLEEP, entrypoint=(), shm_size=10 * 1024**3),
    "a long entrypoint": ContainerSpec("", BUSYBOX, ("1000",), entrypoint=("busybox", "sleep")),
    "some GPUs": ContainerSpec("", BUSYBOX, SLEEP, gpus=Gpus(device_ids=("0", "1")), restart=RestartPolicy("always")),
    "a GPU": ContainerSpec("", BUSYBOX, SLEEP, gpus=Gpus(1), restart=RestartPolicy("unless-stopped")),
    "the host's network": ContainerSpec("", BUSYBOX, SLEEP, network="host", devices=("/dev/null:/dev/nothing:r",)),
    "privileged": ContainerSpec("", BUSYBOX, SLEEP, privileged=True, security_opt=("systempaths=unconfined",)),
}


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, out of `docker inspect`: all but the machine's doing. None, [] and {} mean the same."""
    config = {key: value or None for key, value in found["Config"].items() if key != "Hostname"}
    host = {key: value or None for key, value in found["HostConfig"].items() if key != "ConsoleSize"}
    # Docker programs leave the order of variables, mounts and limits to chance (values of one variable keep theirs);
    # older ones pass capabilities on as written.
    config["Env"] = sorted(config["Env"] or [], key=lambda entry: str(entry).partition("=")[0])
    host["Binds"] = sorted(host["Binds"] or [])
    host["Ulimits"] = sorted(host["Ulimits"] or [], key=str)
    host["CapAdd"] = sorted(f"CAP_{name.upper().removeprefix('CAP_')}" for name in host["CapAdd"] or [])
    requests = host["DeviceRequests"] or []
    host["DeviceRequests"] = [{key: value or None for key, value in request.items()} for request in requests]
    return {"Config": config, "HostConfig": host, "Path": found["Path"], "Args": found["Args"]}


def mounts(found: dict[str, Any]) -> list[Any]:
    """What is mounted where; the daemon lists it in any order."""
    return sorted(found["Mounts"], key=lambda mount: str(mount["Destination"]))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
async def test_the_adapter_and_the_rendered_text_make_the_same_container(
    engine: PrivateEngine, docker: DockerEngine, container_name: str, other: str, spec: ContainerSpec, tmp_path: Path
) -> None:
    keys = tmp_path / "some keys.env"
    keys.write_text("# the person's keys\nHF_TOKEN=hf_x y='z'\nA=from the file\n")
    spec = replace(spec, name=container_name, env_files=(str(keys),) if spec.env else ())
    identity = await docker.create(spec)
    text = render_text(replace(spec, name=other))
    ran = subprocess.run(["sh", "-ec", text], env=engine.environ(), capture_output=True, text=True)
    ours = engine.api("GET", f"/containers/{identity}/json")
    theirs = engine.api("GET", f"/containers/{other}/json")
    assert compared(ours)["Config"] == compared(theirs)["Config"]
    assert compared(ours)["HostConfig"] == compared(theirs)["HostConfig"]
    assert "HF_TOKEN=hf_x" not in text
    try:
        await docker.start(container_name)
    except errors.DockerError as error:
        # Where the machine itself lacks a privilege, neither can be started, and for the same reason.
        assert error.detail.partition(":")[0] in ran.stderr
    else:
        assert ran.returncode == 0, ran.stderr
        assert mounts(engine.api("GET", f"/containers/{identity}/json")) == mounts(theirs)


async def test_paths_with_a_colon_make_the_same_mounts(
    engine: PrivateEngine, docker: DockerEngine, container_name: str, other: str, tmp_path: Path
) -> None:
    odd = tmp_path / 'a:b, "c"'
    odd.mkdir()
    spec = ContainerSpec(container_name, BUSYBOX, SLEEP, mounts=(Mount(str(odd), "/in:side", read_only=True),))
    identity = await docker.create(spec)
    subprocess.run(["sh", "-ec", render_text(replace(spec, name=other))], env=engine.environ(), check=True)
    ours, theirs = (engine.api("GET", f"/containers/{name}/json") for name in (identity, other))
    assert compared(ours) == compared(theirs)
    assert ours["Mounts"] == theirs["Mounts"] != []


# --- life ---------------------------------------------------------------------------------------------


async def test_a_containers_life(docker: DockerEngine, container_name: str, free_port: int) -> None:
    trap = "trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done"
    port = PublishedPort(8000, free_port)
    spec = ContainerSpec(container_name, BUSYBOX, ("sh", "-c", trap), env=(EnvVar("SECRET", "x"),), ports=(port,))
    identity = await docker.create(spec)
    facts = await docker.inspect(container_name)
    assert (facts.id, facts.status, facts.exit_code) == (identity, ContainerStatus.CREATED, None)
    assert (facts.argv, facts.environment) == (("sh", "-c", trap), ("SECRET", "PATH"))
    assert (facts.image, facts.started_at, facts.ports) == (BUSYBOX, None, (port,))
    await docker.start(container_name)
    await docker.start(container_name)
    facts = await docker.inspect(identity[:12])
    assert facts.running and facts.pid and facts.started_at
    assert facts.ports == (port,)
    assert container_name in [each.name for each in await docker.containers()]
    with pytest.raises(errors.DockerError, match="is running"):
        await docker.remove(container_name)
    await docker.restart(container_name, 10)
    again = await docker.inspect(container_name)
    assert again.started_at and again.started_at > facts.started_at
    await docker.stop(container_name, 10)
    facts = await docker.inspect(container_name)
    assert (facts.status, facts.exit_code, facts.pid) == (ContainerStatus.EXITED, 3, 0)
    await docker.stop(container_name)
    lines = [line.text async for batch in docker.logs(container_name) for line in batch]
    assert lines == ["bye", "bye"]
    await docker.remove(container_name)
    with pytest.raises(errors.ContainerNotFound, match=container_name):
        await docker.inspect(container_name)
    with pytest.raises(errors.ContainerNotFound):
        await docker.remove(container_name)


async def test_what_does_not_listen_to_sigterm_is_killed(docker: DockerEngine, container_name: str) -> None:
    await docker.create(ContainerSpec(container_name, BUSYBOX, ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")))
    await docker.start(container_name)
    await docker.stop(container_name, 1)
    assert (await docker.inspect(container_name)).exit_code == 137


async def test_a_paused_container_is_stopped_too(
    engine: PrivateEngine, docker: DockerEngine, container_name: str
) -> None:
    await docker.create(ContainerSpec(container_name, BUSYBOX, SLEEP, init=True))
    await docker.start(container_name)
    engine.docker("pause", container_name)
    assert (await docker.inspect(container_name)).status is ContainerStatus.PAUSED
    with pytest.raises(errors.DockerError, match="is paused"):
        await docker.start(container_name)
    await docker.stop(container_name, 1)
    assert not (await docker.inspect(container_name)).running


async def test_a_running_container_is_removed_by_force(docker: DockerEngine, container_name: str) -> None:
    await docker.create(ContainerSpec(container_name, BUSYBOX, SLEEP))
    await docker.start(container_name)
    await docker.rename(container_name, f"{container_name}-2")
    assert (await docker.inspect(f"{container_name}-2")).running
    await docker.rename(f"{container_name}-2", container_name)
    await docker.remove(container_name, force=True)
    with pytest.raises(errors.ContainerNotFound):
        await docker.inspect(container_name)


async def test_daemon_and_image_tell_about_themselves(engine: PrivateEngine, docker: DockerEngine) -> None:
    daemon = await docker.daemon()
    assert daemon.root == str(engine.root / "data")
    assert (daemon.os, daemon.architecture) == ("linux", architecture())
    image = await docker.image(BUSYBOX)
    assert image is not None
    assert (image.command, image.entrypoint, image.architecture) == (("sh",), (), architecture())
    assert await docker.image("nobody/nothing:1") is None


async def test_the_current_context_leads_to_the_engine(
    engine: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))  # the SDK reads contexts by the process's environment
    environ = {**engine.environ(), "DOCKER_CONFIG": str(tmp_path)}
    host = environ.pop("DOCKER_HOST")
    for words in (["create", "private", "--docker", f"host={host}"], ["use", "private"]):
        subprocess.run(["docker", "context", *words], env=environ, check=True, capture_output=True)
    docker = DockerEngine(environ)
    assert (await docker.daemon()).root == str(engine.root / "data")
    await docker.close()


async def test_events_tell_a_containers_life(docker: DockerEngine, container_name: str) -> None:
    seen: list[tuple[str, int | None]] = []

    async def watch() -> None:
        async with aclosing(docker.events()) as events:
            async for event in events:
                if event.name == container_name:
                    seen.append((event.action, event.exit_code))
                    if event.action == "destroy":
                        return

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.3)  # the daemon does not say when it has begun to listen
    await docker.create(ContainerSpec(container_name, BUSYBOX, ("sh", "-c", "exit 7")))
    await docker.start(container_name)
    while (await docker.inspect(container_name)).running:
        await asyncio.sleep(0.05)
    await docker.remove(container_name)
    await asyncio.wait_for(watching, 10)
    assert seen == [("create", None), ("start", None), ("die", 7), ("destroy", None)]


# --- failures -----------------------------------------------------------------------------------------


async def test_without_the_toolkit_a_gpu_is_explained(plain_engine: PrivateEngine) -> None:
    docker = DockerEngine(plain_engine.environ())
    await docker.create(ContainerSpec("gpu", BUSYBOX, SLEEP, gpus=Gpus()))
    with pytest.raises(errors.GpuDriverMissing) as caught:
        await docker.start("gpu")
    assert "nvidia-container-toolkit" in caught.value.remedy
    assert 'device driver ""' in caught.value.detail
    await docker.close()


async def test_a_port_that_a_container_has_is_explained(
    docker: DockerEngine, container_name: str, other: str, free_port: int
) -> None:
    port = (PublishedPort(8000, free_port),)
    await docker.create(ContainerSpec(other, BUSYBOX, SLEEP, ports=port))
    await docker.start(other)
    await docker.create(ContainerSpec(container_name, BUSYBOX, SLEEP, ports=port))
    with pytest.raises(errors.PortInUse) as caught:
        await docker.start(container_name)
    assert caught.value.summary == f"Port {free_port} is taken by the container {other}."


async def test_a_port_that_a_process_has_is_explained(engine: PrivateEngine, container_name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        docker = DockerEngine(engine.environ(), port_owner=lambda asked: f"pytest on {asked}")
        await docker.create(ContainerSpec(container_name, BUSYBOX, SLEEP, ports=(PublishedPort(8000, port),)))
        with pytest.raises(errors.PortInUse) as caught:
            await docker.start(container_name)
        assert caught.value.summary == f"Port {port} is taken by pytest on {port}."
        await docker.close()


async def test_a_taken_name_is_explained(docker: DockerEngine, container_name: str) -> None:
    identity = await docker.create(ContainerSpec(container_name, BUSYBOX, SLEEP))
    with pytest.raises(errors.NameInUse) as caught:
        await docker.create(ContainerSpec(container_name, BUSYBOX, SLEEP))
    assert f"({identity[:12]}, created)" in caught.value.summary


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"image": "nobody/nothing:1"}, errors.ImageNotFound, "nobody/nothing:1 is not downloaded"),
        ({"command": ("nonsense",)}, errors.DockerError, "Program nonsense is missing"),
        ({"command": ("/etc",)}, errors.DockerError, "/etc of the image cannot be run"),
        ({"mounts": (Mount("/proc/nope", "/x"),)}, errors.DockerError, "cannot create /proc/nope"),
        ({"mounts": (Mount("/no:pe", "/x"),)}, errors.DockerError, "/no:pe does not exist"),
        ({"devices": ("/dev/nope",)}, errors.DockerError, "no device /dev/nope"),
        ({"devices": ("nvidia.com/gpu=all",)}, errors.GpuDriverMissing, "CDI"),
        ({"user": "nobodyhere"}, errors.DockerError, "no user nobodyhere"),
        ({"network": "nonet"}, errors.DockerError, "no network nonet"),
        ({"ports": (PublishedPort(80, 18777, "203.0.113.9"),)}, errors.DockerError, "no address 203.0.113.9"),
        ({"cap_add": ("NONSENSE",)}, errors.DockerError, "cannot create"),
        ({"security_opt": ("seccomp=/nope.json",)}, errors.DockerError, "/nope.json cannot be read"),
    ],
)
async def test_what_cannot_be_made_or_started_is_explained(
    docker: DockerEngine, container_name: str, changed: dict[str, Any], error: type[errors.SparkError], says: str
) -> None:
    with pytest.raises(error) as caught:
        await docker.create(replace(ContainerSpec(container_name, BUSYBOX, SLEEP), **changed))
        await docker.start(container_name)
    assert says in caught.value.summary
    assert caught.value.remedy


async def test_an_absent_daemon_is_explained(tmp_path: Path) -> None:
    docker = DockerEngine({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"})
    with pytest.raises(errors.DaemonNotRunning):
        await docker.containers()
    await docker.close()


def test_a_socket_that_one_may_not_use_is_explained(engine: PrivateEngine) -> None:
    script = """
import asyncio, os
import spark_tui.machine.docker.client  # before the change of user, who may not read this checkout
from spark_tui.base.errors import SparkError
from spark_tui.machine.docker.engine import DockerEngine
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    asyncio.run(DockerEngine().daemon())
except SparkError as error:
    print(error.id, error)
"""
    environ = {**os.environ, "DOCKER_HOST": engine.host}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("docker_socket_permission Cannot reach Docker: permission denied")
    assert "sudo usermod -aG docker $USER, then log in again." in done.stdout


# --- registries ---------------------------------------------------------------------------------------


async def pull(docker: DockerEngine, reference: str) -> list[Any]:
    return [progress async for progress in docker.pull(reference)]


@pytest.fixture
def layered(engine: PrivateEngine, registry: PrivateRegistry, lab: Lab) -> Iterator[str]:
    """An image of three layers of 3 MB in the registry, and not in the engine."""
    tag = "spark-tui/docker-adapter:1"
    ensure_layered(engine, lab.toolbox, [3_000_000] * 3, tag, seed=7)
    reference = registry.push(engine, tag, "adapter/layered:1")
    identity = engine.api("GET", f"/images/{tag}/json")["Id"]
    engine.docker("rmi", "--force", identity)
    yield reference
    engine.try_docker("rmi", "--force", identity)


async def test_a_pull_tells_its_progress_by_layer(
    docker: DockerEngine, layered: str, registry: PrivateRegistry
) -> None:
    with SlowLink(registry.port, 8_000_000) as link:
        reference = layered.replace(registry.address, link.address)
        seen = await pull(docker, reference)
    assert any(0 < progress.current_bytes < progress.total_bytes for progress in seen)
    assert seen[-1].current_bytes == seen[-1].total_bytes > 9_000_000
    assert len(seen[-1].layers) == 4
    assert {layer.status for layer in seen[-1].layers} <= {"Pull complete", "Already exists"}
    assert all(before.current_bytes <= after.current_bytes for before, after in pairwise(seen))
    assert (await docker.image(reference)) is not None


async def test_a_cancelled_pull_stops_at_once(docker: DockerEngine, layered: str, registry: PrivateRegistry) -> None:
    with SlowLink(registry.port, 500_000) as link:
        reference = layered.replace(registry.address, link.address)
        async with aclosing(docker.pull(reference)) as progress:
            async for so_far in progress:
                if so_far.current_bytes:
                    break
        assert await docker.image(reference) is None
        async with asyncio.timeout(5):
            while link._open:  # the daemon lets the registry go
                await asyncio.sleep(0.05)


async def test_an_image_that_is_here_is_up_to_date(docker: DockerEngine, layered: str) -> None:
    await pull(docker, layered)
    assert "up to date" in (await pull(docker, layered))[-1].status


@pytest.mark.parametrize(
    ("reference", "error", "says"),
    [
        ("127.0.0.1:1/nobody/nothing:1", errors.RegistryUnreachable, "127.0.0.1:1 does not answer"),
        ("registry.invalid/nobody/nothing:1", errors.RegistryUnreachable, "registry.invalid"),
        ("Not A Name", errors.ImageNotFound, "is not an image name"),
    ],
)
async def test_a_registry_that_cannot_be_reached_is_explained(
    docker: DockerEngine, reference: str, error: type[errors.SparkError], says: str
) -> None:
    with pytest.raises(error) as caught:
        await pull(docker, reference)
    assert says in caught.value.summary


async def test_an_image_that_a_registry_does_not_have_is_explained(
    docker: DockerEngine, registry: PrivateRegistry
) -> None:
    with pytest.raises(errors.ImageNotFound, match=f"{registry.address} has no image"):
        await pull(docker, f"{registry.address}/nobody/nothing:1")


async def test_a_registry_that_wants_a_login_is_explained_and_then_used(
    engine: PrivateEngine, docker: DockerEngine, locked_registry: PrivateRegistry
) -> None:
    reference = locked_registry.push(engine, BUSYBOX, "adapter/locked:1")
    with pytest.raises(errors.RegistryUnauthorized) as caught:
        await pull(docker, reference)
    assert f"docker login {locked_registry.address}" in caught.value.remedy
    with locked_registry.logged_in(engine) as config:
        known = DockerEngine({**engine.environ(), "DOCKER_CONFIG": str(config)})
        assert (await pull(known, reference))[-1].status.startswith("Downloaded newer image")
        await known.close()
    engine.docker("rmi", reference)


async def test_an_image_for_another_processor_is_explained(
    engine: PrivateEngine, docker: DockerEngine, registry: PrivateRegistry
) -> None:
    reference = registry.push(engine, BUSYBOX, "adapter/foreign:base")
    accepted = "application/vnd.docker.distribution.manifest.v2+json"
    address = f"http://{registry.address}/v2/adapter/foreign/manifests/"
    with urllib.request.urlopen(urllib.request.Request(address + "base", headers={"Accept": accepted})) as answer:
        manifest = answer.read()
    listing = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.list.v2+json",
        "manifests": [
            {
                "mediaType": accepted,
                "size": len(manifest),
                "digest": f"sha256:{hashlib.sha256(manifest).hexdigest()}",
                "platform": {"architecture": "riscv64", "os": "linux"},
            }
        ],
    }
    headers = {"Content-Type": str(listing["mediaType"])}
    put = urllib.request.Request(address + "1", json.dumps(listing).encode(), headers, method="PUT")
    urllib.request.urlopen(put).close()
    with pytest.raises(errors.WrongArchitecture) as caught:
        await pull(docker, reference.replace(":base", ":1"))
    assert "not built for this machine's processor" in caught.value.summary


async def test_a_full_disk_is_explained(
    make_engine: MakeEngine, registry: PrivateRegistry, layered: str, tmp_path: Path
) -> None:
    root = tmp_path / "engine0"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", root], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    small = make_engine()
    (root / "ballast").write_bytes(b"x" * (16 * 1024 * 1024))
    docker = DockerEngine(small.environ())
    with pytest.raises(errors.NoSpaceLeft, match="disk is full"):
        await pull(docker, layered)
    await docker.close()


async def test_a_daemon_that_goes_away_breaks_event_streams(make_engine: MakeEngine) -> None:
    engine = make_engine()
    docker = DockerEngine(engine.environ())
    events = docker.events()
    waiting = asyncio.create_task(anext(events))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(engine.pause_daemon)
    with pytest.raises(errors.StreamBroken):
        await waiting
    with pytest.raises(errors.DaemonNotRunning):
        await docker.containers()
    await asyncio.to_thread(engine.start)
    assert await docker.containers() == ()
    await docker.close()
