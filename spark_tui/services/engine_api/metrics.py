"""Engines' metrics pages over HTTP: bounded in time and size, with the key where the engine has one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from spark_tui.domain.engine.api_errors import api_error
from spark_tui.domain.engine.runtimes import Runtime, runtime_named
from spark_tui.domain.engine.state import Endpoint
from spark_tui.domain.errors import EngineFailed, MetricsUnavailable, SparkError
from spark_tui.domain.metrics.page import WANTED_NAMES, MetricPage, Slot, Source, page_of, source_of
from spark_tui.domain.quantities import human_bytes
from spark_tui.services.engine_api.client import unreachable
from spark_tui.services.engine_http import ClientPools, bearer

MAX_SERIES: Final = 5_000
"""Wanted series of one page. Eight data-parallel engines have 1,500."""
MAX_KNOWN: Final = 4 * MAX_SERIES
MAX_LINE_BYTES: Final = 8 * 1024
"""The longest that is wanted, `cache_config_info`, has about 1.5 kB."""

_WANTED: Final = frozenset(name.encode() for name in WANTED_NAMES)


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
            if source is None:
                if series in known or not _is_wanted(line):
                    continue
                found = self._parse(line)
            else:
                value = _figure(figure)
                found = None if value is None else (source, value)
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
            self._remember(line.rpartition(b" ")[0], source)
        return None if source is None else (source, float(sample.value))

    def _remember(self, series: bytes, source: Source | None) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[series] = source


def _is_wanted(line: bytes) -> bool:
    return line.partition(b"{")[0].partition(b" ")[0] in _WANTED


def _figure(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


READ_SECONDS: Final = 4.0
"""For the whole page. An API server that is busy with long prompts takes a second."""
MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
"""vLLM's page has 60 kB, and 30 kB more for each further data-parallel engine."""
MAX_ERROR_BYTES: Final = 16 * 1024
_NO_SUCH_PAGE: Final = (404, 405, 501)


class HttpMetrics:
    """The MetricsSource port. One pool of connections per scheme, for all engines."""

    def __init__(self, read_seconds: float = READ_SECONDS) -> None:
        self._read_seconds = read_seconds
        self._pools = ClientPools(read_seconds)
        self._reader = PageReader()

    async def close(self) -> None:
        """Closes all connections."""
        await self._pools.close()

    async def read(self, endpoint: Endpoint) -> MetricPage:
        """One reading; raises as the port says."""
        import httpx

        runtime = runtime_named(endpoint.runtime)
        if not runtime.metrics_path:
            raise MetricsUnavailable(
                f"{runtime.title} publishes no metrics.", "Only its log and its API are available."
            )
        try:
            _check_port(endpoint.base_url)
            async with asyncio.timeout(self._read_seconds):
                status, body = await self._get(endpoint, runtime.metrics_path)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise unreachable(endpoint.base_url, error, self._read_seconds) from None
        if status != 200:
            raise _refusal(status, body, runtime)
        if len(body) > MAX_PAGE_BYTES:
            raise _no_page(endpoint, runtime, f"more than {human_bytes(MAX_PAGE_BYTES)}")
        try:
            return self._reader.read(body)
        except NotMetrics as error:
            raise _no_page(endpoint, runtime, str(error)) from None

    async def _get(self, endpoint: Endpoint, path: str) -> tuple[int, bytes]:
        """Status and body, as much of it as is of use."""
        request = self._pools.of(endpoint).stream("GET", endpoint.base_url + path, auth=bearer(endpoint))
        async with request as response:
            most = MAX_PAGE_BYTES + 1 if response.status_code == 200 else MAX_ERROR_BYTES
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk[: most - len(body)]
                if len(body) >= most:
                    break
            return response.status_code, bytes(body)


def _check_port(url: str) -> None:
    """A label may name a port above 65535, at which the socket raises what no HTTP library expects."""
    import httpx

    try:
        urlsplit(url).port  # noqa: B018 - the port is looked at when it is asked for
    except ValueError as error:
        raise httpx.InvalidURL(str(error)) from None


def _refusal(status: int, body: bytes, runtime: Runtime) -> SparkError:
    if status in _NO_SUCH_PAGE:
        remedy = (
            f"Start it with {runtime.metrics_option}." if runtime.metrics_option else "Check the address and the port."
        )
        return MetricsUnavailable(f"{runtime.title} has no page {runtime.metrics_path} (HTTP {status}).", remedy)
    return api_error(status, body.decode("utf-8", "replace"), path=runtime.metrics_path)


def _no_page(endpoint: Endpoint, runtime: Runtime, why: str) -> EngineFailed:
    remedy = "Check the address and the port: another program may listen there."
    if runtime.id == "vllm":
        remedy = "vLLM publishes none with --disable-log-stats. Otherwise another program may listen there."
    return EngineFailed(f"{endpoint.base_url}{runtime.metrics_path} cannot be used: {why}.", remedy)
