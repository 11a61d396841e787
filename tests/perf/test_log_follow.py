"""What following a flood of log lines costs, beside `docker logs -f` on the same engine in the same run."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from spark_tui.machine.docker.engine import DockerEngine
from tests.real.lab import Lab, LabUnavailable, PrivateEngine
from tests.real.lab.images import BUSYBOX

LINE = "(EngineCore pid=199) INFO 05-21 21:03:31 [core.py:109] a usual line of log, of about a hundred characters"
TARGET = 20_000
"""Lines a second; the shell that writes them comes near it, and shares are scaled to it."""
SECONDS = 4.0
BACKLOG = 200_000


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    """The lab's engine."""
    lab = Lab()
    try:
        with lab.lease(lambda text: None):
            yield lab.engine
    except LabUnavailable as error:
        if os.environ.get("SPARK_TUI_REAL") == "required":
            pytest.fail(f"SPARK_TUI_REAL=required, but the lab cannot run: {error}", pytrace=False)
        pytest.skip(str(error))


@pytest.fixture
def container(engine: PrivateEngine) -> Iterator[str]:
    """A container name of this file's own."""
    name = "perf-log"
    engine.try_docker("rm", "--force", name)
    yield name
    engine.try_docker("rm", "--force", name)


def children_seconds() -> float:
    """CPU time of the programs that have been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def resident() -> float:
    """MiB that this process holds at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def test_a_flood_costs_a_small_share_of_a_core(engine: PrivateEngine, container: str) -> None:
    script = (
        f"i=0; while [ $i -lt 200 ]; do echo '{LINE}'; i=$((i+1)); done > /tmp/lines; "
        "while :; do cat /tmp/lines; usleep 8500; done"
    )
    engine.docker("run", "--detach", "--name", container, BUSYBOX, "sh", "-c", script)
    docker = DockerEngine(engine.environ())
    lines = batches = 0
    before = resident()
    async with aclosing(docker.logs(container, tail=0)) as stream:
        await anext(stream)
        began, used = time.perf_counter(), time.process_time()
        async for batch in stream:
            lines, batches = lines + len(batch), batches + 1
            if time.perf_counter() - began > SECONDS:
                break
        took, used = time.perf_counter() - began, time.process_time() - used
    await docker.close()
    rate, share = lines / took, used / took
    theirs_began, theirs = time.perf_counter(), children_seconds()
    words = [*("docker", "logs", "--follow", "--tail", "0"), container]
    reader = subprocess.Popen(words, env=engine.environ(), stdout=subprocess.DEVNULL)
    with reader:
        time.sleep(SECONDS)
        reader.terminate()
    theirs = (children_seconds() - theirs) / (time.perf_counter() - theirs_began)
    scaled = share * TARGET / rate
    print(f"\n{rate:,.0f} lines/s in {batches / took:.0f} batches/s: {share:.1%} of a core,", end=" ")
    print(f"{scaled:.1%} at {TARGET:,}; docker logs -f {theirs:.1%}; +{resident() - before:.1f} MiB", end="")
    assert rate > TARGET / 10
    assert scaled < 0.3
    assert resident() - before < 40


async def test_a_long_log_is_read_about_as_fast_as_by_the_docker_program(engine: PrivateEngine, container: str) -> None:
    engine.docker("run", "--name", container, BUSYBOX, "sh", "-c", f"yes '{LINE}' | head -n {BACKLOG} >&2")
    docker = DockerEngine(engine.environ())
    began, used, lines = time.perf_counter(), time.process_time(), 0
    async with aclosing(docker.logs(container)) as stream:
        async for batch in stream:
            lines += len(batch)
    took, used = time.perf_counter() - began, time.process_time() - used
    await docker.close()
    began = time.perf_counter()
    subprocess.run(
        ["docker", "logs", container], env=engine.environ(), check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    theirs = time.perf_counter() - began
    print(
        f"\n{BACKLOG:,} lines in {took:.2f} s, {used:.2f} s of a core; docker logs {theirs:.2f} s: {took / theirs:.2f}x"
    )
    assert lines == BACKLOG
    assert took < 4 * theirs
