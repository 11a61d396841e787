"""The HubClient port on huggingface_hub, which is imported when the Hub is first asked.

The Hub's answers come from outside: what has another shape than documented counts as absent. Of files only the
beginnings are read (configs, headers of weights): never a tensor, never without bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.checkpoint import CheckpointFacts, CheckpointProblem, WeightFormat
from spark_tui.domain.models.config import MOST_BYTES, Keys, quantization_of
from spark_tui.domain.models.hub import (
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
from spark_tui.domain.models.hub_errors import repo_page
from spark_tui.domain.models.weights import (
    LENGTH_BYTES,
    SafetensorsHeader,
    header_length,
    parse_header,
    read_checkpoint,
)
from spark_tui.domain.reading import Reading
from spark_tui.domain.secret import Secret
from spark_tui.domain.text import clean_line, truncate
from spark_tui.services.executors import CallPool
from spark_tui.services.hub.session import (
    HubCall,
    NoResponse,
    calling,
    describe,
    endpoint_of,
    plain_headers,
    prepare,
    raise_for_status,
    token_of,
)

WORKERS: Final = 4
_MARGIN: Final = 4
"""Hits asked for beyond the wish, times the wish: filters take some away."""
_MOST_ASKED: Final = 200
_EXPAND: Final = (
    "author", "config", "downloads", "gated", "gguf", "lastModified", "likes", "pipeline_tag", "private", "safetensors",
    "tags", "usedStorage",
)  # fmt: skip


class HuggingFaceHub:
    """The Hub of `HF_ENDPOINT`, else huggingface.co."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.endpoint = endpoint_of(environ)
        self._pool = CallPool("hub", WORKERS)

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        """See the port."""
        filtered = bool(query.formats) or query.fits or query.most_bytes is not None
        limit = min(_MOST_ASKED, query.limit * (_MARGIN if filtered else 1) + 10)

        def ask() -> list[SearchHit]:
            api = self._api(token)
            return [
                hit_of(info)
                for words, tag in asked(query)
                for info in api.list_models(
                    search=words or None, filter=tag or None, author=query.publisher or None, sort=query.sort.value,
                    limit=limit, expand=list(_EXPAND),
                )
            ]  # fmt: skip

        call = HubCall(self.endpoint, known=bool(token))
        return ranked(await self._pool.run(calling, call, ask), query)

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        """See the port."""

        def ask() -> RepoFacts:
            api = self._api(token)
            info = api.model_info(repo, revision=revision)
            tree = api.list_repo_tree(repo, recursive=True, revision=info.sha or revision)
            return facts_of(info, files_of(tree), revision, self.endpoint)

        return await self._pool.run(calling, HubCall(self.endpoint, repo, revision, known=bool(token)), ask)

    async def access(self, repo: str, token: Secret | None = None) -> None:
        """See the port."""
        call = HubCall(self.endpoint, repo, known=bool(token))
        await self._pool.run(calling, call, lambda: self._api(token).auth_check(repo))

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        """See the port."""

        def read() -> Reading[CheckpointFacts]:
            prepare()
            source = f"{facts.page} at {facts.commit[:12] or facts.revision}"
            files = RemoteFiles(facts, self.endpoint, token)
            return read_checkpoint(files, source, licence=facts.licence, most_files=MOST_SHARDS)

        return await self._pool.run(read)

    async def close(self) -> None:
        """See the port."""
        self._pool.close()

    def _api(self, token: Secret | None) -> Any:
        prepare()
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
        """See CheckpointFiles."""
        return self._sizes

    def head(self, path: str, most: int) -> bytes | None:
        """See CheckpointFiles."""
        return self._read(path, 0, most) if path in self._sizes else None

    def headers(self, paths: Sequence[str]) -> list[SafetensorsHeader | CheckpointProblem]:
        """Some at once. The first error of the Hub ends it: the others would fail the same way."""
        from concurrent.futures import ThreadPoolExecutor

        if not paths:
            return []
        with ThreadPoolExecutor(min(READERS, len(paths))) as pool:
            futures = [pool.submit(self.header, path) for path in paths]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def header(self, path: str) -> SafetensorsHeader | CheckpointProblem:
        """One file's tensors."""
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
        """So many bytes from `begin` on, or as many as there are. Raises SparkError."""
        repo, revision = self._facts.repo, self._facts.revision

        def ranged() -> bytes:
            from httpx2 import TransportError
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
                try:
                    for chunk in response.iter_raw():
                        parts.append(chunk[:left])
                        left -= len(parts[-1])
                        if left <= 0:
                            break
                except TransportError as error:
                    raise NoResponse(describe(error)) from error
                return b"".join(parts)[skip:]

        return calling(HubCall(self._endpoint, repo, revision, path, known=bool(self._token)), ranged)


# --- the answers as facts -------------------------------------------------------------------------------------

_MOST_FILES: Final = 20_000
_MOST_TAGS: Final = 200
_LARGEST: Final = 2**53
_WORD_CHARS: Final = 200


def hit_of(info: Any) -> SearchHit:
    """A `ModelInfo` of a search."""
    tags, dtypes = _texts(info.tags), _dtypes(info)
    gguf = info.gguf if isinstance(info.gguf, Mapping) else None
    repo = _text(info.id)
    return SearchHit(
        repo=repo,
        publisher=_text(info.author) or repo.partition("/")[0],
        formats=formats_of(repo, tags, dtypes, _stated(info.config)),
        parameters=sum(count for _, count in dtypes) or (_count(gguf.get("total")) if gguf else None),
        weights=weights_of(dtypes),
        storage=_count(info.used_storage),
        gating=_gating(info.gated),
        private=info.private is True,
        downloads=_count(info.downloads),
        likes=_count(info.likes),
        modified=_seconds(info.last_modified),
        task=_text(info.pipeline_tag),
        licence=_licence(info, tags),
        gguf=gguf is not None or "gguf" in tags,
    )


def facts_of(info: Any, files: Sequence[RepoFile], revision: str, endpoint: str) -> RepoFacts:
    """A `ModelInfo` of one revision, and its files."""
    tags, dtypes = _texts(info.tags), _dtypes(info)
    card = _card(info)
    repo = _text(info.id)
    return RepoFacts(
        repo=repo,
        revision=revision,
        commit=commit_of(info),
        files=tuple(files),
        page=repo_page(endpoint, repo),
        publisher=_text(info.author) or repo.partition("/")[0],
        gating=_gating(info.gated),
        private=info.private is True,
        licence=_licence(info, tags),
        licence_link=_link(card.get("license_link"), endpoint, repo),
        downloads=_count(info.downloads),
        likes=_count(info.likes),
        modified=_seconds(info.last_modified),
        created=_seconds(info.created_at),
        task=_text(info.pipeline_tag),
        library=_text(info.library_name),
        base_models=_listed(card.get("base_model")),
        tags=tags,
        languages=_listed(card.get("language")),
        dtypes=dtypes,
        formats=formats_of(repo, tags, dtypes, _stated(info.config)),
        storage=_count(info.used_storage),
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


def _gating(value: Any) -> Gating:
    if value == "manual":
        return Gating.MANUAL
    return Gating.AUTO if value == "auto" or value is True else Gating.OPEN


def _dtypes(info: Any) -> tuple[tuple[str, int], ...]:
    found = getattr(info.safetensors, "parameters", None)
    if not isinstance(found, Mapping):
        return ()
    counts = [(_text(name), number) for name, value in found.items() if (number := _count(value)) is not None]
    return tuple(sorted(counts, key=lambda each: -each[1]))


def _stated(config: Any) -> tuple[WeightFormat, ...]:
    """The formats by the config's own keys, of which the Hub tells some; empty where they say nothing certain."""
    if not isinstance(config, Mapping):
        return ()
    found = quantization_of(Keys(config, []), None)
    return found.formats if found is not None and found.method else ()


def _licence(info: Any, tags: Iterable[str]) -> str:
    """By its card, with the name behind `other`; else by the tag that the Hub makes of it."""
    card = _card(info)
    plain = _text(card.get("license"))
    if plain in ("", "other"):
        plain = _text(card.get("license_name")) or plain
    return plain or next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")


def _card(info: Any) -> Mapping[str, Any]:
    card = info.card_data
    if isinstance(card, Mapping):
        return card
    told = card.to_dict() if card is not None and hasattr(card, "to_dict") else {}
    return told if isinstance(told, Mapping) else {}


def _link(value: Any, endpoint: str, repo: str) -> str:
    """A link as it is, or to a file of the repository. Anything but the web is dropped: a card may hold any text."""
    text = _text(value)
    if text.startswith(("https://", "http://")):
        return text
    plain = text and "://" not in text and ":" not in text and not text.startswith("/")
    return f"{repo_page(endpoint, repo)}/blob/main/{text}" if plain else ""


def _listed(value: Any) -> tuple[str, ...]:
    return _texts([value] if isinstance(value, str) else value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(_text(item) for item in value[:_MOST_TAGS] if isinstance(item, str))


def _text(value: Any) -> str:
    return truncate(clean_line(value), _WORD_CHARS) if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else None


def _seconds(value: Any) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else None
