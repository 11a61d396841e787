"""What the Hub says of a model repository, and which of many are worth a look on one Spark.

Sizes are in bytes. None: the Hub does not say. Names and words from the Hub are cleaned where they enter.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import WeightFormat
from spark_tui.base.quantities import GIB
from spark_tui.catalog.models.model.inspection import SPARK_MEMORY
from spark_tui.catalog.models.model.weights import BITS, format_in

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


class RepoFile(Struct, frozen=True):
    """One file of a revision. `blob_id` is its git SHA-1; `sha256` is that of its content, for what git LFS keeps."""

    path: str
    size: int | None
    blob_id: str = ""
    sha256: str = ""

    @property
    def digest(self) -> str:
        """What the Hub and its cache call the content: SHA-256 for large files, git's SHA-1 for the others."""
        return self.sha256 or self.blob_id


class Formats(Struct, frozen=True):
    """The formats of weights, the main one first, where that is from, and the evidence against it."""

    found: tuple[WeightFormat, ...] = ()
    basis: FormatBasis = FormatBasis.UNKNOWN
    doubt: str = ""

    @property
    def words(self) -> str:
        """`NVFP4`, `FP8 + NVFP4`; empty when not known."""
        return " + ".join(self.found)


class SearchHit(Struct, frozen=True):
    """One repository in a list. `weights` are the bytes of its tensors by their dtypes; `storage` is all that the
    repository takes on the Hub, other revisions and copies included. `modified` is in seconds since the epoch, `memory`
    the bytes of the machine that `fits` is about."""

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
        """By the weights alone: YES leaves 8 GiB for the KV cache besides what system and engine take."""
        if self.weights is None:
            return Fits.UNKNOWN
        room = self.memory - _REST_BYTES - self.weights
        if room < 0:
            return Fits.NO
        return Fits.YES if room >= _ROOM_BYTES else Fits.TIGHT


class RepoFacts(SearchHit, frozen=True):
    """One revision of a repository. `commit` is what `revision` led to; `files` are all of it, in path order; empty in
    a search. `page` is the web page with the card and the terms."""

    revision: str = "main"
    commit: str = ""
    files: tuple[RepoFile, ...] = ()
    page: str = ""
    licence_link: str = ""
    library: str = ""
    base_models: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """All files together; None when one of them has no known size."""
        return sum_known(file.size for file in self.files)


def sum_known(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


class SearchQuery(Struct, frozen=True):
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


def weights_of(dtypes: Iterable[tuple[str, int]]) -> int | None:
    """Bytes of a number of elements by dtype; None for a dtype that is not known, and for none at all."""
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
    """The format of a repository that is not downloaded: by its config's own keys (`stated`), its tags, its name, and
    for unquantized weights by their dtypes. In doubt where the tensors cannot be of that format."""
    held = {dtype for dtype, count in dtypes if count}
    short = (tag.lower() for tag in tags if len(tag) <= 16 and ":" not in tag)  # longer tags hold other words
    for candidates, basis in (
        ((form for form in stated if form is not WeightFormat.OTHER), FormatBasis.CONFIG),
        (map(format_in, short), FormatBasis.TAGS),
        ((format_in(name.rpartition("/")[2]),), FormatBasis.NAME),
    ):
        found = tuple(dict.fromkeys(form for form in candidates if form is not None))
        if found:
            # Weights of four bits are packed into whole bytes or words: without any, the format's name is wrong.
            unpacked = found[0] in _FOUR_BIT and not held.intersection(_PACKED)
            wide = found[0] is WeightFormat.FP8 and not any(dtype.startswith("F8") for dtype in held)
            wrong = held and (unpacked or wide)
            tensors = ", ".join(sorted(held))
            return Formats(found, basis, f"called {found[0]}, but its tensors are {tensors}" if wrong else "")
    for dtype, form in (("BF16", WeightFormat.BF16), ("F16", WeightFormat.FP16)):
        if dtype in held and held <= {dtype, "F32", "I64"}:
            return Formats((form,), FormatBasis.CONFIG)
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
    """What to ask the Hub, as (words, tag): some names hold a format and some tags do, so both are asked."""
    if not query.formats:
        return ((query.text, ""),)
    words = ["NVFP4" if form is WeightFormat.NVFP4_W4A16 else form.value for form in query.formats]
    by_name = [(f"{query.text} {word}".strip(), "") for word in words]
    by_tag = [(query.text, word.lower()) for word in words]
    return tuple(dict.fromkeys([*by_name, *by_tag]))


def ranked(hits: Iterable[SearchHit], query: SearchQuery) -> tuple[SearchHit, ...]:
    """What fits a query, each repository once, in the order asked for. The Hub's own order counts for the rest."""
    once = {hit.repo: hit for each in hits if matches(hit := replace(each, memory=query.memory), query)}
    figures: dict[Sort, Callable[[SearchHit], float]] = {
        Sort.DOWNLOADS: lambda hit: hit.downloads or 0,
        Sort.LIKES: lambda hit: hit.likes or 0,
        Sort.UPDATED: lambda hit: hit.modified or 0.0,
    }
    found: list[SearchHit] = list(once.values())
    if query.sort in figures:
        found.sort(key=figures[query.sort], reverse=True)
    return tuple(found[: query.limit])


_COPIES: Final = ("original/", "metal/", "onnx/", "openvino/", "coreml/", "gguf/", "mlx/")
"""Folders that hold the same weights again. gpt-oss has two of them: three times its size in all."""
_OTHER_WEIGHTS: Final = (
    ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".tflite", ".onnx", ".onnx_data", ".gguf", ".pkl", ".npz",
)  # fmt: skip
_SMALL: Final = 16 * 1024 * 1024
"""A `.bin` of this size is a vocabulary or a training argument: not worth leaving out, perhaps needed."""
_PART: Final = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")


class Skipped(Struct, frozen=True):
    """A file that is not fetched, and why."""

    path: str
    size: int | None
    why: str


class Selection(Struct, frozen=True):
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
        hits = {name: [file for file in plain if fnmatch.fnmatchcase(file.path, name) or file.path == name]
                for name in only}  # fmt: skip
        named = {file.path: file for found in hits.values() for file in found}
        missing = tuple(name for name, found in hits.items() if not found)
        return Selection(tuple(named[path] for path in sorted(named)), missing=missing)
    if everything:
        return Selection(tuple(plain))
    tops = [file.path for file in plain if file.path.endswith(".safetensors") and "/" not in file.path]
    if not tops:  # PyTorch's own files, or GGUF: of these one choice among many
        choices = gguf_choices(file for file in plain if file.path.endswith(".gguf"))
        return Selection(choices=choices) if len(choices) > 1 else Selection(tuple(plain))
    drop = ""
    notes: tuple[str, ...] = ()
    if all(any(top.startswith(copy) for top in tops) for copy in ("consolidated", "model")):
        if load_format == "mistral":
            drop = "model"
        elif load_format and load_format != "auto":
            drop = "consolidated"
        else:
            notes = ("Holds its weights twice (consolidated, model). Both are downloaded: the engine chooses.",)
    kept, left = [], []
    for file in plain:
        path = file.path
        if path.startswith(_COPIES):
            why = "another copy of the weights"
        elif drop and path.startswith(drop) and path.endswith(".safetensors"):
            why = "the same weights in the other layout"
        elif path.endswith(_OTHER_WEIGHTS) and (file.size or 0) > _SMALL:
            why = "weights in a format that is not needed beside safetensors"
        else:
            kept.append(file)
            continue
        left.append(Skipped(path, file.size, why))
    return Selection(tuple(kept), tuple(left), notes=notes)


def _is_plain(path: str) -> bool:
    """A path that stays in its folder, and that a file system takes. The Hub's names come from strangers."""
    parts = path.split("/")
    return bool(path) and len(path) < 1024 and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def gguf_choices(files: Iterable[RepoFile]) -> tuple[tuple[str, int | None], ...]:
    """GGUF files by name and size; the parts of a split file are one. `mmproj` files are no models."""
    sizes: dict[str, int | None] = {}
    for file in files:
        if "mmproj" not in file.path.lower():
            name = _PART.sub("-*", file.path)
            sizes[name] = sum_known((sizes.get(name, 0), file.size))
    return tuple(sorted(sizes.items()))
