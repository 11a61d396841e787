"""What the Hub says of a model repository, and which of many are worth a look on one Spark.

Sizes are in bytes. None: the Hub does not say. Names and words from the Hub are cleaned where they enter.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from spark_tui.domain.models.checkpoint import WeightFormat
from spark_tui.domain.models.inspection import SPARK_MEMORY
from spark_tui.domain.models.weights import BITS, format_in
from spark_tui.domain.quantities import GIB

_REST_BYTES: Final = 13 * GIB
"""What weights cannot have: 6 GiB that stay free, 4 for the system, 3 for the engine's runtime and workspace."""
_ROOM_BYTES: Final = 8 * GIB
"""KV cache and graphs below which a model starts and serves one short conversation, not more."""
_PACKED: Final = ("U8", "I8", "I32", "U32", "F4")
_FOUR_BIT: Final = (WeightFormat.NVFP4, WeightFormat.NVFP4_W4A16, WeightFormat.MXFP4, WeightFormat.INT4)


class Gating(StrEnum):
    """Whether files are handed out to everybody. AUTO: after accepting terms; MANUAL: after the makers agree."""

    OPEN = "open"
    AUTO = "accept terms"
    MANUAL = "ask its makers"


class FormatBasis(StrEnum):
    """Where a format is known from, surest first. Names lie: only CONFIG is the checkpoint's own word."""

    CONFIG = "its config"
    TAGS = "its tags"
    NAME = "its name"
    UNKNOWN = "not known"


class Fits(StrEnum):
    """Whether weights of a size leave room on one Spark. A rule of thumb: `spark-tui fit` knows more."""

    YES = "fits"
    TIGHT = "tight"
    NO = "too large"
    UNKNOWN = "unknown"


class Sort(StrEnum):
    """Orders of a search, as the Hub names them."""

    TRENDING = "trending_score"
    DOWNLOADS = "downloads"
    LIKES = "likes"
    UPDATED = "last_modified"
    CREATED = "created_at"


@dataclass(frozen=True, slots=True)
class RepoFile:
    """One file of a revision. `blob_id` is its git SHA-1; `sha256` is that of its content, for what git LFS keeps."""

    path: str
    size: int | None
    blob_id: str = ""
    sha256: str = ""

    @property
    def digest(self) -> str:
        """What the Hub and its cache call the content: SHA-256 for large files, git's SHA-1 for the others."""
        return self.sha256 or self.blob_id


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of weights, the main one first, where that is from, and what speaks against it."""

    found: tuple[WeightFormat, ...] = ()
    basis: FormatBasis = FormatBasis.UNKNOWN
    doubt: str = ""

    @property
    def words(self) -> str:
        """`NVFP4`, `FP8 + NVFP4`; empty when not known."""
        return " + ".join(self.found)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One repository in a list. `weights` are the bytes of its tensors by their dtypes; `storage` is all that the
    repository takes on the Hub, other revisions and copies included. Times are seconds since the epoch."""

    repo: str
    publisher: str = ""
    formats: Formats = Formats()
    parameters: int | None = None
    weights: int | None = None
    storage: int | None = None
    gating: Gating = Gating.OPEN
    private: bool = False
    downloads: int | None = None
    likes: int | None = None
    modified: float | None = None
    task: str = ""
    licence: str = ""
    gguf: bool = False
    memory: int = SPARK_MEMORY

    @property
    def fits(self) -> Fits:
        """On a machine with that much memory (bytes), alone."""
        return fits_one_spark(self.weights, self.memory)


@dataclass(frozen=True, slots=True)
class RepoFacts:
    """One revision of a repository. `commit` is what `revision` led to; `files` are all of it, in path order.

    `page` is where a person reads the card and accepts terms. `dtypes` counts tensor elements by dtype.
    """

    repo: str
    revision: str
    commit: str
    files: tuple[RepoFile, ...]
    page: str = ""
    publisher: str = ""
    gating: Gating = Gating.OPEN
    private: bool = False
    licence: str = ""
    licence_link: str = ""
    downloads: int | None = None
    likes: int | None = None
    modified: float | None = None
    created: float | None = None
    task: str = ""
    library: str = ""
    base_models: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    dtypes: tuple[tuple[str, int], ...] = ()
    formats: Formats = Formats()
    storage: int | None = None
    memory: int = SPARK_MEMORY

    @property
    def size(self) -> int | None:
        """All files together; None when one of them has no known size."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def parameters(self) -> int | None:
        """Elements of all tensors; packed 4-bit weights count two to an element's one."""
        return sum(count for _, count in self.dtypes) or None

    @property
    def weights(self) -> int | None:
        """Bytes of all tensors, by their dtypes."""
        return weights_of(self.dtypes)

    @property
    def fits(self) -> Fits:
        """On a machine with that much memory (bytes), alone."""
        return fits_one_spark(self.weights, self.memory)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What a person looks for. `formats` empty: any. `most_bytes` bounds the weights. `fits`: what a machine
    with `memory` bytes cannot hold is left out; `unknown` keeps hits whose size the Hub does not state."""

    text: str = ""
    formats: tuple[WeightFormat, ...] = ()
    publisher: str = ""
    most_bytes: int | None = None
    fits: bool = False
    unknown: bool = True
    gguf: bool = False
    sort: Sort = Sort.DOWNLOADS
    limit: int = 30
    memory: int = SPARK_MEMORY


def fits_one_spark(weights: int | None, memory: int = SPARK_MEMORY) -> Fits:
    """By the weights alone: YES leaves 8 GiB for the KV cache besides what system and engine take."""
    if weights is None:
        return Fits.UNKNOWN
    room = memory - _REST_BYTES - weights
    if room < 0:
        return Fits.NO
    return Fits.YES if room >= _ROOM_BYTES else Fits.TIGHT


def weights_of(dtypes: Iterable[tuple[str, int]]) -> int | None:
    """Bytes of so many elements by dtype; None for a dtype that is not known, and for none at all."""
    total = 0
    for dtype, count in dtypes:
        bits = BITS.get(dtype)
        if bits is None:
            return None
        total += bits * count
    return total // 8 or None


def formats_of(
    name: str, tags: Iterable[str], dtypes: Iterable[tuple[str, int]], stated: tuple[WeightFormat, ...] = ()
) -> Formats:
    """The format of a repository that is not here: by its config's own word (`stated`), its tags, its name."""
    held = tuple(dict.fromkeys(form for form in stated if form is not WeightFormat.OTHER))
    if held:
        return Formats(held, FormatBasis.CONFIG, _doubt(held, dtypes))
    tagged = tuple(dict.fromkeys(form for tag in tags if (form := _tag_format(tag)) is not None))
    if tagged:
        return Formats(tagged, FormatBasis.TAGS, _doubt(tagged, dtypes))
    named = format_in(name.rpartition("/")[2])
    if named is not None:
        return Formats((named,), FormatBasis.NAME, _doubt((named,), dtypes))
    return _by_dtypes(dtypes)


def _tag_format(tag: str) -> WeightFormat | None:
    """Tags are many, and some of them hold other words: only those that are a format's name count."""
    plain = tag.lower()
    return format_in(plain) if len(plain) <= 16 and ":" not in plain else None


def _doubt(formats: tuple[WeightFormat, ...], dtypes: Iterable[tuple[str, int]]) -> str:
    """Weights of four bits are packed into whole bytes or words: without any, the format's name is wrong."""
    held = {dtype for dtype, count in dtypes if count}
    if held and formats[0] in _FOUR_BIT and not held.intersection(_PACKED):
        return f"called {formats[0]}, but its tensors are {', '.join(sorted(held))}"
    if held and formats[0] is WeightFormat.FP8 and not any(dtype.startswith("F8") for dtype in held):
        return f"called FP8, but its tensors are {', '.join(sorted(held))}"
    return ""


def _by_dtypes(dtypes: Iterable[tuple[str, int]]) -> Formats:
    """Unquantized weights tell it themselves."""
    held = {dtype for dtype, count in dtypes if count}
    if held and held <= {"BF16", "F32", "I64"} and "BF16" in held:
        return Formats((WeightFormat.BF16,), FormatBasis.CONFIG)
    if held and held <= {"F16", "F32", "I64"} and "F16" in held:
        return Formats((WeightFormat.FP16,), FormatBasis.CONFIG)
    return Formats()


def matches(hit: SearchHit, query: SearchQuery) -> bool:
    """Whether a hit is what was asked for. NVFP4 takes its weight-only kind in."""
    if hit.gguf and not query.gguf:
        return False
    wanted = set(query.formats)
    if WeightFormat.NVFP4 in wanted:
        wanted.add(WeightFormat.NVFP4_W4A16)
    if wanted and not wanted.intersection(hit.formats.found):
        return False
    if query.publisher and hit.publisher.lower() != query.publisher.lower():
        return False
    if hit.weights is None:
        return query.unknown or not (query.fits or query.most_bytes is not None)
    if query.most_bytes is not None and hit.weights > query.most_bytes:
        return False
    return not (query.fits and hit.fits is Fits.NO)


def asked(query: SearchQuery) -> tuple[tuple[str, str], ...]:
    """What to ask the Hub, as (words, tag): a format stands in some names and in some tags, so both are asked."""
    if not query.formats:
        return ((query.text, ""),)
    words = [_WORD.get(form, form.value) for form in query.formats]
    by_name = [(f"{query.text} {word}".strip(), "") for word in words]
    by_tag = [(query.text, word.lower()) for word in words]
    return tuple(dict.fromkeys([*by_name, *by_tag]))


_WORD: Final = {WeightFormat.NVFP4_W4A16: "NVFP4"}


def ranked(hits: Iterable[SearchHit], query: SearchQuery) -> tuple[SearchHit, ...]:
    """What fits a query, each repository once, in the order asked for. The Hub's own order counts for the rest."""
    once = {hit.repo: hit for each in hits if matches(hit := replace(each, memory=query.memory), query)}
    found = list(once.values())
    if query.sort is Sort.DOWNLOADS:
        found.sort(key=lambda hit: -(hit.downloads or 0))
    elif query.sort is Sort.LIKES:
        found.sort(key=lambda hit: -(hit.likes or 0))
    elif query.sort is Sort.UPDATED:
        found.sort(key=lambda hit: -(hit.modified or 0.0))
    return tuple(found[: query.limit])


_COPIES: Final = ("original/", "metal/", "onnx/", "openvino/", "coreml/", "gguf/", "mlx/")
"""Folders that hold the same weights again. gpt-oss has two of them: three times its size in all."""
_OTHER_WEIGHTS: Final = (
    ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".tflite", ".onnx", ".onnx_data", ".gguf", ".pkl", ".npz",
)  # fmt: skip
_SMALL: Final = 16 * 1024 * 1024
"""A `.bin` of this size is a vocabulary or a training argument: not worth leaving out, perhaps needed."""
_PART: Final = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not fetched, and why."""

    path: str
    size: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What to fetch. `choices` is filled, and `files` empty, where a person has to choose first: a repository of GGUF
    files holds the same weights in many sizes, one name (of one file or of its parts) each. `missing` are patterns that
    no file fits."""

    files: tuple[RepoFile, ...] = ()
    left_out: tuple[Skipped, ...] = ()
    choices: tuple[tuple[str, int | None], ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def select(
    files: Sequence[RepoFile], *, only: Sequence[str] = (), everything: bool = False, load_format: str = ""
) -> Selection:
    """The files to fetch, in path order. `only` are paths or patterns (`*.json`); `everything` leaves nothing out.

    `load_format` is the engine's `--load-format`: of weights that are there twice, as Mistral's are, one copy is taken
    where it says which.
    """
    plain = [file for file in files if _is_plain(file.path)]
    if only:
        return _named(plain, only)
    if everything:
        return Selection(tuple(plain))
    safe = any(file.path.endswith(".safetensors") and "/" not in file.path for file in plain)
    if not safe:
        return _without_safetensors(plain)
    reasons = _Reasons(plain, load_format)
    kept = tuple(file for file in plain if not reasons.against(file))
    left = tuple(Skipped(file.path, file.size, why) for file in plain if (why := reasons.against(file)))
    return Selection(kept, left, notes=reasons.notes)


def _is_plain(path: str) -> bool:
    """A path that stays in its folder, and that a file system takes. The Hub's names come from strangers."""
    parts = path.split("/")
    return bool(path) and len(path) < 1024 and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def _named(files: Iterable[RepoFile], only: Sequence[str]) -> Selection:
    found: dict[str, RepoFile] = {}
    missing = []
    for pattern in only:
        hits = [file for file in files if file.path == pattern or fnmatch.fnmatchcase(file.path, pattern)]
        if not hits:
            missing.append(pattern)
        found.update((file.path, file) for file in hits)
    return Selection(tuple(sorted(found.values(), key=lambda file: file.path)), missing=tuple(missing))


def _without_safetensors(files: Sequence[RepoFile]) -> Selection:
    """PyTorch's own files, or GGUF: of these one choice among many."""
    models = [file for file in files if file.path.endswith(".gguf")]
    choices = gguf_choices(models)
    if len(choices) > 1:
        return Selection(choices=choices)
    return Selection(tuple(files))


def gguf_choices(files: Iterable[RepoFile]) -> tuple[tuple[str, int | None], ...]:
    """GGUF files by name and size; the parts of a split file are one. `mmproj` files are no models."""
    sizes: dict[str, int | None] = {}
    for file in files:
        if "mmproj" in file.path.lower():
            continue
        name = _PART.sub("-*", file.path)
        before = sizes.get(name, 0)
        sizes[name] = None if before is None or file.size is None else before + file.size
    return tuple(sorted(sizes.items()))


class _Reasons:
    """Why a file of a repository with safetensors is left out."""

    def __init__(self, files: Sequence[RepoFile], load_format: str) -> None:
        names = [file.path for file in files]
        one = any(name.startswith("consolidated") and name.endswith(".safetensors") for name in names)
        other = any(name.startswith("model") and name.endswith(".safetensors") for name in names)
        self._drop = ""
        self.notes: tuple[str, ...] = ()
        if one and other:
            if load_format == "mistral":
                self._drop = "model"
            elif load_format and load_format != "auto":
                self._drop = "consolidated"
            else:
                self.notes = (
                    "Holds its weights twice (consolidated, model). Both are downloaded: the engine chooses.",
                )

    def against(self, file: RepoFile) -> str:
        """Empty: it is fetched."""
        path = file.path
        if path.startswith(_COPIES):
            return "another copy of the weights"
        if self._drop and path.startswith(self._drop) and path.endswith(".safetensors"):
            return "the same weights in the other layout"
        if path.endswith(_OTHER_WEIGHTS) and (file.size or 0) > _SMALL:
            return "weights in a format that is not needed beside safetensors"
        return ""
