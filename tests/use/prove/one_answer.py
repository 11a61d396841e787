"""A server on loopback that gives one JSON answer to each request, and closes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.parser import BytesParser
from typing import Self


class OneAnswerServer:
    """Subclasses say what the answer is; `port` is known while it runs."""

    port = 0

    def answer(self, path: str, head: bytes, body: bytes) -> tuple[str, object]:
        """The status line's end and the answer. `head` are the headers as they came."""
        raise NotImplementedError

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, _, head = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        sent = await reader.readexactly(int(BytesParser().parsebytes(head)["content-length"]))
        status, answer = self.answer(line.split()[1].decode(), head, sent)
        body = json.dumps(answer).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        writer.close()
