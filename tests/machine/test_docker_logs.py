"""Following a log: nothing lost, nothing repeated, memory bounded, cancel at once. Against a scripted daemon."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from spark_tui.base.errors import ContainerNotFound, DaemonNotRunning, DockerError, StreamBroken, UsageError
from spark_tui.base.ports import LogLine
from spark_tui.machine.docker.engine import DockerEngine
from spark_tui.machine.docker.wire import since_query
from tests.machine.fake_docker import FakeDocker, Request, daemon, frame, inspected, stamp, until

__all__ = ["daemon"]
Entry = tuple[int, bytes]
"""Nanoseconds after noon, and the line with its newline."""


class ScriptedLog:
    """A container's log as the daemon keeps it.

    `cuts` are the bytes after which the connections are cut in turn; the container ends once all have been.
    """

    def __init__(self, daemon: FakeDocker, entries: list[Entry], *, cuts: list[int] | None = None) -> None:
        self.entries = entries
        self.cuts = cuts or []
        self.ends = bool(cuts)
        self.status = "running"
        self.sent = 0
        self.more = threading.Event()
        self.queries: list[dict[str, str]] = []
        daemon.routes["GET /containers/x/json"] = self.inspect
        daemon.routes[f"GET /containers/{inspected()['Id']}/json"] = self.inspect
        daemon.routes[f"GET /containers/{inspected()['Id']}/logs"] = self.serve

    def inspect(self, request: Request) -> None:
        ended = self.ends and not self.cuts
        request.json(inspected(status="exited" if ended else self.status))

    def serve(self, request: Request) -> None:
        query = request.query
        self.queries.append(query)
        since = query.get("since", "")
        entries = [entry for entry in self.entries if not since or since_query(stamp(entry[0])) >= since]
        entries = entries[-int(query["tail"]) :] if "tail" in query else entries
        data = b"".join(frame(stamp(at), text) for at, text in entries)
        cut = self.cuts.pop(0) if self.cuts else None
        request.begin()
        for at in range(0, len(data), 65_536):
            chunk = data[at : at + 65_536] if cut is None else data[at : min(at + 65_536, cut)]
            request.wfile.write(chunk)
            self.sent += len(chunk)
        if cut is None and query.get("follow"):
            self.more.wait(20)

    def end(self) -> None:
        """The container exits."""
        self.status = "exited"
        self.more.set()


@pytest.fixture
async def engine(daemon: FakeDocker) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(daemon.environ(), away_seconds=0.5)
    yield engine
    await engine.close()


async def read(engine: DockerEngine, **options: object) -> list[LogLine]:
    lines: list[LogLine] = []
    async with aclosing(engine.logs("x", **options)) as batches:  # type: ignore[arg-type]
        async for batch in batches:
            lines.extend(batch)
    return lines


EARLIER: set[threading.Thread] = set()
"""What tests of other files left to wait for a daemon that is no more."""


@pytest.fixture(autouse=True)
def _threads_of_this_test() -> None:
    EARLIER.clear()
    EARLIER.update(log_threads())


def log_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "docker-log" and each not in EARLIER]


def numbered(count: int, step: int = 1000) -> list[Entry]:
    return [(i * step, b"line %d\n" % i) for i in range(1, count + 1)]


# --- nothing lost, nothing repeated -------------------------------------------------------------------


async def test_an_ended_container_is_read_once_and_to_its_end(daemon: FakeDocker, engine: DockerEngine) -> None:
    log = ScriptedLog(daemon, [*numbered(5000), (9_999_999_999, b"no newline")])
    log.status = "exited"
    lines = await read(engine)
    assert [line.text for line in lines] == [*(f"line {i}" for i in range(1, 5001)), "no newline"]
    assert [query.get("follow") for query in log.queries] == [None]


async def test_a_log_that_is_not_followed_costs_one_request_once_its_container_is_listed(
    daemon: FakeDocker, engine: DockerEngine
) -> None:
    ScriptedLog(daemon, numbered(3))
    daemon.routes["GET /containers/json"] = lambda request: request.json([{"Id": inspected()["Id"]}])
    (found,) = await engine.containers()
    before = len(daemon.requests)
    async with aclosing(engine.logs(found.id, follow=False)) as batches:
        assert [line.text async for batch in batches for line in batch] == ["line 1", "line 2", "line 3"]
    assert [request.path.rpartition("/")[2].partition("?")[0] for request in daemon.requests[before:]] == ["logs"]


async def test_what_a_container_says_as_it_ends_is_read(daemon: FakeDocker, engine: DockerEngine) -> None:
    log = ScriptedLog(daemon, numbered(3))
    reading = asyncio.create_task(read(engine))
    await until(lambda: log.queries)
    log.entries.append((10**9, b"bye"))  # written behind the follower's back, as the connection ends
    log.end()
    assert [line.text for line in await reading] == ["line 1", "line 2", "line 3", "bye"]


async def test_connections_cut_anywhere_lose_and_repeat_nothing(daemon: FakeDocker, engine: DockerEngine) -> None:
    ScriptedLog(daemon, numbered(200, step=3_000_000), cuts=[3000, 5, 0, 1777])
    assert [line.text for line in await read(engine)] == [f"line {i}" for i in range(1, 201)]


async def test_a_daemon_on_a_port_is_read_the_same_way() -> None:
    fake = FakeDocker(tcp=True)
    fake.start()
    engine = DockerEngine(fake.environ())
    log = ScriptedLog(fake, numbered(5000))
    try:
        batches = engine.logs("x")
        lines = list(await anext(batches))
        while len(lines) < 5000:
            lines += await anext(batches)
        assert [line.text for line in lines] == [f"line {i}" for i in range(1, 5001)]
        await batches.aclose()
        await until(lambda: not log_threads(), 0.5)
    finally:
        log.end()
        await engine.close()
        fake.close()


async def test_a_daemon_that_comes_back_is_read_on(daemon: FakeDocker, engine: DockerEngine) -> None:
    log = ScriptedLog(daemon, numbered(100, step=50_000_000))
    engine = DockerEngine(daemon.environ(), away_seconds=20)
    lines: list[LogLine] = []
    async with aclosing(engine.logs("x")) as batches:
        lines.extend(await anext(batches))
        daemon.stop()
        log.entries += [((100 + i) * 50_000_000, b"line %d\n" % (100 + i)) for i in range(1, 51)]
        await asyncio.sleep(0.3)
        daemon.start()
        while len(lines) < 150:
            lines.extend(await anext(batches))
        log.end()
        async for batch in batches:
            lines.extend(batch)
    assert [line.text for line in lines] == [f"line {i}" for i in range(1, 151)]
    assert log.queries[1]["since"].endswith("4.900000000")  # a tenth of a second before the last line
    await engine.close()


async def test_a_container_that_restarts_is_followed_on(daemon: FakeDocker, engine: DockerEngine) -> None:
    log = ScriptedLog(daemon, numbered(2), cuts=[10_000])
    log.ends = False
    reading = asyncio.create_task(read(engine))
    await until(lambda: len(log.queries) > 1)
    log.entries.append((10**10, b"again\n"))
    log.end()
    assert [line.text for line in await reading] == ["line 1", "line 2", "again"]


async def test_a_container_that_is_removed_ends_its_log_even_if_its_name_goes_on(
    daemon: FakeDocker, engine: DockerEngine
) -> None:
    log = ScriptedLog(daemon, [*numbered(2), (10**9, b"half a line")])
    reading = asyncio.create_task(read(engine))
    await until(lambda: log.queries)
    del daemon.routes[f"GET /containers/{inspected()['Id']}/json"]
    daemon.routes["GET /containers/x/json"] = inspected(Id="f" * 64)
    log.more.set()
    assert [line.text for line in await reading] == ["line 1", "line 2", "half a line"]


async def test_since_means_later_lines_only(daemon: FakeDocker, engine: DockerEngine) -> None:
    log = ScriptedLog(daemon, numbered(5))
    log.status = "exited"
    assert [line.text for line in await read(engine, since=stamp(3000))] == ["line 4", "line 5"]
    assert log.queries[0]["since"].endswith(".000003000")
    log = ScriptedLog(daemon, numbered(3, step=10**9))
    log.status = "exited"
    assert [line.text for line in await read(engine, since="2026-11-21T12:00:02+00:00")] == ["line 3"]
    with pytest.raises(UsageError, match="not a log time"):
        await read(engine, since="yesterday")


async def test_tail_brings_no_older_lines_after_a_break(daemon: FakeDocker, engine: DockerEngine) -> None:
    log = ScriptedLog(daemon, numbered(50), cuts=[3 * (8 + 31 + 8)])
    lines = await read(engine, tail=10)
    assert [line.text for line in lines] == [f"line {i}" for i in range(41, 51)]
    assert [query.get("tail") for query in log.queries] == ["10", None]


# --- bounds -------------------------------------------------------------------------------------------


async def test_a_slow_reader_holds_the_daemon_back(daemon: FakeDocker, engine: DockerEngine) -> None:
    log = ScriptedLog(daemon, [(i, b"x" * 1000 + b"\n") for i in range(100_000)])  # 100 MB
    async with aclosing(engine.logs("x")) as batches:
        got = len(await anext(batches))
        sizes = []
        for _ in range(20):
            await asyncio.sleep(0.02)
            sizes.append(log.sent)
        assert sizes[-1] == sizes[-5]  # it has stopped sending
        assert sizes[-1] < 8 * 1024**2
        async for batch in batches:
            got += len(batch)
            assert len(batch) < 10_000
            if got > 50_000:
                break
        assert log.sent < 80 * 1024**2


@pytest.mark.parametrize("when", ["idle", "a slow reader", "daemon away", "cancelled"])
async def test_closing_ends_the_thread_and_the_connection_at_once(daemon: FakeDocker, when: str) -> None:
    engine = DockerEngine(daemon.environ(), away_seconds=30)
    many = [(i, b"x" * 1000 + b"\n") for i in range(50_000)]
    log = ScriptedLog(daemon, many if when == "a slow reader" else numbered(3))
    batches = engine.logs("x")
    reading = asyncio.create_task(read(engine) if when == "cancelled" else anext(batches))  # type: ignore[arg-type]
    await until(lambda: log.queries and log_threads() and (when == "cancelled" or reading.done()))
    (thread,) = log_threads()
    if when == "daemon away":
        daemon.stop()
        await asyncio.sleep(0.1)
    began = time.monotonic()
    if when == "cancelled":
        reading.cancel()
        await asyncio.wait((reading,))
    await batches.aclose()
    await until(lambda: not thread.is_alive(), 0.5)
    assert time.monotonic() - began < 0.5
    await engine.close()


async def test_closing_the_engine_ends_every_stream(daemon: FakeDocker, engine: DockerEngine) -> None:
    ScriptedLog(daemon, numbered(3))
    first, second = engine.logs("x"), engine.logs("x")
    await anext(first)
    await anext(second)
    await engine.close()
    assert not log_threads()
    assert [batch async for batch in first] == [batch async for batch in second] == []


async def test_a_trickle_is_delivered_promptly(daemon: FakeDocker, engine: DockerEngine) -> None:
    arrived: list[float] = []
    sent: list[float] = []

    def trickle(request: Request) -> None:
        request.begin()
        for i in range(10):
            time.sleep(0.03)
            sent.append(time.monotonic())
            request.wfile.write(frame(stamp(i), b"drop\n"))

    log = ScriptedLog(daemon, [])
    daemon.routes[f"GET /containers/{inspected()['Id']}/logs"] = trickle
    log.status = "exited"
    async with aclosing(engine.logs("x")) as batches:
        async for batch in batches:
            arrived += [time.monotonic()] * len(batch)
    delays = sorted(there - here for here, there in zip(sent, arrived, strict=True))
    assert delays[len(delays) // 2] < 0.05


# --- failures -----------------------------------------------------------------------------------------


async def test_a_daemon_that_stays_away_breaks_the_stream(daemon: FakeDocker, engine: DockerEngine) -> None:
    ScriptedLog(daemon, numbered(3))
    batches = engine.logs("x")
    await anext(batches)
    daemon.stop()
    with pytest.raises(StreamBroken) as caught:
        await anext(batches)
    assert "log of x broke off" in caught.value.summary
    assert "Containers keep running" in caught.value.remedy


async def test_a_stream_that_is_always_damaged_is_given_up(daemon: FakeDocker, engine: DockerEngine) -> None:
    log = ScriptedLog(daemon, [])
    log.status = "exited"

    def garbage(request: Request) -> None:
        request.begin()
        request.wfile.write(b"\x09not a frame at all")

    daemon.routes[f"GET /containers/{inspected()['Id']}/logs"] = garbage
    with pytest.raises(StreamBroken):
        await read(engine)


async def test_unknown_containers_and_absent_daemons_say_so_at_once(daemon: FakeDocker, engine: DockerEngine) -> None:
    with pytest.raises(ContainerNotFound):
        await read(engine)
    daemon.stop()
    with pytest.raises(DaemonNotRunning, match="Docker is not running"):
        await read(engine)


@pytest.mark.parametrize("how", ["driver", "damaged"])
async def test_a_log_that_cannot_be_read_is_explained(daemon: FakeDocker, engine: DockerEngine, how: str) -> None:
    ScriptedLog(daemon, [])
    text = b"Error grabbing logs: invalid character"

    def complaint(request: Request) -> None:
        if how == "driver":
            request.json({"message": "configured logging driver does not support reading"}, 501)
        else:
            request.begin()
            request.wfile.write(b"\x03\0\0\0\0\0\0" + bytes([len(text)]) + text)

    daemon.routes[f"GET /containers/{inspected()['Id']}/logs"] = complaint
    with pytest.raises(DockerError) as caught:
        await read(engine)
    said = {"driver": "its log driver sends it elsewhere", "damaged": "invalid character"}[how]
    assert said in caught.value.summary + caught.value.detail
