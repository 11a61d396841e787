"""What can go wrong between the Hub and the disk: one error for each, with what the person does next.

A worker process hands its error over as (`id`, `summary`, `remedy`, `detail`); `error_named` makes it one again.
`known` says in each function that a token was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.base.errors import RefusedError, SparkError, UnreachableError, UsageError
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.text import clean_line, quoted, truncate
from spark_tui.catalog.models.model.hub import Selection

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
        HubFailed, HubOffline, HubBusy, HubGated, HubTokenRejected, HubRepoMissing, HubRevisionMissing, HubFileMissing,
        HubFileTooLarge, ChecksumMismatch, DiskFull, StoreNotWritable, DownloadFailed,
    )
}  # fmt: skip


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
