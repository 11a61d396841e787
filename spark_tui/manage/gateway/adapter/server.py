"""The HTTP side of the gateway: Starlette on uvicorn in front, httpx2 to the engines, bytes in between.

Nothing is translated. A body is read whole, since its `model` says where it goes; an answer passes piece by piece, as
fast as the client reads it, and ends at the engine when the client leaves.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spark_tui.base.errors import (
    ApiKeyRejected,
    BadRequest,
    EngineUnreachable,
    ModelNotServed,
    PortInUse,
    SparkError,
)
from spark_tui.base.executors import end_tasks
from spark_tui.base.gateway import KeysUnreadable
from spark_tui.base.quantities import MIB, human_bytes
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import decode
from spark_tui.machine.engine_http import ClientPools, bearer, beginning_of
from spark_tui.manage.gateway.adapter.door import Connection, DoorLimits, limits_of_process
from spark_tui.manage.gateway.model import BodyTooLarge, GatewayBusy, NotServing, Upstream, retry_after
from spark_tui.manage.gateway.use.gateway import GatewayRouter
from spark_tui.observe.metrics.model.agents import (
    GENERATING,
    AgentTurn,
    PromptPrint,
    product_of,
    prompt_print,
    usage_tokens,
)

if TYPE_CHECKING:
    import httpx2

_log = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PATHS: Final = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/v1/embeddings", "/v1/rerank", "/v1/score", "/rerank", "/score", "/pooling", "/classify",
    "/tokenize", "/detokenize",
)  # fmt: skip
"""What is passed on: the API proper. An engine's administration (sleep, adapters, metrics) stays on the host."""
MAX_BODY_BYTES: Final = 32 * MIB
"""Of one request: a few large pictures. What is longer is read to its end and dropped."""
MAX_HELD_BYTES: Final = 256 * MIB
"""Of all requests together."""
COMMENT_SECONDS: Final = 5.0
"""Between two signs of life to a client that waits for its engine."""
_IDLE_CONNECTIONS: Final = 64
# Few connections are accepted at once: what they send is read before the next ones take their places.
_ACCEPTED_AT_ONCE: Final = 16
_QUEUED: Final = 1024
_DROP_SECONDS: Final = 60.0
_KEY_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 60.0
_SHUTDOWN_SECONDS: Final = 5
_MOST_TAIL_BYTES: Final = 256 * 1024
_MOST_ERROR_BYTES: Final = 64 * 1024
_MOST_NAME_CELLS: Final = 120
_MARK: Final = b'"usage"'
_USAGE: Final = re.compile(rb'"usage"\s*:\s*(\{[^{}]{0,1000}(?:\{[^{}]{0,1000}\}[^{}]{0,1000}){0,8}\})')
"""In a JSON string its quotes would be escaped: this is never a model's text."""
_USAGE_BYTES: Final = 4096
"""Of a usage object that are kept until its next piece."""
_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
     b"transfer-encoding", b"upgrade")
)  # fmt: skip
_OURS: Final = _HOP | {
    b"host",
    b"accept-encoding",
    b"content-length",
    b"expect",
    b"authorization",
    b"x-api-key",
    b"cookie",
}
_PORT: Final = re.compile(r":\d+$")
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_EVENT_STREAM: Final = b"text/event-stream"
_STREAM_HEADERS: Final = ((b"content-type", _EVENT_STREAM + b"; charset=utf-8"), (b"cache-control", b"no-cache"))
_LOOPBACK_NAMES: Final = frozenset(("127.0.0.1", "localhost", "[::1]"))


class _CutOff(Exception):
    """The engine ended in the middle of an answer that has no way to say so: the connection is closed."""


class _Ask(Struct, frozen=True):
    """A request as far as the gateway reads it. `fields` are the body's values as they were written."""

    client: str
    path: str
    query: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    model: str
    stream: bool
    fields: Mapping[str, Any]

    def body_for(self, model: str) -> bytes:
        """The body, with the engine's own name of the model; everything else byte by byte as it came."""
        if model == self.model:
            return self.body
        return msgspec.json.encode({**self.fields, "model": model})

    def prompt(self) -> PromptPrint:
        """The print of its prompt, in the order in which engines read its parts."""

        def field(*names: str) -> bytes:
            return next((bytes(self.fields[name]) for name in names if name in self.fields), b"")

        said = field("messages", "input", "prompt")
        try:
            messages = [bytes(each) for each in decode(said, list[msgspec.Raw])]
        except ValueError:  # one text
            messages = [said]
        return prompt_print(field("system", "instructions"), field("tools"), messages)


class _Seen:
    """What of an answer is counted while it passes: its first token's time, by the loop's clock, and its usage."""

    def __init__(self) -> None:
        self.began = asyncio.get_running_loop().time()
        self.first_seconds: float | None = None
        self._usage: dict[str, Any] = {}
        self._tail = b""

    def piece(self, data: bytes, *, events: bool) -> None:
        if events and self.first_seconds is None and not data.startswith(b":"):
            self.first_seconds = asyncio.get_running_loop().time() - self.began
        window = self._tail + data
        at = window.rfind(_MARK)
        incomplete = at >= 0 and at >= self._read(window) and len(window) - at <= _USAGE_BYTES
        self._tail = window[at:] if incomplete else window[1 - len(_MARK) :]

    def _read(self, window: bytes) -> int:
        """Where the last usage object ends, 0 without one. Anthropic's streams have the prompt in their first event and
        the rest in the last: both are joined."""
        end = 0
        for found in _USAGE.finditer(window):
            end = found.end()
            with suppress(ValueError):
                usage = decode(found[1], dict[str, Any])
                self._usage |= {name: value for name, value in usage.items() if value is not None}
        return end

    def turn(self, ask: _Ask, engine: str) -> AgentTurn:
        return AgentTurn(ask.client, engine, ask.path, ask.prompt(), *usage_tokens(self._usage), self.first_seconds)


class HttpGateway:
    """The GatewayServer port. `limits` are of what a client without a key can hold; by default from this process's
    descriptors."""

    def __init__(self, limits: DoorLimits | None = None) -> None:
        self._limits = limits

    async def serve(self, router: GatewayRouter, host: str, port: int, on_ready: Callable[[int], None]) -> None:
        """As the port says. Ends also by SIGINT and SIGTERM, after open answers have had some seconds."""
        proxy = GatewayProxy(router, log := GatewayLog())
        limits = self._limits or limits_of_process()
        protocol = cast("type[asyncio.Protocol]", partial(Connection, limits))
        listening = _bound(host, port)

        async def queue() -> None:  # asyncio's backlog is both: how many are accepted at once, and how many may wait
            listening.listen(_QUEUED)

        config = uvicorn.Config(
            proxy.application(),
            http=protocol,
            backlog=_ACCEPTED_AT_ONCE,
            log_config=None,
            log_level=logging.CRITICAL + 1,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            callback_notify=queue,
        )
        server = uvicorn.Server(config)
        on_ready(listening.getsockname()[1])
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(log.loop_failed)
        try:
            await asyncio.shield(serving)
        finally:
            loop.set_exception_handler(None)
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            await proxy.close()
            listening.close()


class GatewayLog:
    """The gateway's own log, on standard error or in the journal: what a client can cause again and again is written
    once a minute."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}

    def warn(self, kind: str, text: str) -> None:
        now = monotonic()
        if now - self._written.get(kind, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._written[kind] = now
            _log.warning("%s", text)

    def loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's handler of exceptions: asyncio reports each connection that it cannot accept."""
        error = context.get("exception")
        if isinstance(error, OSError) and "accept" in context["message"]:
            self.warn("accept", f"Connections cannot be accepted: {error.strerror}. Tried again each second.")
        else:
            loop.default_exception_handler(context)


def _bound(host: str, port: int) -> socket.socket:
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise PortInUse(
            f"The gateway cannot listen on {host} port {port}: {error.strerror or error}.",
            "Choose another port: spark-tui gateway --port PORT",
        ) from error
    # asyncio does it for sockets of its own only; without it each first token comes 40 ms late.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class GatewayProxy:
    """Routes requests to engines."""

    def __init__(self, router: GatewayRouter, log: GatewayLog) -> None:
        self._router = router
        self._log = log
        self._pools = ClientPools(None, _IDLE_CONNECTIONS)
        self.held_bytes = 0

    async def close(self) -> None:
        await self._pools.close()

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._models),
                *(Route(path, self, methods=["POST"]) for path in PATHS),
            ]
        )

    # --- what it answers itself -------------------------------------------------------------------------

    async def _health(self, _: Request) -> Any:
        return Response()

    async def _models(self, request: Request) -> Any:
        """All of them, or the one of that name."""
        name = request.path_params.get("name")
        try:
            self._admit(request.scope)
            found = [each for each in self._router.models() if name in (None, each.id)]
            if name is not None and not found:
                raise ModelNotServed(f"The model {_short(name)} is unknown.", "See GET /v1/models.")
        except SparkError as error:
            return JSONResponse(_error_object(error, request.url.path), _status(error), _retry(error))
        rows = [
            {
                "id": each.id,
                "object": "model",
                "created": 0,
                "owned_by": "spark-tui",
                "root": each.engine,
                "max_model_len": each.context,
                "serving": each.serving,
            }
            for each in found
        ]
        return JSONResponse({"object": "list", "data": rows} if name is None else rows[0])

    # --- what it passes on ------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = _Client(send, scope["path"])
        try:
            name = self._admit(scope)
            with self._holding() as take:
                ask = _read(name, scope, await self._body(Request(scope, receive), take))
                await _first(self._answer(ask, client), _disconnected(receive), self._revoked(scope))
        except ClientDisconnect:
            return
        except SparkError as error:
            await client.fail(error)

    def _admit(self, scope: Scope) -> str:
        """The client's name: its key's, else the program's. Raises ApiKeyRejected."""
        headers = dict(scope["headers"])
        name = _PORT.sub("", headers.get(b"host", b"").decode("latin-1")).lower()
        if not self._router.keyed and name not in _LOOPBACK_NAMES:  # a page whose name was pointed at this machine
            raise ApiKeyRejected(
                "Without keys only this machine is served.", "Add a key: spark-tui gateway keys add NAME"
            )
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get(b"x-api-key", b"").decode("latin-1")
        try:
            client = self._router.authorize(key.strip())
        except KeysUnreadable as error:
            self._log.warn("keys", error.detail)
            raise
        return client or product_of(headers.get(b"user-agent", b"").decode("latin-1"))

    async def _revoked(self, scope: Scope) -> None:
        """Raises ApiKeyRejected as soon as the client's key is revoked. Keys that cannot be read end no answer."""
        while True:
            await asyncio.sleep(_KEY_SECONDS)
            with suppress(KeysUnreadable):  # written to the log
                self._admit(scope)

    @contextmanager
    def _holding(self) -> Iterator[Callable[[int], bool]]:
        """Counts bytes of one request among what is held, as long as it lasts; false for more than may be."""
        taken = 0

        def take(size: int) -> bool:
            nonlocal taken
            if self.held_bytes + size > MAX_HELD_BYTES:
                return False
            self.held_bytes, taken = self.held_bytes + size, taken + size
            return True

        try:
            yield take
        finally:
            self.held_bytes -= taken

    async def _body(self, request: Request, take: Callable[[int], bool]) -> bytes:
        """Raises for one that is too long only after its end: a client that still sends would not see the answer."""
        pieces, size, refused = bytearray(), 0, False
        try:
            async with asyncio.timeout(None) as limit:
                async for piece in request.stream():
                    size += len(piece)
                    if not refused and (size > MAX_BODY_BYTES or not take(len(piece))):
                        refused = True
                        pieces.clear()
                        limit.reschedule(asyncio.get_running_loop().time() + _DROP_SECONDS)
                    if not refused:
                        pieces += piece
        except TimeoutError:
            size = max(size, MAX_BODY_BYTES + 1)
        if refused and size <= MAX_BODY_BYTES:
            raise GatewayBusy("Too many large requests at once.", "Retry in a few seconds.")
        if refused:
            raise BodyTooLarge(
                f"The request has {human_bytes(size)}; the gateway takes {human_bytes(MAX_BODY_BYTES)}.",
                "Send smaller pictures or fewer of them.",
            )
        return bytes(pieces)

    async def _answer(self, ask: _Ask, client: _Client) -> None:
        """Sends the engine's answer. While the engine is started, a streaming client gets comments."""
        while True:
            try:
                with self._router.lease(ask.model) as upstream:
                    return await self._forward(ask, upstream, client)
            except NotServing:
                if not ask.stream:
                    raise
            await self._wait(ask, client)

    async def _wait(self, ask: _Ask, client: _Client) -> None:
        ready = asyncio.ensure_future(self._router.ready(ask.model))
        try:
            while not ready.done():
                eta = self._router.eta(ask.model)
                left = "time unknown" if eta is None else f"about {retry_after(eta)} s"
                await client.comment(f"waiting for {_short(ask.model)}, {left}")
                await asyncio.wait((ready,), timeout=COMMENT_SECONDS)
            ready.result()
        finally:
            await end_tasks(ready)

    async def _forward(self, ask: _Ask, upstream: Upstream, client: _Client) -> None:
        import httpx2

        pool = self._pools.of(upstream.endpoint)
        url = f"{upstream.endpoint.base_url}{ask.path}{'?' * bool(ask.query)}{ask.query}"
        request = pool.build_request("POST", url, headers=ask.headers, content=ask.body_for(upstream.model))
        seen = _Seen()
        try:
            response = await pool.send(request, stream=True, auth=bearer(upstream.endpoint))
        except httpx2.HTTPError as error:
            self._router.broken(upstream.engine)
            raise EngineUnreachable(
                f"{upstream.engine} does not answer.",
                "Retry. See why on its host: spark-tui explain NAME",
                detail=clean_line(str(error)),
            ) from error
        try:
            await _relay(response, client, seen)
        except httpx2.HTTPError as error:
            self._router.broken(upstream.engine)
            raise EngineUnreachable(
                f"{upstream.engine} stopped in the middle of the answer.", "Send the request again."
            ) from error
        finally:
            if response.status_code == 200 and ask.path in GENERATING:
                self._router.answered(seen.turn(ask, upstream.engine))
            await response.aclose()


async def _relay(response: httpx2.Response, client: _Client, seen: _Seen) -> None:
    """Passes the answer on. Of an event stream only whole events: a failure then leaves no half one behind."""
    headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _HOP]
    events = any(name == b"content-type" and value.startswith(_EVENT_STREAM) for name, value in headers)
    if client.streaming and not (events and response.status_code == 200):
        text = (await beginning_of(response, _MOST_ERROR_BYTES)).decode("utf-8", "replace")
        raise BadRequest(truncate(clean_line(text), 2000), "")
    await client.start(response.status_code, headers, streaming=events)
    tail = b""
    async for piece in response.aiter_raw():
        seen.piece(piece, events=events)
        if not events:
            await client.write(piece)
            continue
        held = tail + piece
        end = max((at + len(mark) for mark in _EVENT_ENDS if (at := held.rfind(mark)) >= 0), default=0)
        end = end if len(held) - end <= _MOST_TAIL_BYTES else len(held)
        tail = held[end:]
        if end:
            await client.write(held[:end])
    await client.write(tail, more=False)


class _Client(Struct, eq=False):
    """The client's side of one exchange: what was sent decides how a failure is reported."""

    _send: Send
    _path: str
    _started: bool = False
    streaming: bool = False

    async def start(self, status: int, headers: list[tuple[bytes, bytes]], *, streaming: bool) -> None:
        if self._started:
            return
        self._started, self.streaming = True, streaming
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, piece: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def comment(self, text: str) -> None:
        await self.start(200, list(_STREAM_HEADERS), streaming=True)
        await self.write(f": {text}\n\n".encode())

    async def fail(self, error: SparkError) -> None:
        """The error as what was sent allows: as the answer, or as the API's own event and the end of the stream. Raises
        _CutOff in the middle of another answer."""
        if not self._started:
            body = msgspec.json.encode(_error_object(error, self._path))
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            headers += [(name.lower().encode(), value.encode()) for name, value in _retry(error).items()]
            await self.start(_status(error), headers, streaming=False)
            await self.write(body, more=False)
        elif self.streaming:
            await self.write(_error_event(error, self._path), more=False)
        else:
            raise _CutOff from error


async def _first(*works: Coroutine[Any, Any, None]) -> None:
    """Does them all until the first one ends; the others are cancelled. Raises what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end_tasks(*tasks)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _read(client: str, scope: Scope, body: bytes) -> _Ask:
    """Raises BadRequest for a body that is no JSON object with a `model`."""
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise BadRequest("The request is not JSON.", "Send Content-Type: application/json.")
    try:
        fields = decode(body, dict[str, msgspec.Raw])
        model = decode(bytes(fields["model"]), str)
    except KeyError:
        raise BadRequest("The request names no model.", "Set model to a name of GET /v1/models.") from None
    except ValueError as error:
        raise BadRequest("The body is not a JSON object with a model.", "Correct it.", detail=str(error)) from None
    return _Ask(
        client,
        scope["path"],
        scope["query_string"].decode("latin-1"),
        [(name, value) for name, value in scope["headers"] if name not in _OURS],
        body,
        model,
        bytes(fields.get("stream", b"")) == b"true",
        fields,
    )


def _short(name: str) -> str:
    return truncate(clean_line(name), _MOST_NAME_CELLS)


# --- errors ---------------------------------------------------------------------------------------------

_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


def _status(error: SparkError) -> int:
    match error:
        case ApiKeyRejected():
            return 401
        case ModelNotServed():
            return 404
        case BadRequest():
            return 400
        case BodyTooLarge():
            return 413
        case EngineUnreachable():
            return 502
        case _:
            return 503


def _retry(error: SparkError) -> dict[str, str]:
    if _status(error) != 503:
        return {}
    return {"Retry-After": str(retry_after(error.eta_seconds if isinstance(error, NotServing) else None))}


def _error_object(error: SparkError, path: str) -> dict[str, Any]:
    """The error as the API of that path writes it."""
    status, message = _status(error), str(error)
    if path.startswith("/v1/messages"):
        return {"type": "error", "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message}}
    kind = "invalid_request_error" if status < 500 else "service_unavailable_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": error.id}}


def _error_event(error: SparkError, path: str) -> bytes:
    if path == "/v1/responses":
        found = {"type": "error", "code": error.id, "message": str(error), "param": None, "sequence_number": 0}
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(found)
    data = msgspec.json.encode(_error_object(error, path))
    if path.startswith("/v1/messages"):
        return b"event: error\ndata: %b\n\n" % data
    return b"data: %b\n\ndata: [DONE]\n\n" % data
