"""What every HTTP client of engines shares: connections without the environment's proxies, and the API key."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import ApiKeyRejected

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS: Final = 5.0
KEEP_ALIVE_SECONDS: Final = 2.0
"""uvicorn closes an idle connection after 5 s; a request must not be sent into one that is just being closed."""


def new_client(read_seconds: float | None, *, secure: bool, idle: int = 8, uds: str = "") -> httpx2.AsyncClient:
    """A pool for engines, over https if `secure`. `read_seconds` is how long the next piece of an answer may take
    (None: for ever), `idle` how many connections are kept for later. With `uds` all are behind that unix socket."""
    import httpx2

    # Without https no certificate authorities are needed: reading them takes 35 ms and 3 MB.
    context = ssl.create_default_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.AsyncClient(
        trust_env=False,
        verify=context,
        timeout=httpx2.Timeout(read_seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=idle, keepalive_expiry=KEEP_ALIVE_SECONDS),
        transport=httpx2.AsyncHTTPTransport(uds=uds, verify=context) if uds else None,
        headers={"Accept-Encoding": "identity"},  # what is small on the wire stays small here
    )


async def pieces_of(response: httpx2.Response, most: int) -> AsyncGenerator[bytes, None]:
    """The body as it comes, and at most that many bytes of it. Raises httpx2.DecodingError for a compressed one, which
    was not asked for and may unpack to any size."""
    import httpx2

    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise httpx2.DecodingError("a compressed answer that was not asked for")
    async for chunk in response.aiter_raw():
        yield chunk[:most]
        most -= len(chunk)
        if most <= 0:
            return


async def beginning_of(response: httpx2.Response, most: int) -> bytes:
    """The body's first bytes, as `pieces_of` has them."""
    async with aclosing(pieces_of(response, most)) as pieces:
        return b"".join([piece async for piece in pieces])


class ClientPools:
    """One pool of connections per scheme, for all engines, made when it is first needed."""

    def __init__(self, read_seconds: float | None, idle: int = 8, uds: str = "") -> None:
        self._read_seconds = read_seconds
        self._idle = idle
        self._uds = uds
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    def of(self, endpoint: Endpoint) -> httpx2.AsyncClient:
        secure = endpoint.base_url.lower().startswith("https:")
        if secure not in self._clients:
            self._clients[secure] = new_client(self._read_seconds, secure=secure, idle=self._idle, uds=self._uds)
        return self._clients[secure]

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()


def authorization(endpoint: Endpoint) -> str:
    """The value of the Authorization header; empty without a key. Raises ApiKeyRejected for one that no header can
    hold: h11's own refusal would quote it."""
    key = endpoint.api_key
    if not key:
        return ""
    if not (key.reveal().isascii() and key.reveal().isprintable()):
        raise ApiKeyRejected(
            "The API key has characters that cannot be sent.",
            "A key is printable ASCII on one line: set it again, without line ends.",
        )
    return f"Bearer {key.reveal()}"


def bearer(endpoint: Endpoint) -> Callable[[httpx2.Request], httpx2.Request] | None:
    """Puts the key into the request when it is sent: it is in no argument that a traceback would show."""
    if not authorization(endpoint):
        return None

    def sign(request: httpx2.Request) -> httpx2.Request:
        request.headers["Authorization"] = authorization(endpoint)
        return request

    return sign
