"""The Hub: repositories, searches, and its errors."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.checkpoint import WeightFormat
from spark_tui.base.errors import RefusedError, SparkError, UnreachableError, UsageError
from spark_tui.base.quantities import GIB, human_bytes, human_duration
from spark_tui.base.text import clean_line, quoted, truncate
from spark_tui.catalog.models.model.inspection import SPARK_MEMORY
from spark_tui.catalog.models.model.weights import BITS, format_in

KEEP_FREE: Final = 1024**3
"""Bytes: a download stops before the disk is full, since engines and the machine need some of it too."""
_DETAIL_CHARS: Final = 2_000
_LOG_IN: Final = "log in (hf auth login) or set HF_TOKEN."


class HubFailed(SparkError, id="hub_failed"):
    """The Hub answered, and refused or failed for a reason of its own."""


class HubOffline(UnreachableError, id="hub_offline"):
    """The Hub does not answer, or is disabled."""


class HubSwitchedOff(HubOffline):
    """HF_HUB_OFFLINE is set."""


class HubBusy(UnreachableError, id="hub_rate_limited"):
    """HTTP 429 or 5xx. `wait` is in seconds, None when the Hub does not say how long."""

    def __init__(self, summary: str, remedy: str, *, detail: str = "", wait: float | None = None) -> None:
        super().__init__(summary, remedy, detail=detail)
        self.wait = wait


class HubGated(HubFailed, id="hub_gated", exit_code=RefusedError.exit_code):
    """The licence is not accepted, or not approved yet."""


class HubTokenRejected(HubFailed, id="hub_token_rejected"):
    """The token is wrong, expired, or may not read this."""


class HubMissing(HubFailed, exit_code=UsageError.exit_code):
    """What was asked for does not exist, or not for this token."""


class HubRepoMissing(HubMissing, id="hub_repo_missing"):
    pass


class HubRevisionMissing(HubMissing, id="hub_revision_missing"):
    pass


class HubFileMissing(HubMissing, id="hub_file_missing"):
    pass


class HubFileTooLarge(HubFailed, id="hub_file_too_large"):
    """Larger than the Hub hands out over HTTP, and Xet is not available."""


class ChecksumMismatch(HubFailed, id="hub_checksum_mismatch"):
    pass


class DiskFull(SparkError, id="disk_full"):
    pass


class StoreNotWritable(SparkError, id="store_not_writable"):
    pass


class DownloadFailed(SparkError, id="download_failed"):
    """The download's own process failed."""


_BY_ID: Final[dict[str, type[SparkError]]] = {
    kind.id: kind
    for kind in (
        HubFailed,
        HubOffline,
        HubBusy,
        HubGated,
        HubTokenRejected,
        HubRepoMissing,
        HubRevisionMissing,
        HubFileMissing,
        HubFileTooLarge,
        ChecksumMismatch,
        DiskFull,
        StoreNotWritable,
        DownloadFailed,
    )
}


def error_named(identity: str, summary: str, remedy: str, detail: str = "") -> SparkError:
    """An error that another process met; DownloadFailed where its kind is not known."""
    return _BY_ID.get(identity, DownloadFailed)(summary, remedy, detail=detail)


def repo_page(endpoint: str, repo: str) -> str:
    """Where a person reads about a repository, and accepts its licence."""
    return f"{endpoint.rstrip('/')}/{repo}"


def host_of(endpoint: str) -> str:
    """`https://huggingface.co` -> `huggingface.co`."""
    return shown(endpoint.partition("://")[2] or endpoint).rstrip("/")


def shown(name: str) -> str:
    return truncate(clean_line(name), 120)


def _detail(text: str) -> str:
    return truncate(clean_line(text), _DETAIL_CHARS)


# --- the Hub ----------------------------------------------------------------------------------------------


def offline(endpoint: str, why: str) -> HubOffline:
    remedy = "Check the network (and HTTPS_PROXY behind a proxy), then try again."
    return HubOffline(f"{host_of(endpoint)} does not answer.", remedy, detail=_detail(why))


def cut_off(endpoint: str, file: str, why: str) -> HubOffline:
    """An answer began and broke off."""
    remedy = "Check the network (HF_ENDPOINT, HTTPS_PROXY), then try again."
    what = shown(file) if file else "its answer"
    return HubOffline(f"{host_of(endpoint)} did not send all of {what}.", remedy, detail=_detail(why))


def switched_off() -> HubSwitchedOff:
    return HubSwitchedOff("The Hub is disabled: HF_HUB_OFFLINE is set.", "Unset HF_HUB_OFFLINE and try again.")


def busy(endpoint: str, wait: float | None, *, known: bool) -> HubBusy:
    """HTTP 429. `wait` in seconds."""
    when = f"Try again in {human_duration(wait)}" if wait else "Try again in a few minutes"
    more = "." if known else "; the limit is higher with a token: " + _LOG_IN
    return HubBusy(f"{host_of(endpoint)}: too many requests.", when + more, wait=wait)


def in_trouble(endpoint: str, status: int) -> HubBusy:
    """HTTP 5xx."""
    remedy = "Try again in a few minutes. Status: https://status.huggingface.co"
    return HubBusy(f"{host_of(endpoint)} has a server problem (HTTP {status}).", remedy)


def gated(endpoint: str, repo: str, *, known: bool, detail: str = "") -> HubGated:
    more = " with your token's account; some authors approve by hand." if known else f", then {_LOG_IN}"
    remedy = f"Accept the licence on {repo_page(endpoint, repo)}{more}"
    return HubGated(f"{shown(repo)} is gated: licence not accepted.", remedy, detail=_detail(detail))


def bad_token(detail: str = "") -> HubTokenRejected:
    """HTTP 401 with a token."""
    remedy = f"Make a new one on https://huggingface.co/settings/tokens, then {_LOG_IN}"
    return HubTokenRejected("The Hub rejected your Hugging Face token.", remedy, detail=_detail(detail))


def forbidden(endpoint: str, repo: str, detail: str = "") -> HubTokenRejected:
    """HTTP 403: the token is valid, but not for this."""
    remedy = f"Give it read access to this repository, or ask its owner: {repo_page(endpoint, repo)}"
    return HubTokenRejected(f"Your Hugging Face token cannot read {shown(repo)}.", remedy, detail=_detail(detail))


def repo_missing(repo: str, *, known: bool) -> HubRepoMissing:
    """HTTP 404, or a private one."""
    more = "" if known else f" Private repositories need a token: {_LOG_IN}"
    remedy = f"Search for it: spark-tui models search {quoted(repo.rpartition('/')[2])}.{more}"
    return HubRepoMissing(f"No repository {shown(repo)} (or no access to it).", remedy)


def revision_missing(repo: str, revision: str) -> HubRevisionMissing:
    return HubRevisionMissing(f"{shown(repo)} has no revision {shown(revision)}.", "Omit it to use the main branch.")


def file_missing(repo: str, file: str) -> HubFileMissing:
    remedy = f"List the files: spark-tui models pull {quoted(repo)} --dry-run"
    return HubFileMissing(f"{shown(repo)} has no file {shown(file)}.", remedy)


def nothing_to_load(repo: str) -> HubFileMissing:
    """An empty repository, or weights in a format that no engine here reads."""
    remedy = "See its page, or download everything with --all-files."
    return HubFileMissing(f"{shown(repo)} has no file that an engine can load.", remedy)


def needs_choice(repo: str, names: Sequence[str]) -> HubFileMissing:
    """GGUF repositories hold one model in many sizes."""
    remedy = f"Name one: spark-tui models pull {quoted(repo)} --file {quoted(names[0])}"
    detail = ", ".join(shown(name) for name in names)
    return HubFileMissing(f"{shown(repo)} holds {len(names)} models: choose one.", remedy, detail=detail)


def too_large(file: str, size: int) -> HubFileTooLarge:
    """The Hub hands out files of up to 50 GB over HTTP."""
    remedy = "Unset HF_HUB_DISABLE_XET and install hf-xet, then resume."
    return HubFileTooLarge(f"{shown(file)} ({human_bytes(size)}) is available over Xet only.", remedy)


def strange_answer(endpoint: str, why: str) -> HubFailed:
    """Something that is not the Hub's API."""
    remedy = "Check HF_ENDPOINT and HTTPS_PROXY."
    return HubFailed(f"{host_of(endpoint)} did not answer like the Hub.", remedy, detail=_detail(why))


def too_long(url: str, most: int) -> HubFailed:
    """An answer to one question that does not end. `most` in bytes."""
    remedy = "Check HF_ENDPOINT and HTTPS_PROXY: another server may answer there."
    return HubFailed(
        f"{host_of(url).partition('/')[0]} sent more than {human_bytes(most)} as one answer.",
        remedy,
        detail=_detail(url),
    )


def other(what: str, detail: str) -> HubFailed:
    return HubFailed(what, "Try again. The Hub's own message is below.", detail=_detail(detail))


# --- the disk ---------------------------------------------------------------------------------------------


def checksum(file: str, expected: str, found: str) -> ChecksumMismatch:
    remedy = "Try again. If it persists, a proxy changes the data, or disk or memory is failing."
    detail = f"expected {expected}, got {found}"
    return ChecksumMismatch(f"{shown(file)} arrived damaged, twice.", remedy, detail=detail)


def selection_problem(repo: str, found: Selection) -> HubFileMissing | None:
    """Why these files cannot be downloaded as they are; None when they can."""
    if found.missing:
        return file_missing(repo, found.missing[0])
    if found.choices:
        return needs_choice(repo, [name for name, _ in found.choices])
    return None if found.files else nothing_to_load(repo)


def no_room(store: str, needed: int, free: int) -> DiskFull:
    """Before a download: bytes still to download, and bytes free."""
    remedy = f"Delete unused models (spark-tui models list, spark-tui models rm NAME), or move {store}."
    return DiskFull(
        f"Not enough disk space: {human_bytes(needed)} to download, {human_bytes(free)} free in the store.", remedy
    )


def disk_full(store: str) -> DiskFull:
    remedy = "Free some space (spark-tui models list, spark-tui models rm NAME), then resume the download."
    return DiskFull(f"The disk of {store} is full; the data so far is kept.", remedy)


def not_writable(path: str, why: str) -> StoreNotWritable:
    """Often root's: a container made it."""
    remedy = "If a container made it as root, take it over: sudo chown -R $(id -u):$(id -g) FOLDER (the model store)."
    return StoreNotWritable(f"{path} cannot be written: {why}.", remedy)


# --- hub -------------------------------------------------------------------------------------------------


_REST_BYTES: Final = 13 * GIB
"""What weights cannot have: 6 GiB that stay free, 4 for the system, 3 for the engine's runtime and workspace."""
_ROOM_BYTES: Final = 8 * GIB
"""KV cache and graphs below which a model starts and serves one short conversation, not more."""
_PACKED: Final = ("U8", "I8", "I32", "U32", "F4")
_FOUR_BIT: Final = (
    WeightFormat.NVFP4,
    WeightFormat.NVFP4_W4A16,
    WeightFormat.MXFP4,
    WeightFormat.FP4,
    WeightFormat.INT4,
)


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
    given = list(sizes)
    known = [size for size in given if size is not None]
    return sum(known) if len(known) == len(given) else None


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
    bits = sum_known(BITS[dtype] * count if dtype in BITS else None for dtype, count in dtypes)
    return bits // 8 or None if bits is not None else None


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
        hits = {
            name: [file for file in plain if fnmatch.fnmatchcase(file.path, name) or file.path == name] for name in only
        }
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
