"""Logs of real containers: every line once, through restarts and crashes of the daemon, whatever they contain."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import pytest

from spark_tui.base import errors
from spark_tui.base.engine.container import ContainerSpec
from spark_tui.base.ports import MAX_LINE_CHARS, LogLine
from spark_tui.machine.docker.engine import DockerEngine
from tests.real.lab import PrivateEngine
from tests.real.lab.images import BUSYBOX

MakeEngine = Callable[..., PrivateEngine]

COUNT_FAST = "i=0; while :; do i=$((i+1)); echo line $i; [ $((i % 50)) = 0 ] && usleep 5000; done"


@pytest.fixture
async def docker(engine: PrivateEngine) -> AsyncIterator[DockerEngine]:
    """The adapter on the shared engine."""
    adapter = DockerEngine(engine.environ())
    yield adapter
    await adapter.close()


async def run(docker: DockerEngine, name: str, script: str) -> None:
    await docker.create(ContainerSpec(name, BUSYBOX, ("sh", "-c", script)))
    await docker.start(name)


async def read(docker: DockerEngine, name: str, **options: object) -> list[LogLine]:
    async with aclosing(docker.logs(name, **options)) as batches:  # type: ignore[arg-type]
        return [line async for batch in batches for line in batch]


async def test_stdout_and_stderr_are_followed_to_the_end(docker: DockerEngine, container_name: str) -> None:
    script = "for i in 1 2 3; do echo out $i; sleep 0.1; echo err $i >&2; sleep 0.1; done; printf 'no newline'"
    await run(docker, container_name, script)
    began = time.time()
    lines = await read(docker, container_name)
    assert [line.text for line in lines] == ["out 1", "err 1", "out 2", "err 2", "out 3", "err 3", "no newline"]
    assert [line.stamp for line in lines] == sorted(line.stamp for line in lines)
    assert abs(datetime.fromisoformat(lines[-1].stamp).timestamp() - began) < 5


async def test_tail_and_since(docker: DockerEngine, container_name: str) -> None:
    await run(docker, container_name, "for i in 1 2 3 4 5; do echo line $i; done")
    lines = await read(docker, container_name)
    assert [line.text for line in await read(docker, container_name, tail=2)] == ["line 4", "line 5"]
    assert await read(docker, container_name, tail=0) == []
    assert await read(docker, container_name, since=lines[2].stamp, follow=False) == lines[3:]
    assert await read(docker, container_name, since=lines[0].stamp, tail=2, follow=False) == lines[3:]


async def test_a_terminals_long_lines_with_bad_bytes_hold_no_stamps(
    engine: PrivateEngine, docker: DockerEngine, container_name: str
) -> None:
    script = "head -c 200000 /dev/urandom | tr -d '\\r\\n'; echo; echo end"
    engine.docker("run", "--detach", "--tty", "--name", container_name, BUSYBOX, "sh", "-c", script)
    lines = await read(docker, container_name)
    assert lines[-1].text == "end"
    assert lines[0].stamp not in "".join(line.text for line in lines)


@pytest.mark.parametrize("terminal", [False, True], ids=["plain", "terminal"])
async def test_a_line_of_a_megabyte(
    engine: PrivateEngine, docker: DockerEngine, container_name: str, terminal: bool
) -> None:
    script = "head -c 1048576 /dev/zero | tr '\\0' a; echo; head -c 40000 /dev/zero | tr '\\0' b; echo; printf end"
    flags = ["--tty"] if terminal else []
    engine.docker("run", "--detach", *flags, "--name", container_name, BUSYBOX, "sh", "-c", script)
    lines = await read(docker, container_name)
    assert [len(line.text) for line in lines] == [MAX_LINE_CHARS, 40_000, 3]
    assert "1,048,57" in lines[0].text[-40:]
    assert lines[1].text == "b" * 40_000
    assert lines[2].text == "end"


async def test_a_line_of_many_bytes_is_put_together_again(
    engine: PrivateEngine, docker: DockerEngine, container_name: str
) -> None:
    """Characters of three bytes do not fall on the borders of 16 KiB parts. (Docker's JSON log damages them there.)"""
    script = "yes '…' | head -n 20000 | tr -d '\\n'; echo"
    engine.docker("run", "--detach", "--log-driver", "local", "--name", container_name, BUSYBOX, "sh", "-c", script)
    (line,) = await read(docker, container_name)
    assert line.text == "…" * 20_000


async def test_hostile_bytes_come_through_as_text(docker: DockerEngine, container_name: str) -> None:
    await run(docker, container_name, r"printf '\033[31mred\007 \377\376 [/red]\r\033]0;t\007\nnext\n'")
    lines = await read(docker, container_name)
    assert [line.text for line in lines] == ["\x1b[31mred\x07 \ufffd\ufffd [/red]\r\x1b]0;t\x07", "next"]


async def test_random_bytes_break_nothing(docker: DockerEngine, container_name: str) -> None:
    await run(docker, container_name, "head -c 3000000 /dev/urandom; echo; echo the end")
    lines = await read(docker, container_name)
    assert lines[-1].text == "the end"
    assert all(len(line.text) <= MAX_LINE_CHARS and "\n" not in line.text for line in lines)


async def test_a_flood_loses_nothing(docker: DockerEngine, container_name: str) -> None:
    await run(docker, container_name, "yes 'a line of some fifty characters, as logs have them' | head -n 200000 | nl")
    numbers = [int(line.text.split()[0]) for line in await read(docker, container_name)]
    assert numbers == list(range(1, 200_001))


async def test_a_slow_reader_loses_nothing_and_memory_stays_bounded(docker: DockerEngine, container_name: str) -> None:
    await run(docker, container_name, "yes 'a line of some fifty characters, as logs have them' | head -n 300000 | nl")
    numbers: list[int] = []
    before = resident()
    most = 0
    async with aclosing(docker.logs(container_name)) as batches:
        async for batch in batches:
            numbers += [int(line.text.split()[0]) for line in batch]
            if len(numbers) < 100_000:
                await asyncio.sleep(0.02)
            most = max(most, resident() - before)
    assert numbers == list(range(1, 300_001))
    assert most < 60 * 1024**2


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_line_arrives_as_promptly_as_with_dockers_own_program(
    engine: PrivateEngine, docker: DockerEngine, container_name: str
) -> None:
    await run(docker, container_name, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; usleep 150000; done")

    async def ours() -> list[float]:
        async with aclosing(docker.logs(container_name)) as batches:
            return [late(batch[-1].stamp) async for batch in batches]

    async def theirs() -> list[float]:
        words = engine.docker_argv("logs", "--follow", "--timestamps", container_name)
        program = await asyncio.create_subprocess_exec(*words, env=engine.environ(), stdout=asyncio.subprocess.PIPE)
        assert program.stdout is not None
        found = [late(line.decode().partition(" ")[0]) async for line in program.stdout]
        await program.wait()
        return found

    delays = [sorted(found)[len(found) // 2] for found in await asyncio.gather(ours(), theirs())]
    assert delays[0] < 0.05 + 2 * delays[1]


def late(stamp: str) -> float:
    return time.time() - datetime.fromisoformat(stamp).timestamp()


async def test_closing_ends_the_thread_at_once(docker: DockerEngine, container_name: str) -> None:
    await run(docker, container_name, "echo up; sleep 1000")
    batches = docker.logs(container_name)
    await anext(batches)
    began = time.monotonic()
    await batches.aclose()
    while any(thread.name == "docker-log" for thread in threading.enumerate()):
        await asyncio.sleep(0.005)
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
async def test_nothing_is_lost_or_repeated_through_a_restart_of_the_daemon(
    make_engine: MakeEngine, crash: bool
) -> None:
    engine = make_engine(live_restore=True)
    docker = DockerEngine(engine.environ())
    await run(docker, "counter", COUNT_FAST)
    numbers: list[int] = []
    restarts = 0
    async with aclosing(docker.logs("counter")) as batches:
        async for batch in batches:
            numbers += [int(line.text.split()[1]) for line in batch]
            if len(numbers) > 5_000 * (restarts + 1) and restarts < 2:
                restarts += 1
                await asyncio.to_thread(engine.restart, crash=crash)
                reached = len(numbers)
            if restarts == 2 and len(numbers) > reached + 5_000:
                break
    kept = [int(line.split()[1]) for line in engine.docker("logs", "counter").splitlines()]
    # All that Docker kept, in order and once. Docker itself may drop lines that it has read and not yet written: killed
    # often, asked to end once in a while.
    assert numbers == kept[: len(numbers)]
    assert numbers == sorted(set(numbers))
    await docker.close()


async def test_without_live_restore_the_log_ends_with_its_container(make_engine: MakeEngine) -> None:
    engine = make_engine()
    docker = DockerEngine(engine.environ())
    await run(docker, "counter", f"trap 'echo bye; exit' TERM; {COUNT_FAST}")
    texts: list[str] = []
    restarting = None
    async with aclosing(docker.logs("counter")) as batches:
        async for batch in batches:
            texts += [line.text for line in batch]
            if restarting is None and len(texts) > 1000:
                restarting = asyncio.create_task(asyncio.to_thread(engine.restart))
    assert restarting is not None
    await restarting
    assert texts[-1] == "bye"
    assert texts[:-1] == [f"line {i}" for i in range(1, len(texts))]
    await docker.close()


async def test_a_daemon_that_stays_away_breaks_the_stream(make_engine: MakeEngine) -> None:
    engine = make_engine()
    docker = DockerEngine(engine.environ(), away_seconds=1)
    await run(docker, "counter", "echo up; sleep 1000")
    batches = docker.logs("counter")
    await anext(batches)
    await asyncio.to_thread(engine.pause_daemon)
    with pytest.raises(errors.StreamBroken, match="Docker does not answer for 1 s"):
        await anext(batches)
    await docker.close()


async def test_a_crash_loop_is_followed_from_start_to_start(
    engine: PrivateEngine, docker: DockerEngine, container_name: str
) -> None:
    script = "echo start; printf crash; exit 1"
    engine.docker("run", "--detach", "--restart", "on-failure:3", "--name", container_name, BUSYBOX, "sh", "-c", script)
    lines = await read(docker, container_name)
    assert [line.text for line in lines] == ["start", "crash"] * 4


async def test_a_container_removed_while_it_is_followed_ends_its_log(docker: DockerEngine, container_name: str) -> None:
    await run(docker, container_name, "echo up; sleep 1000")
    batches = docker.logs(container_name)
    assert [line.text for line in await anext(batches)] == ["up"]
    removing = asyncio.create_task(docker.remove(container_name, force=True))
    assert [batch async for batch in batches] == []
    await removing


async def test_a_log_that_goes_elsewhere_is_explained(
    engine: PrivateEngine, docker: DockerEngine, container_name: str
) -> None:
    engine.docker("run", "--detach", "--log-driver", "none", "--name", container_name, BUSYBOX, "echo", "x")
    with pytest.raises(errors.DockerError, match="its log driver sends it elsewhere"):
        await read(docker, container_name)


@pytest.mark.parametrize("driver", ["local", "json-file"])
async def test_the_usual_log_drivers_give_the_same_lines(
    engine: PrivateEngine, docker: DockerEngine, container_name: str, driver: str
) -> None:
    script = "head -c 20000 /dev/zero | tr '\\0' a; echo; echo two; echo; echo four"
    engine.docker("run", "--detach", "--log-driver", driver, "--name", container_name, BUSYBOX, "sh", "-c", script)
    assert [line.text for line in await read(docker, container_name)] == ["a" * 20_000, "two", "", "four"]


async def test_a_container_that_never_started_has_an_empty_log(docker: DockerEngine, container_name: str) -> None:
    await docker.create(ContainerSpec(container_name, BUSYBOX, ("true",)))
    assert await read(docker, container_name) == []
