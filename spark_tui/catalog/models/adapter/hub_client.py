"""The HubClient port on huggingface_hub, which is imported when the Hub is first asked.

The library repeats failed requests by itself and sleeps in between, where nothing can show it. Here a request is sent
once: the caller decides whether to wait, and says so. `NoResponse` and `RetryLater` carry what happened; they are no
errors of httpx2, so that the library lets them through.

The Hub's answers come from outside: what has another shape than documented counts as absent. Of files only the
beginnings are read (configs, headers of weights): never a tensor, never without bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, TypeVar

from msgspec import Struct

from spark_tui.base.checkpoint import CheckpointFacts, CheckpointProblem, WeightFormat
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import CallPool
from spark_tui.base.finding import Reading
from spark_tui.base.secret import Secret
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.models.model import hub as hub_errors
from spark_tui.catalog.models.model.config import MOST_BYTES, Keys, quantization_of
from spark_tui.catalog.models.model.hub import (
    Gating,
    RepoFacts,
    RepoFile,
    SearchHit,
    SearchQuery,
    asked,
    formats_of,
    ranked,
    weights_of,
)
from spark_tui.catalog.models.model.weights import (
    LENGTH_BYTES,
    SafetensorsHeader,
    header_length,
    parse_header,
    read_checkpoint,
)

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 20.0
MOST_WAIT_SECONDS: Final = 3600.0
CALL_SECONDS: Final = 120.0
"""For all answers to one question; bytes of files are not asked for in it."""
MOST_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Of one answer, unpacked. A page of a list has below 1 MiB, a card with all its files a few."""
MOST_REFUSAL_BYTES: Final = 16 * 1024
_SWITCHED_OFF: Final = "HF_HUB_OFFLINE is set"
_NO_END: Final = "its answer did not end in time"
_RATE: Final = re.compile(r"\br\s*=\s*0\s*;\s*t\s*=\s*(\d{1,6})")

R = TypeVar("R")
_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class NoResponse(Exception):
    """Nothing came back: no route, a refused connection, a timeout, a connection cut off."""


class CutOff(NoResponse):
    """An answer began, and did not come whole."""


class RetryLater(Exception):
    """The Hub answered 429 or 5xx. `wait` is in seconds, None when it does not say."""

    def __init__(self, status: int, wait: float | None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.wait = wait


def endpoint_of(environ: Mapping[str, str]) -> str:
    """Where the Hub is: `HF_ENDPOINT`, as the Hugging Face tools have it, without its last slash."""
    given = environ.get("HF_ENDPOINT", "").strip().rstrip("/")
    return given if given.startswith(("http://", "https://")) else DEFAULT_ENDPOINT


@functools.lru_cache(maxsize=1)
def prepare(uds: str) -> None:
    """Gives huggingface_hub our session, before each question. A process asks one Hub: that of the network, or with
    `uds` all that it asks is behind that unix socket, and nothing leaves the machine."""
    import httpx2
    from huggingface_hub import constants, set_client_factory

    timeouts = {"connect": CONNECT_SECONDS, "read": READ_SECONDS, "write": READ_SECONDS, "pool": CONNECT_SECONDS}

    class HubSession(httpx2.Client):
        """One try for each request, with bounds: the library asks for none in places."""

        def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
            if constants.HF_HUB_OFFLINE and not uds:
                raise NoResponse(_SWITCHED_OFF)
            request.extensions["timeout"] = timeouts
            if uds:
                request.url = request.url.copy_with(scheme="http")
            time_left()
            try:
                response = super().send(request, stream=True, **options)
            except httpx2.TransportError as error:
                raise NoResponse(describe(error)) from error
            if response.status_code == 429 or response.status_code >= 500:
                response.close()
                raise RetryLater(response.status_code, pause_asked(response.headers))
            return response if stream else whole(response)

    class BoundedStream(httpx2.SyncByteStream):
        """The bytes of a body as they come: of a refusal only the beginning, of a redirect none, and none after the end
        of the call's time."""

        def __init__(self, response: httpx2.Response) -> None:
            self._stream: Any = response.stream
            refused = MOST_REFUSAL_BYTES * (not response.has_redirect_location)
            self._left = sys.maxsize if response.is_success else refused

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._stream:
                time_left()
                yield chunk[: self._left]
                self._left -= len(chunk)
                if self._left <= 0:
                    break

        def close(self) -> None:
            self._stream.close()

    def bound(response: httpx2.Response) -> None:
        response.stream = BoundedStream(response)

    def whole(response: httpx2.Response) -> httpx2.Response:
        """The response with all of its body, which is unpacked in pieces: a small one may unpack to any size."""
        body = bytearray()
        with whole_answer(), contextlib.closing(response):
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MOST_ANSWER_BYTES:
                    raise hub_errors.too_long(str(response.request.url), MOST_ANSWER_BYTES)
        headers = [each for each in response.headers.multi_items() if each[0].lower() != "content-encoding"]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)

    limits = httpx2.Limits(max_connections=64, max_keepalive_connections=16)
    set_client_factory(
        lambda: HubSession(
            follow_redirects=True,
            limits=limits,
            event_hooks={"response": [bound]},
            transport=httpx2.HTTPTransport(verify=False, uds=uds) if uds else None,  # neither a proxy nor https
        )
    )


@contextlib.contextmanager
def whole_answer() -> Iterator[None]:
    """Where the body of an answer is read. Raises CutOff in place of the library's errors."""
    from httpx2 import TransportError

    try:
        yield
    except TransportError as error:
        raise CutOff(describe(error)) from error


def time_left() -> None:
    """Raises CutOff after the end of the call's time."""
    if time.monotonic() > _deadline.get():
        raise CutOff(_NO_END)


def limit_time(seconds: float = CALL_SECONDS) -> None:
    """How long all requests of this thread may take from now on, until it is called again: a list of the Hub can have
    any number of pages, and a page can come byte by byte."""
    _deadline.set(time.monotonic() + seconds)


def describe(error: BaseException) -> str:
    """An exception in words: `ConnectError: [Errno 111] Connection refused`."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def pause_asked(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: by `ratelimit: "api";r=0;t=55` (an IETF draft, which the Hub follows), else `Retry-After`."""
    rate = _RATE.search(headers.get("ratelimit", ""))
    plain = headers.get("retry-after", "").strip()
    seconds = rate[1] if rate else plain
    return min(float(seconds), MOST_WAIT_SECONDS) if seconds.isdigit() and len(seconds) < 8 else None


class HubCall(Struct, frozen=True):
    """What a request is about, for its errors. `known`: a token is sent."""

    endpoint: str
    repo: str = ""
    revision: str = "main"
    file: str = ""
    known: bool = False


def plain_headers(token: Secret | None) -> dict[str, str]:
    """For a file's bytes as they are. The session drops the token where the Hub leads to another host."""
    headers = {"User-Agent": "spark-tui", "Accept-Encoding": "identity"}
    return headers | {"Authorization": f"Bearer {token.reveal()}"} if token else headers


def raise_for_status(response: Any) -> None:
    """Raises the library's own error for an answer that is none."""
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]  # documented, not exported

    hf_raise_for_status(response)


def token_of(token: Secret | None) -> str | bool:
    """As huggingface_hub takes it; False keeps it from looking for one by itself."""
    return token.reveal() if token else False


def calling(asked: HubCall, call: Callable[[], R], seconds: float = CALL_SECONDS) -> R:
    """Runs `call`. Raises SparkError for all that the library raises."""
    limit_time(seconds)
    try:
        return call()
    except SparkError:
        raise
    except Exception as error:
        raise translate(error, asked) from error


def translate(error: BaseException, asked: HubCall) -> SparkError:
    """An error of the library or of our session, with its remedy."""
    if isinstance(error, NoResponse):
        if str(error) == _SWITCHED_OFF:
            return hub_errors.switched_off()
        if isinstance(error, CutOff):
            return hub_errors.cut_off(asked.endpoint, asked.file, str(error))
        return hub_errors.offline(asked.endpoint, str(error))
    if isinstance(error, RetryLater):
        if error.status == 429:
            return hub_errors.busy(asked.endpoint, error.wait, known=asked.known)
        return hub_errors.in_trouble(asked.endpoint, error.status)
    from huggingface_hub import errors

    message = str(getattr(error, "server_message", None) or "")
    match error:
        case errors.GatedRepoError():
            return hub_errors.gated(asked.endpoint, asked.repo, known=asked.known, detail=message)
        case errors.RevisionNotFoundError():
            return hub_errors.revision_missing(asked.repo, asked.revision)
        case errors.EntryNotFoundError():
            return hub_errors.file_missing(asked.repo, asked.file or "of that name")
        case errors.HFValidationError():
            return hub_errors.repo_missing(asked.repo, known=asked.known)
        case errors.HfHubHTTPError():
            pass
        case _:
            return hub_errors.strange_answer(asked.endpoint, describe(error))
    status, code = error.response.status_code, error.response.headers.get("X-Error-Code", "")
    # RepositoryNotFoundError is raised for a bare 401 too: with a token, the token is wrong.
    if status == 401 and asked.known and "RepoNotFound" not in code:
        return hub_errors.bad_token(message)
    if status == 403:
        return hub_errors.forbidden(asked.endpoint, asked.repo, message)
    if status in (401, 404):
        return hub_errors.repo_missing(asked.repo, known=asked.known)
    return hub_errors.other(f"{hub_errors.host_of(asked.endpoint)} refused (HTTP {status}).", message or str(error))


WORKERS: Final = 4
_MARGIN: Final = 4
"""Hits asked for beyond the wish, times the wish: filters take some away."""
_MOST_ASKED: Final = 200
_EXPAND: Final = (
    "author", "config", "downloads", "gated", "gguf", "lastModified", "likes", "pipeline_tag", "private", "safetensors",
    "tags", "usedStorage",
)  # fmt: skip


class HuggingFaceHub:
    """The Hub of `HF_ENDPOINT`, else huggingface.co; with `uds` it is behind that unix socket. `seconds` is how long
    the answers to one question may take."""

    def __init__(self, environ: Mapping[str, str], seconds: float = CALL_SECONDS, uds: str = "") -> None:
        self.endpoint = endpoint_of(environ)
        self._seconds = seconds
        self._uds = uds
        self._pool = CallPool("hub", WORKERS)

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        filtered = bool(query.formats) or query.fits or query.most_bytes is not None
        limit = min(_MOST_ASKED, query.limit * (_MARGIN if filtered else 1) + 10)

        def ask() -> list[SearchHit]:
            api = self._api(token)
            return [
                facts_of(info, self.endpoint)
                for words, tag in asked(query)
                for info in api.list_models(
                    search=words or None,
                    filter=tag or None,
                    author=query.publisher or None,
                    sort=query.sort.value,
                    limit=limit,
                    expand=list(_EXPAND),
                )
            ]

        call = HubCall(self.endpoint, known=bool(token))
        return ranked(await self._ask(call, ask), query)

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        def ask() -> RepoFacts:
            api = self._api(token)
            info = api.model_info(repo, revision=revision)
            tree = api.list_repo_tree(repo, recursive=True, revision=info.sha or revision)
            return facts_of(info, self.endpoint, files_of(tree), revision)

        return await self._ask(HubCall(self.endpoint, repo, revision, known=bool(token)), ask)

    async def access(self, repo: str, token: Secret | None = None) -> None:
        call = HubCall(self.endpoint, repo, known=bool(token))
        await self._ask(call, lambda: self._api(token).auth_check(repo))

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        def read() -> Reading[CheckpointFacts]:
            prepare(self._uds)
            source = f"{facts.page} at {facts.commit[:12] or facts.revision}"
            files = RemoteFiles(facts, self.endpoint, token)
            return read_checkpoint(files, source, licence=facts.licence, most_files=MOST_SHARDS)

        return await self._pool.run(read)

    async def close(self) -> None:
        self._pool.close()

    async def _ask(self, asked: HubCall, call: Callable[[], R]) -> R:
        try:
            async with asyncio.timeout(self._seconds + READ_SECONDS):  # the head of an answer may come byte by byte too
                return await self._pool.run(calling, asked, call, self._seconds)
        except TimeoutError:
            raise translate(CutOff(_NO_END), asked) from None

    def _api(self, token: Secret | None) -> Any:
        prepare(self._uds)
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=token_of(token))


FIRST_BYTES: Final = 256 * 1024
"""Asked for at once: the headers of most files end within it, and then one request is enough."""
MOST_SHARDS: Final = 1_000
READERS: Final = 6


class RemoteFiles:
    """One revision's files, read by range. The errors of the Hub are raised, what is wrong with a file is a problem."""

    def __init__(self, facts: RepoFacts, endpoint: str, token: Secret | None) -> None:
        self._facts = facts
        self._endpoint = endpoint
        self._token = token
        self._sizes = {file.path: file.size for file in facts.files}

    def names(self) -> Iterable[str]:
        return self._sizes

    def head(self, path: str, most: int) -> bytes | None:
        return self._read(path, 0, most) if path in self._sizes else None

    def headers(self, paths: Sequence[str]) -> list[SafetensorsHeader | CheckpointProblem]:
        """Some at once. The first error of the Hub ends it: the others would fail the same way."""
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(self.header, paths))

    def header(self, path: str) -> SafetensorsHeader | CheckpointProblem:
        name = truncate(clean_line(path), 80)
        if path not in self._sizes:
            return CheckpointProblem(name, "is not in the repository")
        first = self._read(path, 0, FIRST_BYTES)
        length = header_length(first, name)
        if isinstance(length, CheckpointProblem):
            return length
        wanted, size = LENGTH_BYTES + length, self._sizes[path]
        if size is not None and wanted > size:
            return CheckpointProblem(name, f"its header claims {length:,} bytes, the whole file has {size:,}")
        if wanted > len(first):
            first += self._read(path, len(first), wanted - len(first))
        return parse_header(first, file=name, file_size=size)

    def _read(self, path: str, begin: int, length: int) -> bytes:
        """Up to that many bytes from `begin` on. Raises SparkError."""
        repo, revision = self._facts.repo, self._facts.revision

        def ranged() -> bytes:
            from huggingface_hub import get_session, hf_hub_url

            url = hf_hub_url(repo, path, revision=self._facts.commit or revision, endpoint=self._endpoint)
            headers = plain_headers(self._token) | {"Range": f"bytes={begin}-{begin + length - 1}"}
            with get_session().stream("GET", url, headers=headers) as response:
                if response.status_code == 416:
                    return b""
                raise_for_status(response)
                skip = begin if response.status_code == 200 else 0  # a server that knows no ranges sends all of it
                if skip > MOST_BYTES:
                    raise hub_errors.strange_answer(self._endpoint, "it answers a range with the whole file")
                parts: list[bytes] = []
                left = skip + length
                with whole_answer():
                    for chunk in response.iter_raw():
                        parts.append(chunk[:left])
                        left -= len(parts[-1])
                        if left <= 0:
                            break
                return b"".join(parts)[skip:]

        return calling(HubCall(self._endpoint, repo, revision, path, known=bool(self._token)), ranged)


# --- the answers as facts -------------------------------------------------------------------------------------

_MOST_FILES: Final = 20_000
_MOST_TAGS: Final = 200
_LARGEST: Final = 2**53
_WORD_CHARS: Final = 200


def facts_of(info: Any, endpoint: str, files: Sequence[RepoFile] = (), revision: str = "main") -> RepoFacts:
    """A `ModelInfo` of a search, or of one revision with its files."""
    tags, card = _texts(info.tags), info.card_data
    if card is not None and hasattr(card, "to_dict"):
        card = card.to_dict()
    if not isinstance(card, Mapping):
        card = {}
    repo, gguf = _text(info.id), info.gguf if isinstance(info.gguf, Mapping) else None
    counted = getattr(info.safetensors, "parameters", None)
    counts = counted.items() if isinstance(counted, Mapping) else ()
    known = [(_text(name), number) for name, value in counts if (number := _count(value)) is not None]
    dtypes = sorted(known, key=lambda each: -each[1])
    # The config's own keys, of which the Hub has some; they count only where they name a method.
    quantization = quantization_of(Keys(info.config, []), None) if isinstance(info.config, Mapping) else None
    formats: tuple[WeightFormat, ...] = ()
    if quantization is not None and quantization.method:
        formats = quantization.formats
    licence = _text(card.get("license"))
    if licence in ("", "other"):
        licence = _text(card.get("license_name")) or licence
    if not licence:  # the Hub makes a tag of it
        licence = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    gating = {"manual": Gating.MANUAL, "auto": Gating.AUTO, True: Gating.AUTO}
    return RepoFacts(
        repo=repo,
        publisher=_text(info.author) or repo.partition("/")[0],
        formats=formats_of(repo, tags, dtypes, formats),
        parameters=sum(count for _, count in dtypes) or (_count(gguf.get("total")) if gguf else None),
        weights=weights_of(dtypes),
        storage=_count(info.used_storage),
        gating=gating.get(info.gated, Gating.OPEN) if isinstance(info.gated, (str, bool)) else Gating.OPEN,
        private=info.private is True,
        downloads=_count(info.downloads),
        likes=_count(info.likes),
        modified=info.last_modified.timestamp() if isinstance(info.last_modified, datetime) else None,
        task=_text(info.pipeline_tag),
        licence=licence,
        gguf=gguf is not None or "gguf" in tags,
        revision=revision,
        commit=commit_of(info),
        files=tuple(files),
        page=hub_errors.repo_page(endpoint, repo),
        licence_link=_link(card.get("license_link"), endpoint, repo),
        library=_text(info.library_name),
        base_models=_texts(card.get("base_model")),
    )


def files_of(entries: Iterable[Any]) -> tuple[RepoFile, ...]:
    """The files of a tree, in path order; folders are no files."""
    found = []
    for _, entry in zip(range(_MOST_FILES), entries, strict=False):
        if hasattr(entry, "blob_id"):
            lfs = entry.lfs
            size = lfs.size if lfs is not None else entry.size
            sha256 = _hex(lfs.sha256, 64) if lfs is not None else ""
            blob_id = _hex(entry.blob_id, 40) if lfs is None or sha256 else ""  # of LFS it names the pointer only
            found.append(RepoFile(str(entry.path), _count(size), blob_id, sha256))
    return tuple(sorted(found, key=lambda file: file.path))


def commit_of(info: Any) -> str:
    """The commit of a `ModelInfo`; empty when it has none."""
    return _hex(info.sha, 40)


def _hex(value: Any, digits: int) -> str:
    """A digest; empty for anything else, since it becomes a file's name here."""
    text = value.lower() if isinstance(value, str) else ""
    return text if len(text) == digits and not text.strip("0123456789abcdef") else ""


def _link(value: Any, endpoint: str, repo: str) -> str:
    """A link as it is, or to a file of the repository. Anything but the web is dropped: a card may hold any text."""
    text = _text(value)
    if text.startswith(("https://", "http://")):
        return text
    plain = text and "://" not in text and ":" not in text and not text.startswith("/")
    return f"{hub_errors.repo_page(endpoint, repo)}/blob/main/{text}" if plain else ""


def _texts(value: Any) -> tuple[str, ...]:
    """The texts of a list; one text counts as a list of it."""
    items = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return tuple(_text(item) for item in items[:_MOST_TAGS] if isinstance(item, str))


def _text(value: Any) -> str:
    return truncate(clean_line(value), _WORD_CHARS) if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else None
