"""What can go wrong between the Hub and the disk: one error for each, with what the person does next.

A worker process hands its error over as (`id`, `summary`, `remedy`, `detail`); `error_named` makes it one again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.domain.errors import RefusedError, SparkError, UnreachableError, UsageError
from spark_tui.domain.quantities import human_bytes, human_duration
from spark_tui.domain.text import clean_line, truncate

KEEP_FREE: Final = 1024**3
"""A download stops before the disk is full: an engine, and this machine, need some of it too."""
_DETAIL_CHARS: Final = 2_000
_LOG_IN: Final = "log in (hf auth login) or set HF_TOKEN."


class HubFailed(SparkError):
    """The Hub answered, and refused or failed for a reason of its own."""

    id = "hub_failed"


class HubOffline(UnreachableError):
    """The Hub does not answer, or may not be asked."""

    id = "hub_offline"


class HubSwitchedOff(HubOffline):
    """HF_HUB_OFFLINE is set."""


class HubBusy(UnreachableError):
    """HTTP 429, or the Hub is in trouble. `wait` is in seconds, None when it does not say how long."""

    id = "hub_rate_limited"

    def __init__(self, summary: str, remedy: str, *, detail: str = "", wait: float | None = None) -> None:
        super().__init__(summary, remedy, detail=detail)
        self.wait = wait


class HubGated(HubFailed):
    """Terms have to be accepted first."""

    id = "hub_gated"
    exit_code = RefusedError.exit_code


class HubTokenRejected(HubFailed):
    """The token is wrong, expired, or may not read this."""

    id = "hub_token_rejected"


class HubRepoMissing(HubFailed):
    """No such repository, or none that this token may see."""

    id = "hub_repo_missing"
    exit_code = UsageError.exit_code


class HubRevisionMissing(HubFailed):
    """The repository has no such branch, tag or commit."""

    id = "hub_revision_missing"
    exit_code = UsageError.exit_code


class HubFileMissing(HubFailed):
    """The repository has no such file."""

    id = "hub_file_missing"
    exit_code = UsageError.exit_code


class HubFileTooLarge(HubFailed):
    """Larger than the Hub hands out over HTTP, and the other way is not there."""

    id = "hub_file_too_large"


class ChecksumMismatch(HubFailed):
    """What arrived is not what the Hub says it is."""

    id = "hub_checksum_mismatch"


class DiskFull(SparkError):
    """There is no room in the model store."""

    id = "disk_full"


class StoreNotWritable(SparkError):
    """The model store cannot be written."""

    id = "store_not_writable"


class DownloadFailed(SparkError):
    """The download's own process failed."""

    id = "download_failed"


def repo_page(endpoint: str, repo: str) -> str:
    """Where a person reads about a repository, and accepts its terms."""
    return f"{endpoint.rstrip('/')}/{repo}"


def offline(endpoint: str, why: str) -> HubOffline:
    """Nothing came back from the Hub."""
    return HubOffline(
        f"{host_of(endpoint)} does not answer.",
        "See whether this machine is online (and behind a proxy: HTTPS_PROXY); then try again.",
        detail=_detail(why),
    )


def switched_off() -> HubSwitchedOff:
    """HF_HUB_OFFLINE."""
    return HubSwitchedOff("The Hub is disabled: HF_HUB_OFFLINE is set.", "Unset HF_HUB_OFFLINE and try again.")


def busy(endpoint: str, wait: float | None, *, known: bool) -> HubBusy:
    """HTTP 429. `wait` in seconds; `known`: a token was sent."""
    when = f"Try again in {human_duration(wait)}" if wait else "Try again in some minutes"
    more = "." if known else "; more is allowed with a token: " + _LOG_IN
    return HubBusy(f"{host_of(endpoint)} asks for a pause: too many requests.", when + more, wait=wait)


def in_trouble(endpoint: str, status: int) -> HubBusy:
    """HTTP 5xx."""
    return HubBusy(
        f"{host_of(endpoint)} is in trouble (HTTP {status}).",
        "Try again in some minutes; https://status.huggingface.co tells how long.",
    )


def gated(endpoint: str, repo: str, *, known: bool, detail: str = "") -> HubGated:
    """`known`: a token was sent, so it is the terms that are missing."""
    more = " with the account of your token; some makers answer by hand." if known else f", then {_LOG_IN}"
    remedy = f"Accept its terms on {repo_page(endpoint, repo)}{more}"
    return HubGated(f"{shown(repo)} is gated: its terms have not been accepted.", remedy, detail=_detail(detail))


def bad_token(detail: str = "") -> HubTokenRejected:
    """HTTP 401 with a token."""
    return HubTokenRejected(
        "The Hub does not accept your Hugging Face token.",
        f"Make a new one on https://huggingface.co/settings/tokens, then {_LOG_IN}",
        detail=_detail(detail),
    )


def forbidden(endpoint: str, repo: str, detail: str = "") -> HubTokenRejected:
    """HTTP 403: the token is good, and not for this."""
    return HubTokenRejected(
        f"Your Hugging Face token may not read {shown(repo)}.",
        f"Give it read access to this repository, or ask its owner: {repo_page(endpoint, repo)}",
        detail=_detail(detail),
    )


def repo_missing(repo: str, *, known: bool) -> HubRepoMissing:
    """`known`: a token was sent."""
    more = "" if known else f" A private one needs a token: {_LOG_IN}"
    return HubRepoMissing(
        f"There is no repository {shown(repo)} that you may see.",
        f"Look for it: spark-tui models search {shown(repo).rpartition('/')[2]}.{more}",
    )


def revision_missing(repo: str, revision: str) -> HubRevisionMissing:
    """A branch, tag or commit that is not there."""
    return HubRevisionMissing(f"{shown(repo)} has no revision {shown(revision)}.", "Leave it out for its main branch.")


def file_missing(repo: str, file: str) -> HubFileMissing:
    """A file that is not there."""
    return HubFileMissing(
        f"{shown(repo)} has no file {shown(file)}.", f"See what it has: spark-tui models pull {shown(repo)} --dry-run"
    )


def nothing_to_load(repo: str) -> HubFileMissing:
    """An empty repository, or one whose weights are in a format that nobody here reads."""
    return HubFileMissing(
        f"{shown(repo)} has no file that an engine could load.",
        "Look at its page; with --all-files what it has is fetched all the same.",
    )


def needs_choice(repo: str, names: Sequence[str]) -> HubFileMissing:
    """GGUF repositories hold one model in many sizes."""
    return HubFileMissing(
        f"{shown(repo)} holds {len(names)} models: one has to be named.",
        f"Name one: spark-tui models pull {shown(repo)} --file {shown(names[0])}",
        detail=", ".join(shown(name) for name in names),
    )


def too_large(file: str, size: int) -> HubFileTooLarge:
    """The Hub hands out files of up to 50 GB over HTTP."""
    return HubFileTooLarge(
        f"{shown(file)} has {human_bytes(size)}: the Hub hands out so much by Xet alone.",
        "Unset HF_HUB_DISABLE_XET and install hf-xet, then go on.",
    )


def checksum(file: str, expected: str, found: str) -> ChecksumMismatch:
    """Twice the wrong content."""
    return ChecksumMismatch(
        f"{shown(file)} arrived damaged, twice.",
        "Try again; if it stays so, a proxy between here and the Hub changes it, or the disk or memory is failing.",
        detail=f"expected {expected}, got {found}",
    )


def no_room(store: str, needed: int, free: int) -> DiskFull:
    """Before a download: bytes that are still to come, and bytes free."""
    return DiskFull(
        f"The model store has no room: {human_bytes(needed)} are still to come, {human_bytes(free)} are free.",
        f"Delete what you do not need (spark-tui models list, spark-tui models rm NAME), or move {store}.",
    )


def disk_full(store: str) -> DiskFull:
    """While it runs."""
    return DiskFull(
        f"The disk of {store} is full; what has arrived is kept.",
        "Make room (spark-tui models list, spark-tui models rm NAME), then go on with the download.",
    )


def not_writable(path: str, why: str) -> StoreNotWritable:
    """Often root's: a container made it."""
    return StoreNotWritable(
        f"{path} cannot be written: {why}.",
        "If a container made it as root, take it over: sudo chown -R $(id -u):$(id -g) FOLDER (the model store's).",
    )


def strange_answer(endpoint: str, why: str) -> HubFailed:
    """Something that is not the Hub's API."""
    return HubFailed(
        f"{host_of(endpoint)} gave an answer that is not the Hub's.",
        "See what HF_ENDPOINT and HTTPS_PROXY are set to.",
        detail=_detail(why),
    )


def other(what: str, detail: str) -> HubFailed:
    """Any other refusal."""
    return HubFailed(what, "Try again; the Hub's own words are below.", detail=_detail(detail))


_KINDS: Final[tuple[type[SparkError], ...]] = (
    HubFailed, HubOffline, HubBusy, HubGated, HubTokenRejected, HubRepoMissing, HubRevisionMissing, HubFileMissing,
    HubFileTooLarge, ChecksumMismatch, DiskFull, StoreNotWritable, DownloadFailed,
)  # fmt: skip
_BY_ID: Final = {kind.id: kind for kind in _KINDS}


def error_named(identity: str, summary: str, remedy: str, detail: str = "") -> SparkError:
    """An error that another process met; DownloadFailed where its kind is not known."""
    return _BY_ID.get(identity, DownloadFailed)(summary, remedy, detail=detail)


def host_of(endpoint: str) -> str:
    """`https://huggingface.co` -> `huggingface.co`."""
    return shown(endpoint.partition("://")[2] or endpoint).rstrip("/")


def shown(name: str) -> str:
    """A name as it may stand in a sentence."""
    return truncate(clean_line(name), 120)


def _detail(text: str) -> str:
    return truncate(clean_line(text), _DETAIL_CHARS)
