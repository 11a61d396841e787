"""A scripted completions server on this machine: real HTTP, tokens at a steady pace, and every way to fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


class BenchServer:
    """Answers `/v1/completions`, `/tokenize`, `/detokenize` and `/metrics` as vLLM does.

    `first` and `step` are seconds to the first token and between tokens. `fail` may answer a request otherwise: given
    its number (from 0) and body it names `refuse`, `break`, `short`, `error` or `hang`, or nothing.
    """

    def __init__(self) -> None:
        self.port = 0
        self.first = 0.02
        self.step = 0.005
        self.fail: Callable[[int, dict[str, Any]], str] = lambda number, body: ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.open = 0
        self.most_open = 0
        self.tokenizes = True
        self.finished = 0
        self.tokens = 0
        self.prompt_tokens = 0
        self.others = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[BenchServer]:
        """While the body runs."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                request, *lines = head.split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await self._answer(request.split()[1], json.loads(body or b"{}"), headers, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    async def _answer(
        self, path: str, body: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> None:
        if path == "/v1/completions":
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            try:
                await self._complete(body, headers, writer)
            finally:
                self.open -= 1
        elif path == "/tokenize" and self.tokenizes:
            ids = [sum(map(ord, word)) % 5000 for word in str(body["prompt"]).split()]
            await _plain(writer, json.dumps({"count": len(ids), "max_model_len": 4096, "tokens": ids}))
        elif path == "/detokenize" and self.tokenizes:
            await _plain(writer, json.dumps({"prompt": " ".join(f"w{token}" for token in body["tokens"])}))
        elif path == "/metrics":
            await _plain(writer, self._page())
        else:
            await _plain(writer, '{"detail": "Not Found"}', "404 Not Found")

    async def _complete(self, body: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        number = len(self.bodies)
        self.bodies.append(body)
        self.headers.append(headers)
        how = self.fail(number, body)
        if how == "refuse":
            await _plain(writer, '{"error": {"message": "The queue is full.", "code": 503}}', "503 Service Unavailable")
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.sleep(self.first)
        asked = int(body["max_tokens"])
        prompt = body["prompt"]
        length = len(prompt) if isinstance(prompt, list) else len(prompt.split())
        count = asked // 2 if how == "short" else asked
        for token in range(count):
            if token:
                await asyncio.sleep(self.step)
            if how in ("break", "hang", "error") and token == count // 2:
                await self._stop_midway(how, writer)
                return
            await _event(
                writer, {"choices": [{"text": "a", "finish_reason": "length" if token == count - 1 else None}]}
            )
        usage = {"prompt_tokens": length, "completion_tokens": count}
        self.finished += 1
        self.tokens += count
        self.prompt_tokens += length
        await _event(writer, {"choices": [], "usage": usage})
        await _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _stop_midway(self, how: str, writer: asyncio.StreamWriter) -> None:
        if how == "error":
            await _event(writer, {"error": {"message": "EngineCore encountered an issue.", "code": 500}})
            await _chunk(writer, b"data: [DONE]\n\n")
            writer.write(b"0\r\n\r\n")
        elif how == "hang":
            await asyncio.Event().wait()
        else:
            writer.transport.abort()

    def _page(self) -> str:
        label = '{engine="0",model_name="tiny"}'
        return (
            f"vllm:prompt_tokens_total{label} {self.prompt_tokens}.0\n"
            f"vllm:generation_tokens_total{label} {self.tokens}.0\n"
            f"vllm:e2e_request_latency_seconds_count{label} {self.finished + self.others}.0\n"
            f"vllm:e2e_request_latency_seconds_sum{label} 1.0\n"
        )


async def _plain(writer: asyncio.StreamWriter, text: str, status: str = "200 OK") -> None:
    body = text.encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


async def _event(writer: asyncio.StreamWriter, told: dict[str, Any]) -> None:
    await _chunk(writer, b"data: " + json.dumps(told).encode() + b"\n\n")


async def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    await writer.drain()
