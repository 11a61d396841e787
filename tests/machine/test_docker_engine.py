"""The Docker adapter's calls, events and pulls, against a scripted daemon."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base import errors
from spark_tui.base.engine.container import (
    LABEL_PREFIX,
    LABEL_TOOL,
    ContainerSpec,
    ContainerStatus,
    DaemonFacts,
    EnvVar,
    ImageDisk,
    LayerProgress,
    Mount,
    PublishedPort,
    StoredImage,
)
from spark_tui.base.engine.state import EngineState, Exposure, endpoint_of, runtime_of
from spark_tui.machine.docker.engine import DockerEngine
from spark_tui.machine.docker.wire import container_facts
from spark_tui.observe.explain.model.view import EngineView
from tests.machine.fake_docker import FakeDocker, Request, daemon, inspected, until

__all__ = ["daemon"]
X = inspected()["Id"]


@pytest.fixture
async def engine(daemon: FakeDocker) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(daemon.environ(), port_owner=lambda port: f"python3 ({port})")
    yield engine
    await engine.close()


def refusing(status: int, message: str) -> Callable[[Request], None]:
    return lambda request: request.json({"message": message}, status)


# --- looking ------------------------------------------------------------------------------------------


def test_making_one_touches_nothing_and_imports_no_sdk() -> None:
    script = """
import sys
from spark_tui.machine.docker.engine import DockerEngine
from spark_tui.machine.docker.wire import container_facts
DockerEngine({"DOCKER_HOST": "nonsense"})
print([name for name in ("docker", "requests", "httpx2", "yaml") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_the_daemons_facts_cost_one_look_at_its_folder(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.routes["GET /version"] = {"Version": "29.2.1", "ApiVersion": "1.53", "Os": "linux", "Arch": "arm64"}
    daemon.routes["GET /info"] = {"DockerRootDir": "/var/lib/docker"}
    for _ in range(3):
        assert await engine.daemon() == DaemonFacts("29.2.1", "1.53", "linux", "arm64", "/var/lib/docker")
    assert daemon.calls.count("GET /info") == 1
    assert daemon.calls.count("GET /version") == 4  # once for its API version


async def test_facts_come_from_inspecting(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.routes["GET /containers/x/json"] = inspected(
        Config={
            "Image": "vllm/vllm-openai:v1",
            "Entrypoint": ["vllm", "serve"],
            "Cmd": ["--port", "8000"],
            "Env": ["HF_TOKEN=secret", "PATH=/bin"],
            "Labels": {"b": "2", "a": "1"},
            "Tty": True,
        },
        HostConfig={"NetworkMode": "bridge", "PortBindings": {"1/tcp": [{"HostIp": "", "HostPort": "1"}]}},
        NetworkSettings={
            "Ports": {
                "8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8000"}, {"HostIp": "::", "HostPort": "8000"}],
                "9000/tcp": None,
            }
        },
        State={
            "Status": "exited",
            "ExitCode": 137,
            "OOMKilled": True,
            "Pid": 0,
            "Error": "",
            "StartedAt": "2026-11-21T12:00:00.123456789Z",
            "FinishedAt": "2026-11-21T13:00:00+01:00",
        },
        RestartCount=2,
    )
    found = await engine.inspect("x")
    assert found.argv == ("vllm", "serve", "--port", "8000")
    assert found.environment == ("HF_TOKEN", "PATH")
    assert "secret" not in repr(found)
    assert found.labels == (("a", "1"), ("b", "2"))
    assert found.ports == (PublishedPort(8000, 8000, "0.0.0.0"), PublishedPort(8000, 8000, "::"))
    assert (found.status, found.exit_code, found.oom_killed) == (ContainerStatus.EXITED, 137, True)
    assert (found.tty, found.restart_count, found.network_mode) == (True, 2, "bridge")
    assert found.started_at == pytest.approx(1795262400.123456)
    assert found.finished_at == 1795262400.0
    daemon.routes["GET /containers/x/json"] = inspected(
        status="created", HostConfig={"PortBindings": {"80/udp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}}
    )
    found = await engine.inspect("x")
    assert (found.started_at, found.finished_at, found.exit_code) == (None, None, None), "it has not happened"
    assert found.created_at == pytest.approx(1795262340.5)
    assert found.ports == (PublishedPort(80, 0, "127.0.0.1", "udp"),)


@pytest.mark.parametrize(
    ("changes", "address", "model", "served"),
    [
        pytest.param({}, "http://127.0.0.1:8001", "org/m", "a", id="as launched"),
        pytest.param(
            {"NetworkSettings": {"Ports": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "9000"}]}}},
            "http://127.0.0.1:9000", "org/m", "a", id="another -p",
        ),
        pytest.param({"HostConfig": {}, "NetworkSettings": {}}, "", "org/m", "a", id="no -p"),
        pytest.param(
            {"HostConfig": {"NetworkMode": "host"}, "NetworkSettings": {},
             "Config": {"Cmd": ["org/m", "--port", "8123"]}},
            "http://127.0.0.1:8123", "org/m", "a", id="the host's network",
        ),
        pytest.param(
            {"Config": {"Cmd": ["org/other", "--served-model-name", "b"]}}, "http://127.0.0.1:8001", "org/other", "b",
            id="another model",
        ),
    ],
)  # fmt: skip
async def test_what_docker_says_of_a_container_beats_the_labels_of_the_launch_that_it_came_from(
    daemon: FakeDocker, engine: DockerEngine, changes: dict[str, Any], address: str, model: str, served: str
) -> None:
    launched = {
        "Image": "vllm/vllm-openai:v1",
        "Entrypoint": ["vllm", "serve"],
        "Cmd": ["org/m", "--port", "8000", "--served-model-name", "a"],
        "Labels": {LABEL_PREFIX + "preset": "p", LABEL_PREFIX + "port": "8001", LABEL_PREFIX + "model": "org/m",
                   LABEL_PREFIX + "runtime": "vllm", LABEL_PREFIX + "served-name": "a"},
    }  # fmt: skip
    bound = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8001"}]}
    given = {"HostConfig": {"PortBindings": bound}, "NetworkSettings": {"Ports": bound}, **changes}
    daemon.routes["GET /containers/x/json"] = inspected(**{**given, "Config": launched | given.get("Config", {})})
    facts = await engine.inspect("x")
    found = endpoint_of(facts, None)
    view = EngineView(facts, EngineState.STARTING, runtime_of(facts), Exposure.LOCAL)
    assert (found.base_url if found is not None else "", view.model, view.served_name) == (address, model, served)
    assert facts.preset == "p", "where it came from"


async def test_containers_are_listed_in_name_order_without_those_just_removed(
    daemon: FakeDocker, engine: DockerEngine
) -> None:
    for name in ("b", "a"):
        daemon.routes[f"GET /containers/{name}/json"] = inspected(name)
    daemon.routes["GET /containers/json"] = [{"Id": "b"}, {"Id": "gone"}, {"Id": "a"}]
    assert [facts.name for facts in await engine.containers()] == ["a", "b"]


async def test_an_absent_image_is_none(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.routes["GET /images/vllm/vllm-openai:v1/json"] = {
        "Id": "sha256:2",
        "Config": {"Entrypoint": ["vllm", "serve"]},
        "Architecture": "arm64",
        "RepoDigests": ["vllm/vllm-openai@sha256:3"],
    }
    daemon.routes["GET /images/nope/json"] = refusing(404, "No such image: nope:latest")
    found = await engine.image("vllm/vllm-openai:v1")
    assert found is not None
    assert (found.entrypoint, found.architecture) == (("vllm", "serve"), "arm64")
    assert found.digest == "vllm/vllm-openai@sha256:3"
    assert await engine.image("nope") is None
    assert await engine.image("") is None


async def test_names_cannot_leave_their_place_in_the_path(daemon: FakeDocker, engine: DockerEngine) -> None:
    for name in ("../images/json", "a/b?force=1", "a b\n"):
        with pytest.raises(errors.ContainerNotFound):
            await engine.inspect(name)
    assert not [call for call in daemon.calls if "/images" in call.replace("%2F", "#")]
    with pytest.raises(errors.ContainerNotFound):
        await engine.inspect("")


async def test_an_absent_daemon_and_an_odd_one_are_named(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.stop()
    with pytest.raises(errors.DaemonNotRunning, match="Docker is not running"):
        await engine.daemon()
    with pytest.raises(errors.DaemonNotRunning):
        await anext(engine.events())
    daemon.start()
    daemon.routes["GET /containers/json"] = []
    assert await engine.containers() == ()
    daemon.routes["GET /version"] = "hello"
    with pytest.raises(errors.DockerError, match="answer was not understood"):
        await engine.daemon()


BIND = {"Type": "bind", "Source": "/home/me/vllm", "Destination": "/models", "Mode": "", "RW": True}
VOLUME = {"Type": "volume", "Name": "v", "Source": "/var/lib/v/_data", "Destination": "/cache", "RW": False}
TMPFS = {"Type": "tmpfs", "Source": "", "Destination": "/tmp", "RW": True}


@pytest.mark.parametrize("mounts", [None, [], [BIND], [BIND, VOLUME, TMPFS]], ids=["none", "empty", "one", "three"])
def test_mounts_are_the_folders_of_the_host_that_a_container_sees(mounts: list[dict[str, Any]] | None) -> None:
    expected = (Mount("/var/lib/v/_data", "/cache", True), Mount("/home/me/vllm", "/models"))
    assert container_facts({"Id": "x", "Mounts": mounts}).mounts == expected[2 - len((mounts or [])[:2]) :]


# --- acting -------------------------------------------------------------------------------------------


async def test_keys_of_env_files_travel_in_the_request_only(
    daemon: FakeDocker, engine: DockerEngine, tmp_path: Path
) -> None:
    path = tmp_path / "keys.env"
    path.write_text("\ufeff# keys\n\nHF_TOKEN=hf_secret = 'x' \r\n  VLLM_API_KEY=k\nNOT_SET\n", "utf-8")
    daemon.routes["POST /containers/create"] = lambda request: request.json({"Id": X}, 201)
    spec = ContainerSpec("qwen", "image:1", ("a",), env=(EnvVar("A", "1"),), env_files=(str(path),))
    assert await engine.create(spec) == X
    assert daemon.requests[-1].query == {"name": "qwen"}
    assert daemon.requests[-1].body["Env"] == ["HF_TOKEN=hf_secret = 'x' ", "VLLM_API_KEY=k", "A=1"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"=x\n", "line 1"),
        (b"A=1\nB C=hf_secret\n", "line 2"),
        (b"A=1\n\n\xff=hf_secret\n", "line 3, is not UTF-8"),
        (None, "keys.env cannot be read"),
    ],
    ids=["no-name", "blank", "bytes", "absent"],
)
async def test_a_bad_env_file_is_named_without_its_values(
    engine: DockerEngine, tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "keys.env"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(errors.DockerError) as caught:
        await engine.create(ContainerSpec("x", "image:1", env_files=(str(path),)))
    assert says in caught.value.summary
    assert "secret" not in f"{caught.value} {caught.value.detail} {caught.value.__cause__}"


async def test_a_taken_name_says_by_whom(daemon: FakeDocker, engine: DockerEngine) -> None:
    message = f'Conflict. The container name "/x" is already in use by container "{X}". You have to remove ...'
    daemon.routes["POST /containers/create"] = refusing(409, message)
    daemon.routes["GET /containers/x/json"] = inspected(status="running")
    with pytest.raises(errors.NameInUse) as caught:
        await engine.create(ContainerSpec("x", "image:1"))
    assert caught.value.summary == f"The name x is taken by another container ({X[:12]}, running)."
    assert "docker rm -f x" in caught.value.remedy


@pytest.mark.parametrize(("neighbour", "owner"), [(True, "the container other"), (False, "python3 (8000)")])
async def test_a_taken_port_says_by_whom(daemon: FakeDocker, engine: DockerEngine, neighbour: bool, owner: str) -> None:
    bound = {"Ports": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}}
    daemon.routes["GET /containers/x/json"] = daemon.routes[f"GET /containers/{X}/json"] = inspected(status="created")
    daemon.routes["GET /containers/other/json"] = inspected("other", NetworkSettings=bound if neighbour else {})
    daemon.routes["GET /containers/json"] = [{"Id": "x"}, {"Id": "other"}]
    daemon.routes[f"POST /containers/{X}/start"] = refusing(
        500, "driver failed ...: Bind for 127.0.0.1:8000 failed: port is already allocated"
    )
    with pytest.raises(errors.PortInUse) as caught:
        await engine.start("x")
    assert caught.value.summary == f"Port 8000 is taken by {owner}."


async def test_stop_returns_when_it_has_really_ended(daemon: FakeDocker, engine: DockerEngine) -> None:
    looks = []

    def inspect(request: Request) -> None:
        looks.append(request)
        request.json(inspected(status="running" if len(looks) < 4 else "exited"))

    daemon.routes["GET /containers/x/json"] = daemon.routes[f"GET /containers/{X}/json"] = inspect
    daemon.routes[f"POST /containers/{X}/stop"] = {}
    await engine.stop("x", 7)
    assert len(looks) == 4
    (asked,) = [request for request in daemon.requests if request.command == "POST"]
    assert asked.query == {"t": "7"}


async def test_a_container_gets_another_name_unless_that_is_taken(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.routes["POST /containers/x/rename"] = lambda request: request.json({})
    await engine.rename("x", "y")
    (asked,) = [request for request in daemon.requests if request.command == "POST"]
    assert asked.query == {"name": "y"}
    message = f'Conflict. The container name "/y" is already in use by container "{X}". You have to remove ...'
    daemon.routes["POST /containers/x/rename"] = refusing(409, message)
    with pytest.raises(errors.NameInUse):
        await engine.rename("x", "y")


async def test_a_removal_under_way_is_waited_for(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.routes["GET /containers/x/json"] = inspected(status="removing")
    looks = []

    def inspect(request: Request) -> None:
        looks.append(request)
        if len(looks) == 3:
            del daemon.routes[f"GET /containers/{X}/json"]
        request.json(inspected(status="removing"))

    daemon.routes[f"GET /containers/{X}/json"] = inspect
    daemon.routes[f"DELETE /containers/{X}"] = refusing(409, "removal of container x is already in progress")
    await engine.remove("x")
    assert len(looks) == 3


async def test_a_slow_stop_does_not_hold_up_a_look(daemon: FakeDocker, engine: DockerEngine) -> None:
    gate = threading.Event()

    def stop(request: Request) -> None:
        gate.wait(10)
        request.json({})

    daemon.routes["GET /containers/x/json"] = daemon.routes[f"GET /containers/{X}/json"] = inspected(status="exited")
    daemon.routes[f"POST /containers/{X}/stop"] = stop
    stopping = [asyncio.create_task(engine.stop("x")) for _ in range(6)]
    await until(lambda: sum(call.startswith("POST") for call in daemon.calls) == 3)  # the pool is bounded
    assert (await engine.inspect("x")).name == "x"
    gate.set()
    await asyncio.gather(*stopping)


# --- events -------------------------------------------------------------------------------------------


async def test_events_are_those_of_containers_until_the_daemon_goes(daemon: FakeDocker, engine: DockerEngine) -> None:
    gate = threading.Event()

    def events(request: Request) -> None:
        request.begin()
        lines = [
            {"Type": "container", "Action": "start", "Actor": {"ID": "1", "Attributes": {"name": "x"}}, "time": 5},
            {"Type": "image", "Action": "pull", "Actor": {"ID": "y"}},
            {
                "Type": "container",
                "Action": "kill",
                "Actor": {"ID": "1", "Attributes": {"name": "x", "signal": "9"}},
                "time": 6,
            },
            {
                "Type": "container",
                "Action": "die",
                "Actor": {"ID": "1", "Attributes": {"name": "x", "exitCode": "137"}},
                "timeNano": 6_500_000_000,
            },
        ]
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        for at in range(0, len(text), 7):
            request.wfile.write(text[at : at + 7])
        gate.wait(10)

    daemon.routes["GET /events"] = events
    seen = []
    with pytest.raises(errors.StreamBroken, match="event stream broke off"):
        async for event in engine.events():
            seen.append((event.action, event.name, event.at, event.exit_code, event.signal))
            if event.action == "die":
                gate.set()
    assert seen == [("start", "x", 5.0, None, None), ("kill", "x", 6.0, None, 9), ("die", "x", 6.5, 137, None)]
    filters = json.loads(daemon.requests[-1].query["filters"])
    assert filters["type"] == ["container"] and "exec_start" not in filters["event"]
    assert "kill" in filters["event"]


# --- pulls --------------------------------------------------------------------------------------------

REFERENCE = "registry.example:5000/vllm/vllm-openai:v1"


def pulling(*messages: dict[str, object]) -> Callable[[Request], None]:
    def pull(request: Request) -> None:
        request.begin()
        for message in messages:
            request.wfile.write(json.dumps(message).encode() + b"\r\n")
            time.sleep(0.02)

    return pull


def layer(status: str, **detail: int) -> dict[str, object]:
    return {"status": status, "progressDetail": detail, "id": "a1"}


async def test_progress_is_told_by_layer(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.routes["POST /images/create"] = pulling(
        {"status": "Pulling from vllm/vllm-openai", "id": "v1"},
        layer("Pulling fs layer"),
        {"status": "Already exists", "progressDetail": {}, "id": "b2"},
        layer("Downloading", current=50, total=200),
        layer("Download complete"),
        layer("Extracting", current=10, total=500),
        layer("Pull complete"),
        {"status": "Digest: sha256:1"},
        {"status": f"Status: Downloaded newer image for {REFERENCE}"},
    )
    seen = [progress async for progress in engine.pull(REFERENCE)]
    assert seen[0].status == "asking registry.example:5000"
    assert any(progress.status == "downloading" and progress.current_bytes == 50 for progress in seen)
    assert any(progress.status == "extracting" for progress in seen)
    last = seen[-1]
    assert last.layers == (LayerProgress("a1", "Pull complete", 200, 200), LayerProgress("b2", "Already exists"))
    assert (last.current_bytes, last.total_bytes) == (200, 200)
    assert last.status.startswith("Downloaded newer image")
    asked = daemon.requests[-1]
    assert asked.query == {"fromImage": "registry.example:5000/vllm/vllm-openai", "tag": "v1"}
    assert asked.headers.get("X-Registry-Auth") is None


@pytest.mark.parametrize(
    ("reference", "name", "tag"),
    [
        ("ubuntu", "ubuntu", "latest"),
        ("localhost:5000/x", "localhost:5000/x", "latest"),
        ("a/b:c", "a/b", "c"),
        ("a/b@sha256:00", "a/b", "sha256:00"),
        ("a/b:c@sha256:00", "a/b:c", "sha256:00"),
    ],
)
async def test_never_all_tags(daemon: FakeDocker, engine: DockerEngine, reference: str, name: str, tag: str) -> None:
    daemon.routes["POST /images/create"] = pulling({"status": "Status: Image is up to date for x"})
    async for _ in engine.pull(reference):
        pass
    assert daemon.requests[-1].query == {"fromImage": name, "tag": tag}


LIMIT = "toomanyrequests: You have reached your pull rate limit"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusing(500, LIMIT), errors.RegistryUnauthorized),
        (
            pulling(layer("Downloading"), {"errorDetail": {"message": LIMIT}, "error": LIMIT}),
            errors.RegistryUnauthorized,
        ),
        (pulling(layer("Downloading", current=1, total=2)), errors.StreamBroken),
    ],
    ids=["at once", "late", "the daemon goes"],
)
async def test_a_pull_that_fails_says_why(
    daemon: FakeDocker, engine: DockerEngine, answer: Callable[[Request], None], kind: type[errors.SparkError]
) -> None:
    daemon.routes["POST /images/create"] = answer
    daemon.routes["GET /images/x:1/json"] = refusing(404, "No such image: x:1")
    with pytest.raises(kind):
        async for _ in engine.pull("x:1"):
            pass


async def test_closing_a_pull_closes_its_connection(daemon: FakeDocker, engine: DockerEngine) -> None:
    gone = threading.Event()

    def pull(request: Request) -> None:
        request.begin()
        while True:
            try:
                request.wfile.write(json.dumps(layer("Downloading", current=1, total=2)).encode() + b"\n")
            except ConnectionError:
                gone.set()
                return
            time.sleep(0.005)

    daemon.routes["POST /images/create"] = pull
    async with aclosing(engine.pull("x:1")) as progress:
        async for so_far in progress:
            if so_far.total_bytes:
                break
    await until(gone.is_set, 0.5)


async def test_a_pull_that_hangs_before_its_answer_can_be_closed(daemon: FakeDocker, engine: DockerEngine) -> None:
    gate = threading.Event()
    daemon.routes["POST /images/create"] = lambda request: gate.wait(10)
    progress = engine.pull("x:1")
    await anext(progress)
    await until(lambda: "POST /images/create" in daemon.calls)
    await progress.aclose()
    await until(lambda: not [t for t in threading.enumerate() if t.name == "docker-pull"], 0.5)
    gate.set()


async def test_the_docker_programs_login_is_used(daemon: FakeDocker, tmp_path: Path) -> None:
    token = base64.b64encode(b"$oauthtoken:key").decode()
    settings = {"auths": {"nvcr.io": {"auth": token}}, "credHelpers": {"broken.example": "not-there"}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    engine = DockerEngine(daemon.environ(tmp_path))
    daemon.routes["POST /images/create"] = pulling({"status": "Status: Image is up to date for x"})
    async for _ in engine.pull("nvcr.io/nvidia/vllm:1"):
        pass
    sent = json.loads(base64.urlsafe_b64decode(daemon.requests[-1].headers["X-Registry-Auth"]))
    assert (sent["username"], sent["password"]) == ("$oauthtoken", "key")
    async for _ in engine.pull("other.example/x:1"):
        pass
    assert daemon.requests[-1].headers.get("X-Registry-Auth") is None
    with pytest.raises(errors.DockerError, match="Cannot read the login for") as caught:
        async for _ in engine.pull("broken.example/nvidia/vllm:1"):
            pass
    assert "docker login broken.example" in caught.value.remedy
    await engine.close()


# --- images -----------------------------------------------------------------------------------------------

ROW = {
    "Id": "sha256:one", "RepoTags": ["r/x:1"], "RepoDigests": ["r/x@sha256:d"], "Created": 1700000000, "Size": 50,
    "SharedSize": 20,
}  # fmt: skip
LOST = {"Id": "sha256:two", "RepoTags": ["<none>:<none>"], "RepoDigests": None, "Created": 0, "SharedSize": -1}


@pytest.mark.parametrize(
    "answer",
    [{"LayersSize": 60, "Images": [ROW, LOST]}, {"ImageUsage": {"TotalSize": 60, "Items": [ROW, LOST]}}],
    ids=["until 1.51", "from 1.52"],
)
async def test_images_have_their_sizes_and_what_is_unknown_is_not_zero(
    answer: object, daemon: FakeDocker, engine: DockerEngine
) -> None:
    daemon.routes["GET /system/df"] = answer
    disk = await engine.images()
    assert disk == ImageDisk(
        (
            StoredImage("sha256:one", ("r/x:1",), ("r/x@sha256:d",), 1700000000.0, 50, 20),
            StoredImage("sha256:two"),
        ),
        60,
    )
    assert [each.unique for each in disk.images] == [30, None]
    assert daemon.requests[-1].query["type"] == "image", "volumes are not measured"


async def test_what_an_image_says_of_its_programs(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.routes["GET /images/x/json"] = {
        "Id": "sha256:one",
        "Config": {
            "Env": [
                "CUDA_VERSION=13.0.2", "NCCL_VERSION=2.28", "NVIDIA_PYTORCH_VERSION=25.11", "TORCH_VERSION=2\x1b[0m",
            ],
            "Labels": {"com.nvidia.cuda.version": "12.8", "org.opencontainers.image.version": "24.04"},
        },
    }  # fmt: skip
    image = await engine.image("x")
    assert image is not None
    assert dict(image.versions) == {"CUDA": "13.0.2", "NCCL": "2.28", "torch": "2"}


async def test_the_registrys_digest_is_asked_with_the_stored_login(daemon: FakeDocker, tmp_path: Path) -> None:
    token = base64.b64encode(b"someone:key").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"reg.example": {"auth": token}}}))
    engine = DockerEngine(daemon.environ(tmp_path))
    path = "GET /distribution/reg.example/x:1/json"
    daemon.routes[path] = {"Descriptor": {"digest": "sha256:d"}}
    assert await engine.registry_digest("reg.example/x:1") == "sha256:d"
    header = json.loads(base64.urlsafe_b64decode(daemon.requests[-1].headers["X-Registry-Auth"]))
    assert header["username"] == "someone"
    for message, error in (
        ("manifest unknown: manifest unknown", errors.ImageNotFound),
        ("unauthorized: authentication required", errors.RegistryUnauthorized),
        ("Get https://reg.example/v2/: dial tcp: lookup reg.example: no such host", errors.RegistryUnreachable),
    ):
        daemon.routes[path] = refusing(500, message)
        with pytest.raises(error) as caught:
            await engine.registry_digest("reg.example/x:1")
        assert caught.value.remedy and "pull" not in caught.value.summary
    await engine.close()


async def test_an_image_in_use_is_not_removed(daemon: FakeDocker, engine: DockerEngine) -> None:
    daemon.routes["DELETE /images/x:1"] = []
    await engine.remove_image("x:1")
    assert daemon.requests[-1].query["force"] == "False"
    daemon.routes["DELETE /images/x:1"] = refusing(409, "conflict: container 4f1c is using its referenced image 0e46")
    with pytest.raises(errors.ImageInUse):
        await engine.remove_image("x:1")


@pytest.mark.parametrize("code", [0, 3])
async def test_a_program_runs_without_network_and_its_container_is_removed(
    code: int, daemon: FakeDocker, engine: DockerEngine
) -> None:
    def logs(request: Request) -> None:
        request.begin()
        for line in (b"one\n", b"two\n"):
            request.wfile.write(b"\x01\0\0\0" + len(line).to_bytes(4, "big") + line)

    daemon.routes["POST /containers/create"] = {"Id": X}
    daemon.routes[f"POST /containers/{X}/start"] = lambda request: request.json({}, 204)
    daemon.routes[f"POST /containers/{X}/wait"] = {"StatusCode": code}
    daemon.routes[f"GET /containers/{X}/json"] = inspected()
    daemon.routes[f"GET /containers/{X}/logs"] = logs
    daemon.routes[f"DELETE /containers/{X}"] = lambda request: request.json({}, 204)
    if code:
        with pytest.raises(errors.DockerError, match="exit code 3") as caught:
            await engine.run_once("x:1", ("python3", "-c", "print()"))
        assert "two" in caught.value.detail
    else:
        assert await engine.run_once("x:1", ("python3", "-c", "print()")) == ("one", "two")
    (made,) = [each for each in daemon.requests if each.path.partition("?")[0].endswith("/containers/create")]
    host = made.body["HostConfig"]
    assert (host["NetworkMode"], host["CapDrop"], host.get("DeviceRequests")) == ("none", ["ALL"], None)
    assert host["ReadonlyRootfs"] is True
    assert made.body["Labels"] == {LABEL_TOOL: "run"}
    assert daemon.calls[-1] == f"DELETE /containers/{X}"
