"""The gateway as a process, under what anybody on the network can do to it without a key."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from spark_tui.base.executors import in_thread
from tests.gateway_kit import EVENT, Upstreamer
from tests.pty_app import spark_tui

MIB = 1024 * 1024
MOST_RSS = 150 * MIB
MOST_SECONDS = 0.5
MOST_TIMES = 10
"""As long as the slowest answer before the attack: on a busy machine that is more than half a second."""
TRIES = 20
BODY = json.dumps({"model": "m", "stream": True, "n": 100_000, "gap": 0.5}).encode()


class Process:
    """A running `spark-tui gateway`, whose only model is that of another machine."""

    def __init__(self, pid: int, port: int, key: str, errors: Path, env: dict[str, str]) -> None:
        self.pid = pid
        self.port = port
        self.errors = errors
        self._key = key
        self._env = env

    @property
    def rss(self) -> int:
        """Bytes."""
        found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.M)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def alive(self) -> bool:
        return Path(f"/proc/{self.pid}/fd").exists()

    def health(self) -> float:
        """Seconds until a new client has its answer; endless for one that is turned away."""
        began = time.monotonic()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if client.recv(100).startswith(b"HTTP/1.1 200"):
                return time.monotonic() - began
        return float("inf")

    async def connect(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer

    def request(self) -> bytes:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._key}\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY

    def keys(self, *words: str) -> str:
        return keys(self._env, *words)


def keys(env: dict[str, str], *words: str) -> str:
    command = spark_tui("gateway", "keys", *words)
    return subprocess.run(command, env=env, capture_output=True, check=True, text=True, timeout=60).stdout.strip()


@asynccontextmanager
async def process(tmp_path: Path, engine: Upstreamer, descriptors: int) -> AsyncIterator[Process]:
    homes = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CONFIG", "CACHE")}
    env = {**os.environ, **homes, "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    key = await in_thread(keys, env, "add", "laptop")
    peer = f"far=http://127.0.0.1:{engine.port}"
    words = spark_tui("gateway", "--address", "0.0.0.0", "--port", "0", "--peer", peer, "--json")
    limited = ("bash", "-c", f'ulimit -n {descriptors}; exec "$@"', "bash", *words)
    errors = tmp_path / "errors"
    with errors.open("wb") as file:
        child = await asyncio.create_subprocess_exec(*limited, env=env, stdout=subprocess.PIPE, stderr=file)
    try:
        assert child.stdout is not None
        async with asyncio.timeout(60):
            url = json.loads(await child.stdout.readline())["url"]
        yield Process(child.pid, int(url.rsplit(":", 1)[1].removesuffix("/v1")), key, errors, env)
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGINT)
            with suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await child.wait()
        if child.returncode is None:
            child.kill()
            await child.wait()


async def first_event(gateway: Process) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A stream of which an event has come; until the other machine was asked, its model is unknown."""
    async with asyncio.timeout(60):
        while True:
            reader, writer = await gateway.connect(gateway.request())
            with suppress(asyncio.IncompleteReadError):
                if b" 200 " in await reader.readline():
                    await reader.readuntil(EVENT)
                    return reader, writer
            writer.close()
            await asyncio.sleep(0.2)


async def slow_head(gateway: Process) -> None:
    """Comes, says half of a request, waits until it is turned away."""
    with suppress(OSError):
        reader, writer = await gateway.connect(b"GET / HTTP/1.1\r\nHost: x\r\nX-")
        with closing(writer):
            await reader.read()


async def endless_head(gateway: Process) -> int:
    """Bytes of one header that were taken."""
    sent = 0
    with suppress(OSError):
        _, writer = await gateway.connect(b"GET / HTTP/1.1\r\nX: ")
        with closing(writer):
            while sent < 200 * MIB:
                writer.write(b"a" * 65_536)
                await writer.drain()
                sent += 65_536
    return sent


@pytest.mark.parametrize(("descriptors", "streams"), [(1024, 200), (256, 40)])
async def test_slow_heads_and_an_endless_one_hurt_nobody(tmp_path: Path, descriptors: int, streams: int) -> None:
    async with Upstreamer().running() as engine, process(tmp_path, engine, descriptors) as gateway:
        opened = [await first_event(gateway)]
        opened += await asyncio.gather(*(first_event(gateway) for _ in range(streams - 1)))
        before = max([await in_thread(gateway.health) for _ in range(TRIES)])
        attack = [asyncio.ensure_future(slow_head(gateway)) for _ in range(400)]
        endless = asyncio.ensure_future(endless_head(gateway))
        times, most = [], 0
        for _ in range(TRIES):
            times.append(await in_thread(gateway.health))
            most = max(most, gateway.rss)
            await asyncio.sleep(0.1)
        soon = max(MOST_SECONDS, MOST_TIMES * before)
        assert sum(seconds < soon for seconds in times) >= TRIES * 0.9, (before, times)
        assert most < MOST_RSS
        async with asyncio.timeout(60):
            assert await endless < 32 * MIB
            await asyncio.gather(*attack)  # each is turned away, at the latest after its ten seconds
        for reader, _ in opened:
            async with asyncio.timeout(20):
                await reader.readuntil(EVENT)
        assert await in_thread(gateway.health) < float("inf")
        assert gateway.alive
        assert gateway.rss < MOST_RSS
        assert gateway.errors.stat().st_size < 4096, gateway.errors.read_bytes()[:4096]
        for _, writer in opened:
            writer.close()


async def test_a_gateway_without_a_descriptor_left_recovers(tmp_path: Path) -> None:
    """Its limit is lowered while it runs: nothing ends it, its log stays small, and it serves again by itself."""
    async with Upstreamer().running() as engine, process(tmp_path, engine, 256) as gateway:
        reader, writer = await first_event(gateway)
        limit(gateway.pid, 3)
        await asyncio.gather(*(in_thread(knock, gateway.port) for _ in range(20)))
        await asyncio.sleep(5)
        assert gateway.alive
        limit(gateway.pid, 256)
        async with asyncio.timeout(60):
            while await in_thread(gateway.health) == float("inf"):
                await asyncio.sleep(0.5)
            await reader.readuntil(EVENT)
        assert gateway.errors.stat().st_size < 4096, gateway.errors.read_bytes()[:4096]
        writer.close()


def limit(pid: int, descriptors: int) -> None:
    subprocess.run(["prlimit", f"--nofile={descriptors}:256", "--pid", str(pid)], check=True, timeout=20)


def knock(port: int) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.recv(1)


async def test_a_revoked_key_ends_its_stream_and_a_damaged_file_of_keys_is_the_owner_s_matter(tmp_path: Path) -> None:
    async with Upstreamer().running() as engine, process(tmp_path, engine, 1024) as gateway:
        reader, writer = await first_event(gateway)
        await in_thread(gateway.keys, "revoke", "laptop")
        revoked = time.monotonic()
        async with asyncio.timeout(60):
            rest = await reader.readuntil(b"data: [DONE]\n\n")
        assert time.monotonic() - revoked < 10  # two seconds, and what a busy machine takes
        error = next(line for line in rest.splitlines() if line.startswith(b'data: {"error"'))
        assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "api_key_rejected"
        writer.close()
        (file,) = tmp_path.rglob("gateway-keys.json")
        file.write_bytes(b"{broken")
        await until_status(gateway, b" 503 ")
        answer = await told(gateway)
        assert str(tmp_path).encode() not in answer
        assert b".json" not in answer
        assert str(file) in gateway.errors.read_text()


async def told(gateway: Process) -> bytes:
    reader, writer = await gateway.connect(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


async def until_status(gateway: Process, status: bytes) -> Any:
    async with asyncio.timeout(30):
        while status not in (await told(gateway)).partition(b"\r\n")[0]:
            await asyncio.sleep(0.2)
