"""Reads the beginnings of files on the Hub: configs, and headers of weights. Never a tensor, never without bound."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Final

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models import hub_errors
from spark_tui.domain.models.checkpoint import CheckpointFacts, CheckpointProblem, WeightFormat
from spark_tui.domain.models.config import MOST_BYTES, BadJson, Keys, quantization_of, read_object
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
    CONFIG,
    GENERATION,
    HF_QUANT,
    INDEX,
    LENGTH_BYTES,
    MOST_CONFIG_BYTES,
    MOST_TEMPLATE_BYTES,
    TEMPLATE,
    TOKENIZER,
    Parts,
    SafetensorsHeader,
    checkpoint_of,
    header_length,
    parse_header,
    weight_files,
)
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.secret import Secret
from spark_tui.domain.text import clean_line, truncate
from spark_tui.services.executors import CallPool
from spark_tui.services.hub.session import (
    Asked,
    Unanswered,
    calling,
    endpoint_of,
    plain_headers,
    prepare,
    raise_for_status,
    token_of,
    words_of,
)

FIRST_BYTES: Final = 256 * 1024
"""Asked for at once: the headers of most files end within it, and then one request is enough."""
MOST_SHARDS: Final = 1_000
READERS: Final = 6


class RemoteFiles:
    """Reads one revision's files by range."""

    def __init__(self, facts: RepoFacts, endpoint: str, token: Secret | None) -> None:
        self._facts = facts
        self._endpoint = endpoint
        self._token = token
        self._sizes = {file.path: file.size for file in facts.files}

    def __contains__(self, path: str) -> bool:
        return path in self._sizes

    def checkpoint(self) -> Reading[CheckpointFacts]:
        """All that its configs and headers say. Raises the errors of the Hub when nothing can be read at all."""
        if CONFIG not in self:
            return Missing(f"it has no {CONFIG}")
        config = self._object(CONFIG, MOST_CONFIG_BYTES)
        if isinstance(config, CheckpointProblem):
            return Missing(f"{config.file}: {config.reason}")
        problems: list[CheckpointProblem] = []
        index = self._optional(INDEX, MOST_BYTES, problems)
        files = weight_files(index, self._sizes, MOST_SHARDS)
        parts = Parts(
            config,
            hf_quant=self._optional(HF_QUANT, MOST_CONFIG_BYTES, problems),
            generation=self._optional(GENERATION, MOST_CONFIG_BYTES, problems),
            index=index,
            template=self._template(),
            tokenizer=self._optional(TOKENIZER, MOST_CONFIG_BYTES, problems) if TEMPLATE not in self else None,
            licence=self._facts.licence,
            headers=self._headers(files),
            problems=problems,
        )
        source = f"{self._facts.page} at {self._facts.commit[:12] or self._facts.revision}"
        return Ok(checkpoint_of(parts, source))

    def header(self, path: str) -> SafetensorsHeader | CheckpointProblem:
        """One file's tensors. What is wrong with the file is a problem; what is wrong with the Hub is raised."""
        name = truncate(clean_line(path), 80)
        if path not in self:
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

    # --- one at a time ----------------------------------------------------------------------------------

    def _object(self, path: str, most: int) -> dict[str, Any] | CheckpointProblem:
        data = self._read(path, 0, most + 1)
        if len(data) > most:
            return CheckpointProblem(path, f"larger than {most >> 20} MiB")
        try:
            return read_object(data)
        except BadJson as error:
            return CheckpointProblem(path, str(error))

    def _template(self) -> str | None:
        if TEMPLATE not in self:
            return None
        return self._read(TEMPLATE, 0, MOST_TEMPLATE_BYTES).decode("utf-8", "replace")

    def _optional(self, path: str, most: int, problems: list[CheckpointProblem]) -> dict[str, Any] | None:
        if path not in self:
            return None
        found = self._object(path, most)
        if isinstance(found, CheckpointProblem):
            problems.append(found)
            return None
        return found

    def _read(self, path: str, begin: int, length: int) -> bytes:
        """So many bytes from `begin` on, or as many as there are. Raises SparkError."""
        asked = Asked(self._endpoint, self._facts.repo, revision=self._facts.revision, file=path, token=self._token)
        return calling(asked, lambda: self._ranged(path, begin, length))

    def _ranged(self, path: str, begin: int, length: int) -> bytes:
        from httpx2 import TransportError
        from huggingface_hub import get_session, hf_hub_url

        revision = self._facts.commit or self._facts.revision
        url = hf_hub_url(self._facts.repo, path, revision=revision, endpoint=self._endpoint)
        headers = plain_headers(self._token) | {"Range": f"bytes={begin}-{begin + length - 1}"}
        with get_session().stream("GET", url, headers=headers) as response:
            if response.status_code == 416:
                return b""
            raise_for_status(response)
            skip = begin if response.status_code == 200 else 0  # a server that knows no ranges sends all of it
            if skip > MOST_BYTES:
                raise hub_errors.strange_answer(self._endpoint, "it answers a range with the whole file")
            try:
                return _first_bytes(response, skip, length)
            except TransportError as error:
                raise Unanswered(words_of(error)) from error

    # --- many at once -----------------------------------------------------------------------------------

    def _headers(self, files: Sequence[str]) -> list[SafetensorsHeader | CheckpointProblem]:
        """In the order of `files`. The first error of the Hub ends it: the others would fail the same way."""
        futures: list[Future[SafetensorsHeader | CheckpointProblem]] = [Future() for _ in files]
        waiting = iter(list(zip(files, futures, strict=True)))
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    path, future = next(waiting, ("", None))
                if future is None:
                    return
                try:
                    future.set_result(self.header(path))
                except SparkError as error:
                    future.set_exception(error)
                    return

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(READERS, len(files)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for future in futures:
            if future.done() and (error := future.exception()) is not None:
                raise error
        return [future.result() for future in futures if future.done()]


def _first_bytes(response: Any, skip: int, length: int) -> bytes:
    parts: list[bytes] = []
    left = skip + length
    for chunk in response.iter_raw():
        parts.append(chunk[:left])
        left -= len(parts[-1])
        if left <= 0:
            break
    return b"".join(parts)[skip:]


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


WORKERS: Final = 4
_MARGIN: Final = 4
"""Hits asked for beyond the wish, times the wish: filters take some away."""
_MOST_ASKED: Final = 200
_TOLD: Final = (
    "author", "config", "downloads", "gated", "gguf", "lastModified", "likes", "pipeline_tag", "private", "safetensors",
    "tags", "usedStorage",
)  # fmt: skip


class HuggingFaceHub:
    """The Hub of `HF_ENDPOINT`, else huggingface.co."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.endpoint = endpoint_of(environ)
        self._pool = CallPool("hub", WORKERS)

    async def search(self, query: SearchQuery, token: Secret | None = None) -> tuple[SearchHit, ...]:
        """What fits the query, best first; empty when nothing does."""
        return await self._pool.run(self._search, query, token)

    async def repo(self, repo: str, revision: str = "main", token: Secret | None = None) -> RepoFacts:
        """One revision: facts of its card, and all its files with sizes."""
        return await self._pool.run(self._repo, repo, revision, token)

    async def access(self, repo: str, token: Secret | None = None) -> None:
        """Returns when this token may fetch the repository's files; raises HubGated, HubTokenRejected, ..."""
        await self._pool.run(self._access, repo, token)

    async def inspect(self, facts: RepoFacts, token: Secret | None = None) -> Reading[CheckpointFacts]:
        """What a checkpoint's config, index and tensor headers say of it, without fetching a tensor."""
        return await self._pool.run(self._inspect, facts, token)

    async def close(self) -> None:
        """Ends its threads."""
        self._pool.close()

    # --- on a thread --------------------------------------------------------------------------------------

    def _api(self, token: Secret | None) -> Any:
        prepare()
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=token_of(token))

    def _search(self, query: SearchQuery, token: Secret | None) -> tuple[SearchHit, ...]:

        filtered = bool(query.formats) or query.fits or query.most_bytes is not None
        limit = min(_MOST_ASKED, query.limit * (_MARGIN if filtered else 1) + 10)
        hits: list[SearchHit] = []
        for words, tag in asked(query):

            def ask(words: str = words, tag: str = tag) -> list[SearchHit]:
                found = self._api(token).list_models(
                    search=words or None, filter=tag or None, author=query.publisher or None, sort=query.sort.value,
                    limit=limit, expand=list(_TOLD),
                )  # fmt: skip
                return [hit_of(info) for info in found]

            hits += calling(Asked(self.endpoint, token=token), ask)
        return ranked(hits, query)

    def _repo(self, repo: str, revision: str, token: Secret | None) -> RepoFacts:

        def ask() -> RepoFacts:
            api = self._api(token)
            info = api.model_info(repo, revision=revision)
            tree = api.list_repo_tree(repo, recursive=True, revision=info.sha or revision)
            return facts_of(info, files_of(tree), revision, self.endpoint)

        return calling(Asked(self.endpoint, repo, revision=revision, token=token), ask)

    def _access(self, repo: str, token: Secret | None) -> None:
        calling(Asked(self.endpoint, repo, token=token), lambda: self._api(token).auth_check(repo))

    def _inspect(self, facts: RepoFacts, token: Secret | None) -> Reading[CheckpointFacts]:

        prepare()
        return RemoteFiles(facts, self.endpoint, token).checkpoint()
