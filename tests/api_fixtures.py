"""The recorded answers of a real vLLM, and a server on this machine that says them."""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from spark_tui.base.engine.state import Endpoint

FOLDER = Path(__file__).parent / "fixtures" / "api"


def stream(name: str) -> bytes:
    """The bytes of a chat stream, what curl said after it cut off."""
    return (FOLDER / f"{name}.sse").read_bytes().partition(b"\ncurl_exit=")[0]


STREAMS = sorted(path.stem for path in FOLDER.glob("*.sse") if b"chat.completion.chunk" in path.read_bytes()[:400])


def answer(name: str) -> tuple[int, str]:
    """Status and body of an answer; 500 where the file holds the body alone."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    head, _, body = text.partition("\n\n")
    if not head.startswith("HTTP"):
        return 500, text
    return int(head.split()[1]), body


def error(name: str) -> tuple[int, str]:
    """Status and body of an error answer."""
    return answer(f"errors/{name}")


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each path as set, "" for all others; remembers what was asked, and when a client went away."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.gone = asyncio.Event()
        self.endpoint = Endpoint("")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Server]:
        """On a free port, as `endpoint` says."""
        listening = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.endpoint = Endpoint(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        yield self
        listening.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            request, *lines = head.split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.asked.append((request, headers, body))
            path = request.split()[1]
            await (self.handlers.get(path) or self.handlers[""])(writer)
            await writer.drain()
            if await reader.read(1) == b"":
                self.gone.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()

    def writes(self, *pieces: bytes | float, path: str = "", reset: bool = False, hold: bool = False) -> None:
        """Raw bytes; a number is a pause. Then the connection is closed, reset, or held open and silent."""

        async def handler(writer: asyncio.StreamWriter) -> None:
            for piece in pieces:
                if isinstance(piece, bytes):
                    writer.write(piece)
                    await writer.drain()
                else:
                    await asyncio.sleep(piece)
            if reset:
                link = writer.get_extra_info("socket")
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            elif not hold:
                writer.close()

        self.handlers[path] = handler

    def says(self, status: int, body: bytes | str, path: str = "") -> None:
        """A whole answer."""
        raw = body.encode() if isinstance(body, str) else body
        head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(raw))
        self.writes(head, raw, path=path)

    def streams(self, *pieces: bytes, cut: bool = False, reset: bool = False, hold: bool = False) -> None:
        """A chunked stream of these pieces; it ends well unless it is cut, reset or held."""
        head = STREAM_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        end = b"" if cut or reset or hold else b"0\r\n\r\n"
        chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        self.writes(head, *chunks, end, reset=reset, hold=hold)


def packed_blanks(mebibytes: int) -> bytes:
    """That much of blanks as gzip, in a thousandth of the bytes, for who unpacks what comes. Its checksum is wrong."""
    packer, blanks = zlib.compressobj(9, wbits=31), b" " * (1 << 20)
    first, more = (packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + more * (mebibytes - 1) + packer.flush()
