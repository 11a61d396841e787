"""HTTP/1.1 on a private unix socket, answered on the event loop of the caller.

A server on that loop needs no locks, and sleeps by the world's own clock. The kernel holds connections that
are made before the loop runs.
"""

from __future__ import annotations

import asyncio
import json
import socket
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from spark_tui.base.untrusted import load_json

_CHUNK: Final = 64 * 1024
_WAITING: Final = 64


class Request(NamedTuple):
    """`headers` have names in small letters. `path` is unquoted."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body; an empty object where there is none."""
        return load_json(self.body or b"{}")


class Answer(NamedTuple):
    """Of a generator each piece is sent as it comes."""

    content: bytes | AsyncGenerator[bytes, None] = b""
    status: int = 200
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class ClosedWithoutAnswer(Exception):
    """The connection is closed without another byte: nothing listens behind it, or what answered has ended."""


Handler = Callable[[Request], Awaitable[Answer]]


def as_json(found: object, status: int = 200) -> Answer:
    return Answer(json.dumps(found).encode(), status)


class Server:
    """Listens at `path` from the beginning, and answers once `listen` was called on a running loop. One request a
    connection; a client that goes away ends the work on its answer."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._handler = handler
        self._socket = socket.socket(socket.AF_UNIX)
        weakref.finalize(self, self._socket.close)
        self._socket.bind(str(path))
        self._socket.listen(_WAITING)
        self._socket.setblocking(False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def reached_by(self, adapter: Any, **instead: Any) -> Any:
        """That adapter, with some methods replaced; each use of it makes this server listen on the running loop."""
        return _Reaching(self, adapter, instead)

    def listen(self) -> None:
        """Answers on the running loop from now on; without one nothing changes."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop is not self._loop:
            self._loop = loop
            loop.add_reader(self._socket, self._accept, loop)

    def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(BlockingIOError, ConnectionError):
            connection, _ = self._socket.accept()
            connection.setblocking(False)
            task = loop.create_task(self._serve(connection, loop))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: connection.close())  # also of one that was cancelled before it began
            weakref.finalize(task, connection.close)  # of one that a loop that ends does not get to

    async def _serve(self, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        http, task = h11.Connection(h11.SERVER), asyncio.current_task()

        def gone() -> None:
            loop.remove_reader(connection)
            if task is not None:
                task.cancel()

        with suppress(ClosedWithoutAnswer, ConnectionError, h11.RemoteProtocolError):
            request = await _request(http, connection, loop)
            loop.add_reader(connection, gone)
            try:
                await _send(http, connection, loop, await self._handler(request))
            finally:
                loop.remove_reader(connection)


class _Reaching:
    def __init__(self, server: Server, adapter: Any, instead: Mapping[str, Any]) -> None:
        self._server = server
        self._adapter = adapter
        vars(self).update(instead)

    def __getattr__(self, name: str) -> Any:
        self._server.listen()
        return getattr(self._adapter, name)


async def _request(http: h11.Connection, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> Request:
    """Raises h11.RemoteProtocolError where there is none."""
    head, body = None, b""
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            http.receive_data(await loop.sock_recv(connection, _CHUNK))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        else:
            break
    if head is None:
        raise ClosedWithoutAnswer
    target = urlsplit(head.target.decode())
    headers = {name.decode(): value.decode() for name, value in head.headers}
    return Request(head.method.decode(), unquote(target.path), dict(parse_qsl(target.query)), headers, body)


async def _send(
    http: h11.Connection, connection: socket.socket, loop: asyncio.AbstractEventLoop, answer: Answer
) -> None:
    async def send(*events: h11.Event) -> None:
        await loop.sock_sendall(connection, b"".join(http.send(event) or b"" for event in events))

    headers = [("Content-Type", answer.kind), ("Connection", "close"), *answer.headers]
    if isinstance(answer.content, bytes):
        headers.append(("Content-Length", str(len(answer.content))))
        head = h11.Response(status_code=answer.status, headers=headers)
        await send(head, *([h11.Data(data=answer.content)] if answer.content else []), h11.EndOfMessage())
        return
    await send(h11.Response(status_code=answer.status, headers=headers))
    async with aclosing(answer.content) as pieces:
        async for piece in pieces:
            await send(h11.Data(data=piece))
    await send(h11.EndOfMessage())
