"""The metrics client against a real server on this machine: good pages, and everything that is none."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable

import pytest

from spark_tui.base.engine.metrics_page import Family
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import ApiKeyRejected, EngineFailed, EngineUnreachable, MetricsUnavailable, SparkError
from spark_tui.base.secret import Secret
from spark_tui.machine.engine_api import MAX_PAGE_BYTES, HttpMetrics
from tests import metric_fixtures as pages

KEY = "planted-key"


class Server:
    """Answers every request with the same bytes, or as `write` does; remembers the heads of the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.connections = 0
        self.url = ""
        self.write: Callable[[asyncio.StreamWriter], bool] = lambda _: False

    def says(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        head = b"HTTP/1.1 %d X\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, kind.encode(), len(body))

        def write(writer: asyncio.StreamWriter) -> bool:
            writer.write(head + body)
            return True

        self.write = write

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
                if not self.write(writer):
                    await reader.read()  # silence, until the client goes away
                    break
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def endpoint(self, runtime: str = "vllm", key: Secret | None = None) -> Endpoint:
        return Endpoint(self.url, key, runtime)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield server
    listening.close()


@pytest.fixture
async def client() -> AsyncIterator[HttpMetrics]:
    client = HttpMetrics(read_seconds=1.0)
    yield client
    await client.close()


async def failure(client: HttpMetrics, endpoint: Endpoint) -> SparkError:
    with pytest.raises(SparkError) as caught:
        await client.read(endpoint)
    return caught.value


# --- good pages ---------------------------------------------------------------------------------------


async def test_a_real_page_over_one_connection(server: Server, client: HttpMetrics) -> None:
    server.says(200, pages.text("tiny-after"))
    for _ in range(3):
        page = await client.read(server.endpoint())
        assert page == pages.page("tiny-after")
    assert server.connections == 1
    assert server.asked[0].startswith("GET /metrics HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("runtime", "path", "body"),
    [
        ("sglang", "/metrics", pages.SGLANG),
        ("llama-cpp", "/metrics", pages.LLAMA_CPP),
        ("trtllm", "/prometheus/metrics", pages.TRTLLM),
    ],
)
async def test_other_servers_are_asked_where_they_publish(
    runtime: str, path: str, body: str, server: Server, client: HttpMetrics
) -> None:
    server.says(200, body.encode())
    page = await client.read(server.endpoint(runtime))
    assert page.has(Family.RUNNING)
    assert server.asked[0].split()[1] == path


async def test_a_key_goes_into_its_header_and_into_no_error(server: Server, client: HttpMetrics) -> None:
    server.says(401, b'{"error": "Unauthorized"}')
    error = await failure(client, server.endpoint("llama-cpp", Secret(KEY)))
    assert f"Authorization: Bearer {KEY}\r\n" in server.asked[0]
    assert isinstance(error, ApiKeyRejected)
    assert KEY not in f"{error!r} {error} {error.detail}"


# --- what is none -------------------------------------------------------------------------------------


async def test_a_dead_server(client: HttpMetrics) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = Endpoint(f"http://127.0.0.1:{free.getsockname()[1]}")
    error = await failure(client, nobody)
    assert isinstance(error, EngineUnreachable)
    assert error.summary.startswith("Nothing answers at")


async def test_a_server_that_hangs_is_given_up(server: Server, client: HttpMetrics) -> None:
    began = time.monotonic()
    error = await failure(client, server.endpoint())
    assert isinstance(error, EngineUnreachable)
    assert "has not answered for 1s" in error.summary
    assert time.monotonic() - began < 3


async def test_a_page_that_dribbles_is_given_up(server: Server, client: HttpMetrics) -> None:
    async def dribble(writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"#")
            await asyncio.sleep(0.05)

    tasks: list[asyncio.Task[None]] = []

    def write(writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        tasks.append(asyncio.ensure_future(dribble(writer)))
        return True

    server.write = write
    assert isinstance(await failure(client, server.endpoint()), EngineUnreachable)
    for task in tasks:
        task.cancel()


async def test_a_page_of_50_mb_is_not_read_to_its_end(server: Server, client: HttpMetrics) -> None:
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        line = b'vllm:num_requests_running{engine="0"} 1\n' * 1000
        try:
            while sent < 50_000_000:
                writer.write(line)
                sent += len(line)
                await writer.drain()
        except ConnectionError:
            return

    floods: list[asyncio.Task[None]] = []

    def write(writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        floods.append(asyncio.ensure_future(flood(writer)))
        return True

    server.write = write
    error = await failure(client, server.endpoint())
    await asyncio.gather(*floods)
    assert isinstance(error, EngineFailed)
    assert "more than 8.0 MiB" in error.summary
    assert sent < 3 * MAX_PAGE_BYTES


@pytest.mark.parametrize(
    "body", [b"", b"<html>Router</html>", b'{"iter": 1}', b"\xff\x00" * 500, b"python_info 1.0\n"], ids=repr
)
async def test_what_is_no_metrics_page_says_so(body: bytes, server: Server, client: HttpMetrics) -> None:
    server.says(200, body)
    error = await failure(client, server.endpoint())
    assert isinstance(error, EngineFailed)
    assert "no engine metrics" in error.summary
    assert "--disable-log-stats" in error.remedy


@pytest.mark.parametrize(
    ("runtime", "status", "option"),
    [("llama-cpp", 501, "--metrics"), ("sglang", 404, "--enable-metrics"), ("trtllm", 404, "return_perf_metrics")],
)
async def test_a_server_without_metrics_says_what_turns_them_on(
    runtime: str, status: int, option: str, server: Server, client: HttpMetrics
) -> None:
    server.says(status, b'{"error": "This server does not support metrics endpoint."}')
    error = await failure(client, server.endpoint(runtime))
    assert isinstance(error, MetricsUnavailable)
    assert error.remedy == f"Start it with {option}."


async def test_a_server_that_never_publishes_is_not_asked(server: Server, client: HttpMetrics) -> None:
    error = await failure(client, server.endpoint("ollama"))
    assert isinstance(error, MetricsUnavailable)
    assert server.asked == []


async def test_an_engine_that_is_dead_behind_its_server(server: Server, client: HttpMetrics) -> None:
    server.says(500, b"Internal Server Error")
    assert isinstance(await failure(client, server.endpoint()), EngineFailed)


@pytest.mark.parametrize("address", ["http://127.0.0.1:99999", "ftp://127.0.0.1", "nonsense"])
async def test_an_address_that_is_none(address: str, client: HttpMetrics) -> None:
    assert isinstance(await failure(client, Endpoint(address)), EngineUnreachable)
