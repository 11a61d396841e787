"""Ollama's list of models, over its API. Read only: nothing there is loaded, pulled or changed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from spark_tui.base.errors import UnreachableError, UsageError
from spark_tui.base.text import clean_line, truncate
from spark_tui.base.untrusted import load_json
from spark_tui.catalog.models.model.ollama import PORT, OllamaModels, models_in
from spark_tui.machine.engine_http import beginning_of, new_client

ANSWER_SECONDS: Final = 10.0
MAX_BYTES: Final = 8 * 1024 * 1024
VARIABLE: Final = "OLLAMA_HOST"
_ADDRESS: Final = re.compile(r"(?:(https?)://)?(\[[0-9a-f:.]+\]|[\w.-]*)(?::(\d{1,5}))?(?:/.*)?", re.ASCII)
_ALL: Final = ("0.0.0.0", "::", "")  # noqa: S104 - where a server listens; a client asks this machine


class OllamaUnreachable(UnreachableError, id="ollama_unreachable"):
    """No Ollama answers at an address."""


class HttpOllama(Struct):
    """The OllamaApi port."""

    _environ: Mapping[str, str]
    _seconds: float = ANSWER_SECONDS

    async def models(self, address: str = "") -> OllamaModels:
        import httpx2

        base = base_url(address or self._environ.get(VARIABLE, ""))
        try:
            async with (
                asyncio.timeout(self._seconds),
                new_client(self._seconds, secure=base.startswith("https:")) as client,
                client.stream("GET", f"{base}/api/tags") as response,
            ):
                status = response.status_code
                body = await beginning_of(response, MAX_BYTES + 1)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            why = f"no answer within {self._seconds:g} s" if isinstance(error, TimeoutError) else clean_line(str(error))
            raise _failed(base, truncate(why, 120) or "no answer") from None
        if status != 200:
            raise _failed(base, f"it answered {status}")
        if len(body) > MAX_BYTES:
            raise _failed(base, f"its list is longer than {MAX_BYTES >> 20} MiB")
        try:
            return models_in(load_json(body), base)
        except ValueError:
            raise _failed(base, "it answered without a list of models") from None


def base_url(text: str) -> str:
    """The address of a server as OLLAMA_HOST has it: `HOST`, `HOST:PORT`, `:PORT`, or with a scheme. Raises
    UsageError."""
    match = _ADDRESS.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(
            f"{truncate(clean_line(text), 60)!r} is no address of an Ollama.", "For example: http://127.0.0.1:11434"
        )
    scheme, host, port = match.groups()
    host = "127.0.0.1" if host.strip("[]") in _ALL else host
    default = PORT if scheme is None else 443 if scheme == "https" else 80
    return f"{scheme or 'http'}://{host}:{port or default}"


def _failed(base: str, why: str) -> OllamaUnreachable:
    return OllamaUnreachable(
        f"No list of models from Ollama at {base}: {why}.",
        f"Start it (ollama serve), or set its address: --address HOST:PORT or {VARIABLE}.",
    )
