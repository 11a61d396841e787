"""The Hub's answers as facts. They come from outside: what has another shape than documented counts as not told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from spark_tui.domain.models.checkpoint import WeightFormat
from spark_tui.domain.models.hub import Gating, RepoFacts, RepoFile, SearchHit, formats_of, weights_of
from spark_tui.domain.models.hub_errors import repo_page
from spark_tui.domain.models.json_keys import Keys
from spark_tui.domain.models.quantization import quantization_of
from spark_tui.domain.text import clean_line, truncate

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
