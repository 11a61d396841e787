"""A private Docker engine and a real vLLM for the tests in this folder.

They skip, with the reason, where the lab cannot run; with SPARK_TUI_REAL=required they fail there instead.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.lab import Lab, LabUnavailable, PrivateEngine, PrivateRegistry, Rig
from tests.real.lab.images import ensure_busybox
from tests.real.lab.support import Progress, Say, fingerprint

BUILD_AND_TEST_SECONDS = 1500
"""The first test of a session may have to build the lab, on a slow machine, before its own work begins."""

MakeEngine = Callable[..., PrivateEngine]

FIRST_PORT = 20_000
PORTS_PER_WORKER = 1_000


ALONE = (
    "test_compose_as_docker_reads_it",
    "test_connect",
    "test_hub_download",
    "test_hub_download_keys",
    "test_serving_browser",
    "test_sparkrun_reads_ours",
)
"""Files that share nothing: their tests run anywhere, at any time."""

ON_THE_RIG = ("test_cluster", "test_cluster_ways", "test_keys_on_cluster", "test_replicas")
"""Files that launch on the two hosts, one after another."""

HERE = Path(__file__).parent
APART = (HERE / "containers", HERE / "hosts")
"""Files on a Docker engine and on two hosts of their own, one after another. All others are so on the shared engine."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here is `real`, has time for the lab unless it sets its own limit, and knows what it must not share.

    With `--dist loadgroup` one worker has the shared Docker engine with the vLLMs, one the launches on two hosts, and
    one an engine and two hosts apart, and then what shares nothing.
    """
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.real)
            if item.path.stem not in ALONE:
                item.add_marker(pytest.mark.xdist_group(_group(item.path)))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(BUILD_AND_TEST_SECONDS))


def _group(path: Path) -> str:
    if any(path.is_relative_to(folder) for folder in APART):
        return "apart"
    return "rig" if path.stem in ON_THE_RIG else "machine"


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Narrates the building of the lab past pytest's capture: minutes of silence would look like a hang."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def write(text: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print(f"\nlab {text}", end="", flush=True)

    return Progress(write)


@pytest.fixture(scope="session")
def lab(say: Say) -> Iterator[Lab]:
    """The lab with engine, registry and busybox: seconds. Taken down at the end unless it was up to stay."""
    lab = Lab()
    with available(lab.lease(say)):
        yield lab


@contextlib.contextmanager
def available(lease: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Uses a part of the lab; skips, or fails where it is required, when this machine cannot run it."""
    with contextlib.ExitStack() as stack:
        obstacle = ""
        try:
            stack.enter_context(lease)
        except LabUnavailable as error:
            obstacle = str(error)
        if obstacle and os.environ.get("SPARK_TUI_REAL") == "required":
            pytest.fail(f"SPARK_TUI_REAL=required, but the lab cannot run: {obstacle}", pytrace=False)
        if obstacle:
            pytest.skip(obstacle)
        yield


@pytest.fixture(scope="session")
def vllm_lab(lab: Lab, say: Say) -> Lab:
    """The whole lab, with the vLLM images and the models: minutes the first time, then nothing."""
    lab.up(say, keep=False)
    return lab


@pytest.fixture(scope="session")
def rig(lab: Lab, say: Say) -> Iterator[Rig]:
    """Two hosts and a desk, fresh when the session first asks for them; with busybox. Tests put back what they change.

    Images of the lab come by `load_image`: vLLM takes two minutes the first time, then nothing.
    """
    with available(lab.rig.lease(say)):
        yield lab.rig


@pytest.fixture(scope="class")
def rdma_rig(rig: Rig, say: Say) -> Iterator[Rig]:
    """The same, booted afresh with the files of a Spark's network cards in /sys; without them again afterwards."""
    rig.up(say, rdma=True)
    yield rig
    rig.up(say)


@pytest.fixture(scope="session")
def engine(lab: Lab) -> PrivateEngine:
    """The shared engine, which has busybox; with `vllm_lab` also vLLM. Tests use names of their own in it."""
    return lab.engine


@pytest.fixture(scope="session")
def docker_host(engine: PrivateEngine) -> str:
    """The shared engine's DOCKER_HOST."""
    return engine.host


@pytest.fixture(scope="session")
def registry(lab: Lab) -> PrivateRegistry:
    """The shared registry, open to all."""
    return lab.registry


@pytest.fixture(scope="session")
def model_store(vllm_lab: Lab) -> Path:
    """The folder that holds the models tiny, smollm2 and smollm2-think."""
    return vllm_lab.store


@pytest.fixture
def locked_registry(lab: Lab, tmp_path: Path) -> Iterator[PrivateRegistry]:
    """A registry that answers 401 to those who do not log in."""
    registry = PrivateRegistry(tmp_path / "registry", lab.toolbox, password=True)
    registry.start()
    try:
        yield registry
    finally:
        registry.purge()


@pytest.fixture
def make_engine(lab: Lab, tmp_path: Path) -> Iterator[MakeEngine]:
    """Starts engines of one test's own, with busybox, to be restarted, crashed and starved at will.

    Takes PrivateEngine's options `gpu` and `live_restore`.
    """
    made: list[PrivateEngine] = []

    def make(*, gpu: bool = True, live_restore: bool = False) -> PrivateEngine:
        engine = PrivateEngine(tmp_path / f"engine{len(made)}", lab.toolbox, gpu=gpu, live_restore=live_restore)
        made.append(engine)
        try:
            engine.start()
        except LabUnavailable as error:
            pytest.skip(str(error))
        ensure_busybox(engine, lab.toolbox)
        return engine

    try:
        yield make
    finally:
        for engine in made:
            engine.purge()


@pytest.fixture
def plain_engine(make_engine: MakeEngine) -> PrivateEngine:
    """An engine on a machine without NVIDIA's toolkit: it refuses `--gpus`."""
    return make_engine(gpu=False)


@pytest.fixture(scope="session")
def take_port() -> Callable[[], int]:
    """Hands out TCP ports of 127.0.0.1, each once: a port asked for later is never one given earlier."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = FIRST_PORT + worker * PORTS_PER_WORKER
    candidates = iter(range(first, first + PORTS_PER_WORKER))
    return lambda: next(port for port in candidates if unused(port))


@pytest.fixture
def free_port(take_port: Callable[[], int]) -> int:
    """A TCP port of this test's own."""
    return take_port()


def unused(port: int) -> bool:
    """Whether the port can be listened on."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture
def container_name(request: pytest.FixtureRequest, engine: PrivateEngine) -> Iterator[str]:
    """A container name of this test's own in the shared engine; what bears it is removed at the end."""
    name = f"test-{fingerprint(request.node.nodeid)[:8]}"
    engine.try_docker("rm", "--force", "--volumes", name)
    yield name
    engine.try_docker("rm", "--force", "--volumes", name)
