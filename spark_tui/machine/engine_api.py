"""Engines over httpx2: their OpenAI-compatible API, and their metrics pages, bounded in time and size.

The key goes into one header and nowhere else. httpx2 is imported with the first request.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from spark_tui.base.engine.answer import (
    MAX_EVENT_BYTES,
    EventTooLong,
    SseDecoder,
    StreamReader,
    api_error,
    is_loading,
    model_not_served,
)
from spark_tui.base.engine.message import ChatEvent, ChatRequest
from spark_tui.base.engine.metrics_page import WANTED_NAMES, MetricPage, Slot, Source, page_of, source_of
from spark_tui.base.engine.request import request_bytes
from spark_tui.base.engine.runtimes import ANY, runtime_named, with_tag
from spark_tui.base.engine.state import Endpoint, Health, ServedModel
from spark_tui.base.errors import (
    ApiKeyRejected,
    EngineFailed,
    EngineUnreachable,
    MetricsUnavailable,
    ModelNotServed,
    ReplyCutOff,
    SparkError,
)
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.untrusted import load_json
from spark_tui.machine.engine_http import CONNECT_SECONDS, ClientPools, bearer, beginning_of, pieces_of

if TYPE_CHECKING:
    import httpx2

ANSWER_SECONDS: Final = 10.0
"""For the whole of a short answer: models, version, the body of an error."""
READ_SECONDS: Final = 600.0
"""Between two chunks, the first one included: a long prompt on a 120B model prefills for minutes."""
END_SECONDS: Final = 3.0
"""Between the chunk that finishes an answer and the end of the stream, where usage comes; some servers never end it."""
PAGE_SECONDS: Final = 4.0
"""For a whole metrics page. An API server that is busy with long prompts takes a second."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_JSON_BYTES: Final = 4 * 1024 * 1024
MAX_STREAM_BYTES: Final = 256 * 1024 * 1024
"""Of one streamed answer. A token takes about 300 bytes."""
MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
"""vLLM's page has 60 kB, and 30 kB more for each further data-parallel engine."""
MAX_SERIES: Final = 5_000
"""Wanted series of one page. Eight data-parallel engines have 1,500."""
MAX_KNOWN: Final = 4 * MAX_SERIES
MAX_LINE_BYTES: Final = 8 * 1024
"""The longest that is wanted, `cache_config_info`, has about 1.5 kB."""

_NO_SUCH_PAGE: Final = (404, 405, 501)
_WANTED: Final = frozenset(name.encode() for name in WANTED_NAMES)


# --- failures ---------------------------------------------------------------------------------------------


def unreachable(where: str, error: Exception, seconds: float) -> EngineUnreachable:
    """Before any answer of the engine at `where`; `seconds` is how long one was waited for."""
    import httpx2

    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return EngineUnreachable(f"{where} is not an engine address.", "Write it as http://127.0.0.1:8000.")
    if isinstance(error, httpx2.ConnectTimeout):
        return EngineUnreachable(
            f"{where} did not accept a connection within {human_duration(CONNECT_SECONDS)}.",
            "Is the machine up, and does its firewall let you in?",
        )
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return EngineUnreachable(
            f"The engine at {where} accepts connections but has not answered for {human_duration(seconds)}.",
            "It may hang: check its log, then restart it.",
        )
    if isinstance(error, httpx2.ConnectError) and not refused(error):
        return EngineUnreachable(f"Cannot connect to {where}.", "Check the address.", detail=str(error))
    if isinstance(error, httpx2.ConnectError) or closed_at_once(error):
        return EngineUnreachable(
            f"Nothing answers at {where}.",
            "Is the engine running and ready? spark-tui ps shows it; a model can take minutes to load.",
            detail=type(error).__name__,
        )
    return EngineUnreachable(
        f"The server at {where} does not speak HTTP as an engine.",
        "Check the address and the port.",
        detail=type(error).__name__,
    )


def not_an_engine(where: str, what: str) -> EngineFailed:
    """Something answers, and it is not an engine."""
    return EngineFailed(
        f"{where} is not an engine: {what}.",
        "Check the address and the port: another program may listen there.",
    )


def closed_at_once(error: Exception) -> bool:
    """The connection was accepted and closed before a byte of an answer."""
    import httpx2

    if isinstance(error, httpx2.RemoteProtocolError):
        return str(error).startswith("Server disconnected")
    return isinstance(error, httpx2.ReadError | httpx2.WriteError)


def refused(error: BaseException) -> bool:
    """Nothing listens. A name with two addresses fails with a group."""
    found: list[BaseException] = [error]
    for cause in found:
        behind = [each for each in (cause.__cause__, cause.__context__) if each is not None]
        behind += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        found += [each for each in behind if all(each is not one for one in found)]
    return any(isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED for cause in found)


# --- the API ----------------------------------------------------------------------------------------------


class VllmApi:
    """The EngineApi port. One pool of connections per scheme, for all engines; with `uds` through that socket."""

    def __init__(self, read_seconds: float = READ_SECONDS, uds: str = "") -> None:
        self._read_seconds = read_seconds
        self._pools = ClientPools(read_seconds, uds=uds)

    async def close(self) -> None:
        await self._pools.close()

    async def health(self, endpoint: Endpoint) -> Health:
        """Never raises. SGLang and llama.cpp answer 503 while they load; vLLM's 503 is a dead engine core.

        Docker's port proxy accepts for a container in which nothing listens yet, and then closes without a word.
        """
        import httpx2

        runtime = runtime_named(endpoint.runtime)
        try:
            async with asyncio.timeout(runtime.health_seconds):
                status, body = await _get(self._pools, endpoint, runtime.health_path, MAX_ERROR_BYTES)
        except httpx2.ConnectError as error:
            return Health.NOT_LISTENING if refused(error) else Health.UNKNOWN
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError) as error:
            return Health.NOT_LISTENING if closed_at_once(error) else Health.UNKNOWN
        except (httpx2.HTTPError, httpx2.InvalidURL, ApiKeyRejected, TimeoutError):
            return Health.UNKNOWN
        if status == 200 or (status in (401, 403) and runtime.health_path == runtime.models_path):  # it wants its key
            return Health.OK
        if status == 503:
            return Health.LOADING if runtime.loading_503 or is_loading(body.decode("utf-8", "replace")) else Health.DEAD
        return Health.FAILING if status >= 500 else Health.UNKNOWN

    async def models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        """`/v1/models`; raises ApiKeyRejected, EngineUnreachable, EngineFailed when the answer is something else.

        Of a server that lists its whole store, only the model that this endpoint is for, if it names one.
        """
        runtime = runtime_named(endpoint.runtime)
        answer = await self._get_json(endpoint, runtime.models_path)
        entries = answer.get("data", "") if isinstance(answer, dict) else ""
        if entries is None and runtime.lists_more:
            entries = []  # how Ollama writes an empty list
        if not isinstance(entries, list):
            raise not_an_engine(endpoint.base_url, f"{runtime.models_path} does not list models")
        models = tuple(_served(entry) for entry in entries if isinstance(entry, dict) and entry.get("id"))
        if not (runtime.lists_more and endpoint.model):
            return models
        return tuple(model for model in models if with_tag(model.id) == with_tag(endpoint.model))

    async def version(self, endpoint: Endpoint) -> str:
        runtime = runtime_named(endpoint.runtime)
        for path in runtime.version_paths:
            answer = await self._get_json(endpoint, path, optional=True)
            version = answer.get(runtime.version_key) if isinstance(answer, dict) else None
            if isinstance(version, str) and version:
                return version
        return ""

    async def _get_json(self, endpoint: Endpoint, path: str, *, optional: bool = False) -> Any:
        import httpx2

        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status, body = await _get(self._pools, endpoint, path, MAX_JSON_BYTES + 1)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise unreachable(endpoint.base_url, error, ANSWER_SECONDS) from None
        if optional and status in _NO_SUCH_PAGE:
            return None
        if status != 200:
            raise api_error(status, body[:MAX_ERROR_BYTES].decode("utf-8", "replace"), path=path)
        if len(body) > MAX_JSON_BYTES:
            raise not_an_engine(endpoint.base_url, f"{path} answered with more than {human_bytes(MAX_JSON_BYTES)}")
        try:
            return load_json(body)
        except ValueError:
            raise not_an_engine(endpoint.base_url, f"{path} did not answer with JSON") from None

    async def chat(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """Streams an answer. Closing this closes the connection, which frees the server's slot.

        Raises the API part of the error tree, after the events that came before the failure.
        """
        try:
            async with aclosing(self._answer(endpoint, request)) as events:
                async for event in events:
                    yield event
        except ModelNotServed as error:
            if error.served:
                raise
            served: tuple[str, ...] = ()
            with suppress(SparkError):  # an error message is no place for a second error
                served = tuple(model.id for model in await self.models(endpoint))
            raise model_not_served(request.model, served, detail=error.detail) from None

    async def _answer(self, endpoint: Endpoint, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        reader, path = StreamReader(), runtime_named(endpoint.runtime).chat_path
        try:
            async with aclosing(self.ask(endpoint, path, request_bytes(request))) as payloads:
                while not reader.done:
                    async with asyncio.timeout(END_SECONDS if reader.finished else None):
                        data = await anext(payloads, None)
                    if data is None:
                        break
                    for event in reader.read(data):
                        yield event
        except (EngineUnreachable, ReplyCutOff, TimeoutError):
            if not reader.finished:
                raise
        reader.close()

    async def ask(self, endpoint: Endpoint, path: str, body: bytes) -> AsyncGenerator[str, None]:
        """The data of the answer's events; of a server that does not stream, its one JSON text."""
        import httpx2

        boundary = body[2:].partition(b"\r")[0] if body.startswith(b"--") else b""
        kind = b"multipart/form-data; boundary=" + boundary if boundary else b"application/json"

        begun = False
        try:
            async with self._pools.of(endpoint).stream(
                "POST",
                endpoint.base_url + path,
                content=body,
                headers={"Content-Type": kind.decode(), "Accept": "text/event-stream"},
                auth=bearer(endpoint),
            ) as response:
                if response.status_code != 200:
                    raise api_error(response.status_code, await _error_body(response), path=path)
                begun = True
                async with aclosing(_payloads(endpoint, response)) as payloads:
                    async for data in payloads:
                        yield data
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            if not begun:
                raise unreachable(endpoint.base_url, error, self._read_seconds) from None
            if isinstance(error, httpx2.TimeoutException):
                raise EngineUnreachable(
                    f"The engine stopped mid-answer: no data for {human_duration(self._read_seconds)}.",
                    "The partial answer is kept. The engine may hang: check its log, then restart it.",
                ) from None
            raise ReplyCutOff(
                "The connection to the engine broke mid-answer.",
                "The partial answer is kept. Check the engine's log, then ask again.",
                detail=type(error).__name__,
            ) from None
        except EventTooLong as error:
            raise EngineFailed(f"The engine sent {error}.", "Ask again, or check the engine's log.") from None


async def _get(
    pools: ClientPools, endpoint: Endpoint, path: str, most: int, most_of_error: int = 0
) -> tuple[int, bytes]:
    """Status and body, as much of it as is of use."""
    async with pools.of(endpoint).stream("GET", endpoint.base_url + path, auth=bearer(endpoint)) as response:
        return response.status_code, await beginning_of(
            response, most if response.status_code == 200 else most_of_error or most
        )


async def _payloads(endpoint: Endpoint, response: httpx2.Response) -> AsyncGenerator[str, None]:
    """The stream's data, or the one JSON text of a server that does not stream. Raises EventTooLong."""
    kind = response.headers.get("content-type", "").lower()
    if "html" in kind:
        raise not_an_engine(endpoint.base_url, "it answers with a web page")
    if kind.startswith("application/json"):
        body = await beginning_of(response, MAX_EVENT_BYTES + 1)
        if len(body) > MAX_EVENT_BYTES:
            raise EventTooLong("an answer that is too long")
        yield body.decode("utf-8", "replace")
        return
    decoder, size = SseDecoder(), 0
    async with aclosing(pieces_of(response, MAX_STREAM_BYTES)) as pieces:
        async for piece in pieces:
            size += len(piece)
            for data in decoder.feed(piece):
                yield data
    if size >= MAX_STREAM_BYTES:
        raise EventTooLong(f"more than {human_bytes(MAX_STREAM_BYTES)} as one answer")


async def _error_body(response: httpx2.Response) -> str:
    """An error's body; empty when it breaks off or dribbles: the status alone says enough."""
    import httpx2

    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(ANSWER_SECONDS):
            return (await beginning_of(response, MAX_ERROR_BYTES)).decode("utf-8", "replace")
    return ""


def _served(entry: dict[str, Any]) -> ServedModel:
    length = entry.get("max_model_len")
    return ServedModel(
        str(entry["id"]),
        str(entry.get("root") or ""),
        length if isinstance(length, int) else None,
        entry.get("serving") is not False,
        str(entry.get("owned_by") or ""),
    )


# --- metrics ----------------------------------------------------------------------------------------------


class NotMetrics(ValueError):
    """Not a metrics page that can be used, and why."""


class PageReader:
    """Reads pages of any servers. What it keeps is bounded."""

    def __init__(self) -> None:
        self._known: dict[bytes, Source | None] = {}

    def read(self, text: bytes) -> MetricPage:
        """A page; lines that are not wanted, or not in the format, are passed over.

        Raises NotMetrics when there is no wanted series at all, or far too many.
        """
        page = page_of(self._samples(text))
        if not page.groups:
            raise NotMetrics("no engine metrics")
        return page

    def _samples(self, text: bytes) -> Iterator[tuple[Slot, float]]:
        known, count = self._known, 0
        for line in text.split(b"\n"):
            if line[:1] == b"#":
                continue
            series, _, figure = line.rpartition(b" ")
            source = known.get(series)
            found: tuple[Source, float] | None = None
            if source is not None:
                with suppress(ValueError):
                    found = source, float(figure)
            elif series not in known and line.partition(b"{")[0].partition(b" ")[0] in _WANTED:
                found = self._parse(line)
            if found is None:
                continue
            count += 1
            if count > MAX_SERIES:
                raise NotMetrics(f"more than {MAX_SERIES:,} engine series")
            source, value = found
            yield source.slot, value if source.constant is None else source.constant

    def _parse(self, line: bytes) -> tuple[Source, float] | None:
        """A series that is met for the first time; None for what is not in the format or not wanted."""
        from prometheus_client.parser import text_string_to_metric_families

        if len(line) > MAX_LINE_BYTES:
            return None
        try:
            families = list(text_string_to_metric_families(line.decode("utf-8", "replace") + "\n"))
        except (ValueError, IndexError, KeyError):  # what the parser raises at garbage
            return None
        samples = [sample for family in families for sample in family.samples]
        if len(samples) != 1:
            return None
        sample = samples[0]
        source = source_of(sample.name, sample.labels)
        if sample.timestamp is None:  # with a time behind the figure, the line's last word is not the figure
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[line.rpartition(b" ")[0]] = source
        return None if source is None else (source, float(sample.value))


class HttpMetrics:
    """The MetricsSource port. One pool of connections per scheme, for all engines; with `uds` through that socket."""

    def __init__(self, read_seconds: float = PAGE_SECONDS, uds: str = "") -> None:
        self._read_seconds = read_seconds
        self._pools = ClientPools(read_seconds, uds=uds)
        self._reader = PageReader()

    async def close(self) -> None:
        await self._pools.close()

    async def read(self, endpoint: Endpoint) -> MetricPage:
        import httpx2

        runtime = runtime_named(endpoint.runtime)
        path = runtime.metrics_path
        if not path:
            raise MetricsUnavailable(
                f"{runtime.title} publishes no metrics.", "Only its log and its API are available."
            )
        elsewhere = "Check the address and the port"
        try:
            # A label may name a port above 65535, at which the socket raises what no HTTP library expects.
            urlsplit(endpoint.base_url).port  # noqa: B018 - the port is checked when it is asked for
            async with asyncio.timeout(self._read_seconds):
                status, body = await _get(self._pools, endpoint, path, MAX_PAGE_BYTES + 1, MAX_ERROR_BYTES)
        except ValueError as error:
            raise unreachable(endpoint.base_url, httpx2.InvalidURL(str(error)), self._read_seconds) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise unreachable(endpoint.base_url, error, self._read_seconds) from None
        if status in _NO_SUCH_PAGE:
            option = f"Start it with {runtime.metrics_option}" if runtime.metrics_option else elsewhere
            option = "Chat, bench and prove need none" if runtime is ANY else option
            raise MetricsUnavailable(f"{runtime.title} has no page {path} (HTTP {status}).", f"{option}.")
        if status != 200:
            raise api_error(status, body.decode("utf-8", "replace"), path=path)
        problem = f"more than {human_bytes(MAX_PAGE_BYTES)}" if len(body) > MAX_PAGE_BYTES else ""
        if not problem:
            try:
                return self._reader.read(body)
            except NotMetrics as error:
                problem = str(error)
        remedy = f"{elsewhere}: another program may listen there."
        if runtime.id == "vllm":
            remedy = "vLLM publishes none with --disable-log-stats. Otherwise another program may listen there."
        raise EngineFailed(f"{endpoint.base_url}{path} cannot be used: {problem}.", remedy)
