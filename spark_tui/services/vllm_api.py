"""The OpenAI-compatible API of an engine, over httpx. The key goes into one header and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from spark_tui.domain.api_errors import api_error
from spark_tui.domain.chat import ChatEvent, ChatRequest
from spark_tui.domain.chat_stream import StreamReader, request_body
from spark_tui.domain.engine.endpoint import Endpoint, Health, ServedModel
from spark_tui.domain.errors import EngineFailed, EngineUnreachable, ReplyCutOff, SparkError
from spark_tui.domain.sse import EventTooLong, SseDecoder

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS: Final = 5.0
HEALTH_SECONDS: Final = 2.0
READ_SECONDS: Final = 600.0
"""Between two chunks: a long prompt on a 120B model prefills for minutes before its first token."""
MAX_BODY_BYTES: Final = 64 * 1024


class VllmApi:
    """One connection pool for all engines. httpx is imported with the first request."""

    def __init__(self, read_seconds: float = READ_SECONDS) -> None:
        self._read_seconds = read_seconds
        self._client: httpx.AsyncClient | None = None

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            # Engines are on this machine: a proxy from the environment would only break the way to them.
            self._client = httpx.AsyncClient(
                trust_env=False,
                timeout=httpx.Timeout(self._read_seconds, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=64, max_keepalive_connections=8),
            )
        return self._client

    async def close(self) -> None:
        """Closes all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # --- short questions ------------------------------------------------------------------------------

    async def health(self, endpoint: Endpoint) -> Health:
        """Never raises. llama.cpp answers 503 `Loading model` while it loads; vLLM's 503 is a dead engine core."""
        import httpx

        try:
            status, body = await self._get(endpoint, "/health", HEALTH_SECONDS)
        except httpx.ConnectError:
            return Health.NOT_LISTENING
        except httpx.HTTPError:
            return Health.UNKNOWN
        if status == 200:
            return Health.OK
        if status == 503:
            return Health.LOADING if b"oading" in body else Health.DEAD
        return Health.UNKNOWN

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        """`/v1/models`; raises ApiKeyRejected, EngineUnreachable ..."""
        told = await self._get_json(endpoint, "/v1/models")
        entries = told.get("data") if isinstance(told, dict) else None
        return tuple(_served(entry) for entry in entries or () if isinstance(entry, dict) and entry.get("id"))

    async def version(self, endpoint: Endpoint) -> str:
        """`/version`; an empty string where the server has none."""
        try:
            told = await self._get_json(endpoint, "/version")
        except SparkError:
            return ""
        return str(told.get("version") or "") if isinstance(told, dict) else ""

    async def _get(self, endpoint: Endpoint, path: str, seconds: float) -> tuple[int, bytes]:
        async with self._http().stream(
            "GET", endpoint.base_url + path, headers=_headers(endpoint), timeout=seconds
        ) as response:
            return response.status_code, await _bounded(response)

    async def _get_json(self, endpoint: Endpoint, path: str) -> Any:
        import json

        import httpx

        try:
            status, body = await self._get(endpoint, path, CONNECT_SECONDS)
        except httpx.HTTPError as error:
            raise _unreachable(endpoint, error) from None
        if status != 200:
            raise api_error(status, body.decode("utf-8", "replace"))
        try:
            return json.loads(body)
        except ValueError:
            raise EngineFailed(f"{endpoint.base_url}{path} did not answer with JSON.", "Is that an engine?") from None

    # --- chat -----------------------------------------------------------------------------------------

    async def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Streams an answer. Closing this closes the connection, which frees the server's slot."""
        import httpx

        reader, decoder = StreamReader(), SseDecoder()
        begun = False
        try:
            async with self._http().stream(
                "POST",
                endpoint.base_url + "/v1/chat/completions",
                json=request_body(request),
                headers=_headers(endpoint),
            ) as response:
                if response.status_code != 200:
                    raise api_error(response.status_code, (await _bounded(response)).decode("utf-8", "replace"))
                begun = True
                async for chunk in response.aiter_bytes():
                    for data in decoder.feed(chunk):
                        for event in reader.read(data):
                            yield event
                    if reader.done:
                        break
        except httpx.HTTPError as error:
            if begun and not isinstance(error, httpx.ReadTimeout):
                raise _broke_off(error) from None
            raise _unreachable(endpoint, error) from None
        except EventTooLong as error:
            raise EngineFailed(f"The engine sent {error}.", "Ask again; if it stays so, look at its log.") from None
        reader.close()


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.api_key.reveal()}"} if endpoint.api_key else {}


async def _bounded(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) >= MAX_BODY_BYTES:
            break
    return bytes(body[:MAX_BODY_BYTES])


def _served(entry: dict[str, Any]) -> ServedModel:
    length = entry.get("max_model_len")
    return ServedModel(str(entry["id"]), str(entry.get("root") or ""), length if isinstance(length, int) else None)


def _unreachable(endpoint: Endpoint, error: Exception) -> EngineUnreachable:
    import httpx

    if isinstance(error, httpx.ReadTimeout | httpx.PoolTimeout | httpx.WriteTimeout):
        return EngineUnreachable(
            f"The engine at {endpoint.base_url} accepts connections and does not answer.",
            "It may hang: look at its log, and restart it.",
            detail=type(error).__name__,
        )
    return EngineUnreachable(
        f"Nothing answers at {endpoint.base_url}.",
        "Is the engine running and ready? spark-tui ps shows it; a model can take minutes to load.",
        detail=f"{type(error).__name__}: {error}",
    )


def _broke_off(error: Exception) -> ReplyCutOff:
    return ReplyCutOff(
        "The connection to the engine broke in the middle of the answer.",
        "What had come is kept. Look at the engine's log, then ask again.",
        detail=type(error).__name__,
    )
