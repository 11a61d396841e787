"""What the Models screen says in its lists: one row per model, cache, finding and download, and the disk's line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.content import Content

from spark_tui.core.key_words import key_of
from spark_tui.core.library import LibraryEntry, LibraryView
from spark_tui.domain.models.download import Download, DownloadPhase
from spark_tui.domain.models.inspection import Inspection
from spark_tui.domain.models.store import Completeness, Layout, OtherCache, StoredModel, StoreFinding
from spark_tui.domain.models.store_verify import fetch_again
from spark_tui.domain.quantities import human_bytes, human_duration
from spark_tui.domain.reading import NOT_READ_YET, Missing, Reading, Stale
from spark_tui.domain.settings import Settings
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.line import Line, spread
from spark_tui.tui.widgets.row_list import Column, Row

MAX_CELL = 200
ELSEWHERE = "elsewhere:"
"""Before the number of another tool's cache: its row's key. No model is named so: its id has no colon."""
FINDING = "finding:"
BAR_CELLS = 10
GROUPS = {Layout.CACHE: "Hub cache", Layout.FOLDER: "Folders"}
ELSEWHERE_GROUP = "Elsewhere: engines here do not see it"
FINDING_GROUP = "To know"

COLUMNS = (
    Column("model", maximum=64),
    Column("state", width=11),
    Column("format", width=7, hide_below=48),
    Column("size", width=8, right=True, hide_below=34),
    Column("read", width=7, right=True, hide_below=72),
    Column(" used by", width=25, hide_below=95),  # a blank apart from the figures beside it
)
DOWNLOAD_COLUMNS = (
    Column("download", maximum=64),
    Column("", width=BAR_CELLS, hide_below=78),
    Column("state", width=11),
    Column("done", width=4, right=True),
    Column("size", width=8, right=True, hide_below=66),
    Column("speed", width=10, right=True, hide_below=40),
    Column("left", width=6, right=True, hide_below=34),
)

STATE_STYLE = {
    Completeness.COMPLETE: "$success",
    Completeness.PARTIAL: "$warning",
    Completeness.CORRUPT: "bold $error",
    Completeness.UNREFERENCED: "$dim",
    Completeness.UNKNOWN: "$warning",
}
PHASE_STYLE = {
    DownloadPhase.DOWNLOADING: "$secondary",
    DownloadPhase.FAILED: "bold $error",
    DownloadPhase.DONE: "$success",
    DownloadPhase.QUEUED: "$dim",
    DownloadPhase.PREPARING: "$secondary",
    DownloadPhase.FINISHING: "$secondary",
}
_SHORT_PHASE = {DownloadPhase.DOWNLOADING: "fetching"}
_ORDER = (DownloadPhase.FINISHING, DownloadPhase.DOWNLOADING, DownloadPhase.PREPARING, DownloadPhase.WAITING,
          DownloadPhase.QUEUED, DownloadPhase.FAILED, DownloadPhase.INTERRUPTED, DownloadPhase.PAUSED)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """What the files of a model say of it; `found` None: they do not, and `why` tells the reason."""

    found: Inspection | None = None
    why: str = ""


# --- what is there ----------------------------------------------------------------------------------------


def matches(entry: LibraryEntry, look: Look | None, words: list[str]) -> bool:
    """Whether every word of the filter occurs in what identifies the model, in its state, or in who uses it."""
    model = entry.model
    texts = (model.id, model.path, model.completeness.value, model.layout.value, format_word(look))
    text = " ".join((*texts, *(use.name for use in entry.uses))).lower()
    return all(word in text for word in words)


def order(entry: LibraryEntry) -> tuple[bool, str, str]:
    """The cache first, then folders; by name without the publisher, as the list shows it."""
    return entry.model.layout is Layout.FOLDER, entry.model.id.lower().rpartition("/")[2], entry.model.id


def download_of(model: StoredModel, downloads: Iterable[Download]) -> Download | None:
    """The download that fills this model: what runs before what rests; None for what has ended well."""
    fits = [each for each in open_downloads(downloads) if _place(each) == model.id]
    return fits[0] if fits else None


def _place(download: Download) -> str:
    """The id that the store gives to what is fetched."""
    request = download.request
    return f"/models/{request.target.strip('/').partition('/')[0]}" if request.target else request.repo


def open_downloads(downloads: Iterable[Download]) -> list[Download]:
    """Those that have not ended well: what runs first, then what failed or rests."""
    return sorted((each for each in downloads if each.phase is not DownloadPhase.DONE), key=_by_phase)


def _by_phase(download: Download) -> tuple[int, float]:
    return _ORDER.index(download.phase), download.created


# --- rows -------------------------------------------------------------------------------------------------


def model_row(entry: LibraryEntry, look: Look | None, download: Download | None, now: float) -> Row:
    """One line of the list."""
    model = entry.model
    size = model.size or model.partial_bytes
    return Row(
        model.id,
        (
            name_cell(model.id),
            state_cell(entry, download),
            _cell(format_word(look), "$secondary"),
            _cell(human_bytes(size) if size else "-"),
            _cell("-" if model.used is None else _days(now - model.used), "$dim"),
            _users(entry),
        ),
        GROUPS[model.layout],
    )


def name_cell(id_: str) -> Content:
    """The name, then its publisher: when it is narrow the publisher is what is cut."""
    owner, _, name = id_.removeprefix("/models/").rpartition("/")
    return Content.assemble(_cell(name), "  ", _cell(owner, "$dim")) if owner else _cell(name)


def state_cell(entry: LibraryEntry, download: Download | None) -> Content:
    """One word: what is being done with it, else how whole it is. `!` says that its page has something to tell."""
    model, check = entry.model, entry.check
    if check is not None and not check.over:
        return Content.styled(f"verify {check.fraction:.0%}", "$secondary")
    if download is not None and download.phase.active:
        return Content.styled(_progress_word(download), PHASE_STYLE.get(download.phase, "$warning"))
    if model.writing:
        return Content.styled("fetching", "$secondary")
    if download is not None and model.completeness is not Completeness.COMPLETE:
        return Content.styled(download.phase.value, PHASE_STYLE.get(download.phase, "$warning"))
    if check is not None and check.wrong:
        return Content.styled("damaged", "bold $error")
    word = "verified" if check is not None and check.matching and not check.unsure else model.completeness.value
    if word == "complete" and any(use.sure for use in entry.engines):
        return Content.styled("in use", "bold $success")
    if (model.findings or entry.failure) and model.completeness is Completeness.COMPLETE:
        return Content.styled(f"{word} !", "$warning")
    return Content.styled("replaced" if word == "unreferenced" else word, STATE_STYLE[model.completeness])


def _progress_word(download: Download) -> str:
    fraction = download.fraction
    if download.phase is DownloadPhase.DOWNLOADING and fraction is not None:
        return f"fetch {percent(fraction)}"
    return _SHORT_PHASE.get(download.phase, download.phase.value)


def percent(fraction: float) -> str:
    """`41%`; 100 % only when all of it is there."""
    return f"{int(fraction * 100)}%"


def format_word(look: Look | None) -> str:
    """The main format by the checkpoint's own word: `NVFP4`, `FP8+`, `BF16`."""
    if look is None or look.found is None:
        return "" if look is None else "?"
    told = look.found.facts.quantization
    if told is None or not told.method:
        return {"bfloat16": "BF16", "float16": "FP16", "float32": "F32"}.get(look.found.facts.dtype, "?")
    if not told.formats:
        return "?"
    more = "+" if len(told.formats) > 1 else ""
    return told.formats[0].value.partition(" ")[0] + more


def _users(entry: LibraryEntry) -> Content:
    """The engine that runs with it, else the first preset, and how many more there are."""
    names = [use.name for use in entry.uses]
    if not names:
        return Content("")
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    return Content.assemble(" ", _cell(names[0], "$success" if entry.engines else ""), (more, "$dim"))


def _days(seconds: float) -> str:
    """Coarse: the file system keeps it once a day. `today`, `6d`, `3mo`."""
    days = max(0, int(seconds // 86_400))
    if days == 0:
        return "today"
    return f"{days}d" if days < 60 else f"{days // 30}mo" if days < 730 else f"{days // 365}y"


def elsewhere_row(index: int, other: OtherCache) -> Row:
    """Another tool's cache."""
    many = "1 model" if len(other.models) == 1 else f"{len(other.models)} models"
    cells = (_cell(f"{many} in {other.path}", "$dim"), Content(""), Content(""), _cell(human_bytes(other.disk), "$dim"))
    return Row(f"{ELSEWHERE}{index}", (*cells, Content(""), Content("")), ELSEWHERE_GROUP)


def finding_row(index: int, finding: StoreFinding) -> Row:
    """Something to know about the store itself."""
    blanks = (Content(""),) * (len(COLUMNS) - 1)
    return Row(f"{FINDING}{index}", (_cell(f"! {finding.what}", "$warning"), *blanks), FINDING_GROUP)


def download_row(download: Download, full: str, empty: str) -> Row:
    """One line of the downloads."""
    fraction = download.fraction
    cells = round(BAR_CELLS * (fraction or 0.0))
    bar = Content.assemble((full * cells, "$secondary"), (empty * (BAR_CELLS - cells), "$dim"))
    word = _SHORT_PHASE.get(download.phase, download.phase.value)
    return Row(
        download.id,
        (
            name_cell(download.request.title),
            bar if fraction is not None else Content(""),
            Content.styled(word, PHASE_STYLE.get(download.phase, "$warning")),
            Content(percent(fraction) if fraction is not None else "?"),
            _cell(human_bytes(download.total) if download.total is not None else "?", "$dim"),
            _cell(f"{human_bytes(download.speed)}/s" if download.speed is not None else ""),
            _cell(eta_word(download)),
        ),
    )


def eta_word(download: Download) -> str:
    """`4m10s`, `1h12m`; empty while nothing can be said."""
    return human_duration(download.eta) if download.phase.active and download.eta else ""


def _cell(text: str, style: str = "") -> Content:
    return fmt.safe(text[:MAX_CELL], style)


# --- the disk, and an empty list --------------------------------------------------------------------------


class DiskLine(Line):
    """What models take of the disk and what is left; or why the store cannot be read."""

    library: Reading[LibraryView] = NOT_READ_YET

    def say(self, width: int) -> Content:
        """`143 GiB in 6 models   12 GiB left over                    1.8 TiB free`."""
        if isinstance(self.library, Missing):
            return Content("")
        contents = self.library.value.contents
        many = "1 model" if len(contents.models) == 1 else f"{len(contents.models)} models"
        parts = [f"{human_bytes(contents.disk)} in {many}"]
        left = sum(each.disk for each in contents.orphans) + sum(each.loose for each in contents.models)
        if left:
            parts.append(f"{human_bytes(left)} used by none")
        parts.append(contents.root)
        text = fmt.safe("   ".join(parts), "$dim")
        if isinstance(self.library, Stale):
            text = fmt.safe(f"as it was before: {self.library.error}", "$warning")
        return spread(text, Content.styled(free_words(self.library.value), "bold"), width)


def free_words(view: LibraryView) -> str:
    """What is left on the disk: `1.8 TiB free`."""
    free = view.contents.free
    return "free: not known" if free is None else f"{human_bytes(free)} free"


def empty_text(library: Reading[LibraryView], filtered: bool) -> Content:
    """What stands in a list without rows: what to do."""
    if isinstance(library, Missing):
        if library == NOT_READ_YET:
            return Content("Looking into the store ...")
        return fmt.safe(f"The store cannot be read: {library.reason}. See the settings: is `store` right?", "$error")
    if filtered:
        return Content("No model matches. Esc clears the filter.")
    search, presets = key_of("search_hub"), key_of("show_presets")
    return fmt.safe(
        f"No models are in {library.value.contents.root} yet. Press {search} to search the Hub for models that fit one "
        f"Spark; or press {presets} and launch a preset: it fetches what it needs."
    )


def fix_command(entry: LibraryEntry, settings: Settings) -> str:
    """The command that a person has to run themselves: for files of another user; else what fetches files again that
    are not as they should be. Empty when there is none."""
    owned = (finding.remedy for finding in entry.model.findings if finding.remedy.startswith("sudo "))
    wrong = [each.name for each in entry.check.wrong] if entry.check is not None else []
    revision = entry.check.revision if entry.check is not None else ""
    return next(owned, "") or fetch_again(entry.model, wrong, settings, revision=revision)
