"""What the Models screen says in its lists: one row per model, cache, finding and download, and the disk's line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from textual.content import Content

from spark_tui.core.actions import key_of
from spark_tui.core.library import LibraryEntry, LibraryView
from spark_tui.domain.errors import SparkError
from spark_tui.domain.models.checkpoint import WeightFormat
from spark_tui.domain.models.download import Download, DownloadPhase, DownloadPlan, FileProgress, FileState, PlannedFile
from spark_tui.domain.models.hub import Fits, FormatBasis, Gating, RepoFacts, SearchHit
from spark_tui.domain.models.inspection import Inspection, inspection_rows
from spark_tui.domain.models.store import (
    Completeness,
    Layout,
    OtherCache,
    StoredFile,
    StoredModel,
    StoreFinding,
    Verdict,
    VerifyProgress,
    fetch_again,
)
from spark_tui.domain.quantities import human_bytes, human_duration, short_tokens
from spark_tui.domain.reading import NOT_READ_YET, Missing, Reading, Stale, value_of
from spark_tui.domain.settings import Settings
from spark_tui.tui import format as fmt
from spark_tui.tui.widgets.line import Line, spread
from spark_tui.tui.widgets.page import BLANK, Part, sentence, told
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


LABEL_WIDTH = 13
MOST_FILES = 500
MOST_NAMED = 40
_SPEED = "What it will do on one Spark"


def field(label: str, value: str, style: str = "") -> Part:
    """A label and what stands beside it."""
    return Content.styled(f"{label:<{LABEL_WIDTH}}", "$dim"), told(value, style)


def heading(text: str) -> list[Part]:
    """A title with a blank line before it."""
    return [BLANK, sentence(text, "bold")]


# --- a model ----------------------------------------------------------------------------------------------


def overview(entry: LibraryEntry, look: Look | None, download: Download | None, now: float, unknown: str) -> list[Part]:
    """How whole it is and why, what it takes, who uses it, what it will do. `unknown` is why engines are not known."""
    model = entry.model
    parts = [*_state(entry, download), *_check(entry), *_fetching(download)]
    parts += _findings(model.findings)
    found = look.found if look is not None else None
    if found is not None and found.verdict:
        parts += [*heading(_SPEED), *(sentence(words, bullet="- ") for words in found.verdict)]
    elif look is not None and look.why:
        parts += [BLANK, sentence(f"Its files do not tell what it will do: {look.why}.", "$dim")]
    return [*parts, BLANK, *_figures(model, now), *_uses(entry, unknown)]


def _state(entry: LibraryEntry, download: Download | None) -> Iterator[Part]:
    model = entry.model
    word = "being fetched" if model.writing else _STATES[model.completeness]
    yield sentence(word, STATE_STYLE[model.completeness])
    for reason in model.reasons:
        yield sentence(reason, bullet="- ")
    if model.completeness in (Completeness.PARTIAL, Completeness.CORRUPT) and (download or not model.writing):
        yield sentence(f"{key_of('get_model')} fetches what lacks." if download is None else _keys(download), "$dim")


def _keys(download: Download) -> str:
    return _running_keys() if download.phase.active else _resting_keys()


def _running_keys() -> str:
    return f"{key_of('pause_download')} pauses the download; {key_of('cancel_work')} cancels it."


def _resting_keys() -> str:
    on = f"{key_of('get_model')} or {key_of('pause_download')} goes on with the download"
    return f"{on}; {key_of('cancel_work')} takes it off the list."


_STATES = {
    Completeness.COMPLETE: "complete",
    Completeness.PARTIAL: "partial: some of its files are not here",
    Completeness.CORRUPT: "corrupt: an engine cannot load it as it is",
    Completeness.UNREFERENCED: "replaced: no branch or tag leads to it any more",
    Completeness.UNKNOWN: "it could not be looked into",
}


def _check(entry: LibraryEntry) -> Iterator[Part]:
    if entry.failure:
        yield field("verified", f"not: {entry.failure}", "$error")
    check = entry.check
    if check is None:
        return
    if not check.over:
        yield field("verifying", _check_progress(check), "$secondary")
        if check.name:
            yield field("", check.name, "$secondary")
        return
    yield field("verified", check.sentence, "$error" if check.wrong else "$warning" if check.unsure else "$success")
    for each in (check.wrong + (check.unsure if check.matching else ()))[:MOST_NAMED]:
        detail = f" ({each.detail})" if each.detail else ""
        yield sentence(f"{each.name} {each.verdict}{detail}", bullet="- ")
    if check.wrong:
        get, copy = key_of("get_model"), key_of("copy_fix")
        yield sentence(f"{get} fetches those files again; {copy} copies the command.", "$dim")


def _check_progress(check: VerifyProgress) -> str:
    left = f", {human_duration(check.left_seconds)} left" if check.left_seconds else ""
    rate = f" at {human_bytes(check.rate)}/s" if check.rate else ""
    return f"{check.fraction:.0%}{left}{rate}"


def _fetching(download: Download | None) -> list[Part]:
    return [] if download is None else [BLANK, *_progress(download)]


def _findings(findings: Sequence[StoreFinding]) -> Iterator[Part]:
    for finding in findings:
        yield BLANK
        yield sentence(finding.what, "$warning", bullet="! ")
        if finding.remedy:
            command = finding.remedy.startswith("sudo ")
            yield field(f"fix ({key_of('copy_fix')})" if command else "do", finding.remedy)


def _figures(model: StoredModel, now: float) -> Iterator[Part]:
    disk = f", {human_bytes(model.disk)} of disk" if model.disk != model.size else ""
    yield field("size", f"{human_bytes(model.size)}{disk}")
    if model.partial_bytes:
        yield field("unfinished", f"{human_bytes(model.partial_bytes)} of interrupted or running downloads")
    if model.loose:
        yield field("left over", f"{human_bytes(model.loose)} that no revision uses")
    for revision in model.revisions if len(model.revisions) > 1 else ():
        current = ", the current one" if revision.commit == model.commit else ""
        refs = f" {', '.join(revision.refs)}" if revision.refs else ""
        text = f"{revision.short}{refs}: {revision.completeness}, {human_bytes(revision.size)}{current}"
        yield field("revision", text)
    if len(model.revisions) <= 1 and model.commit:
        refs = ", ".join(model.revisions[0].refs) if model.revisions else ""
        yield field("revision", f"{model.commit[:12]} {refs}".strip())
    if model.kind.value != "model":
        yield field("kind", model.kind.value)
    if model.used is not None:
        yield field("last read", fmt.ago(now - model.used))
    yield field("place", model.path)


def _uses(entry: LibraryEntry, unknown: str) -> Iterator[Part]:
    for use in entry.uses:
        if use.kind.value != "preset":
            yield field("engine", use.words, "" if use.sure else "$warning")
    if unknown:
        yield field("engines", f"not known: {unknown}", "$warning")
    if entry.presets:
        yield field("presets", f"{', '.join(entry.presets)}  ({key_of('open_uses')} shows them)")
    elif not entry.uses and not unknown:
        yield field("used by", "no preset and no engine", "$dim")


# --- its files --------------------------------------------------------------------------------------------


def file_parts(files: Sequence[StoredFile] | SparkError | None, check: VerifyProgress | None) -> list[Part]:
    """Every file with its size, what is wrong with it, and what a verification has found."""
    if files is None:
        return [sentence("Not looked at yet.", "$dim")]
    if isinstance(files, SparkError):
        return [sentence(files.summary, "$error"), sentence(files.remedy)]
    verdicts = {each.name: each.verdict for each in check.checks} if check is not None else {}
    parts = [_file(file, verdicts.get(file.name), check) for file in files[:MOST_FILES]]
    if len(files) > MOST_FILES:
        parts += [BLANK, sentence(f"and {len(files) - MOST_FILES} more", "$dim")]
    return parts or [sentence("It has no files.", "$dim")]


def _file(file: StoredFile, verdict: Verdict | None, check: VerifyProgress | None) -> Part:
    size = "-" if file.size is None else human_bytes(file.size)
    label = Content.styled(f"{size:>{LABEL_WIDTH - 2}}  ")
    reading = check is not None and not check.over and check.name == file.name
    words, style = "", ""
    if verdict is not None:
        words, style = str(verdict), "$success" if verdict is Verdict.MATCHES else "bold $error"
        if verdict is not Verdict.MATCHES and not verdict.wrong:
            style = "$warning"
    elif file.trouble:
        words, style = str(file.trouble), "bold $error"
    elif reading:
        words, style = "is being read", "$secondary"
    name = told(file.name)
    return label, Content.assemble(name, "  ", (words, style)) if words else name


# --- its checkpoint ---------------------------------------------------------------------------------------


def look_parts(look: Look | None) -> list[Part]:
    """The checkpoint by its own files, or why they do not tell."""
    if look is None:
        return [sentence("Not looked at yet.", "$dim")]
    if look.found is None:
        return [sentence(f"Its files do not tell what it is: {look.why}.", "$warning")]
    return inspection_parts(look.found)


def inspection_parts(found: Inspection) -> list[Part]:
    """The verdict, what it rests on, the 16-bit weights, and what looked wrong."""
    parts = [sentence(words, bullet="- ") for words in found.verdict]
    parts += [BLANK] if parts else []
    parts += [field(label, value) for label, value in inspection_rows(found)]
    if found.wide and found.read is not None:
        parts += heading("Weights that stayed 16 bits wide: stored, and read for each decoded token")
        parts += [
            sentence(f"{each.module.value:<20} {human_bytes(each.stored):>9}  {human_bytes(each.read):>9}")
            for each in found.wide
        ]
    if found.facts.findings:
        parts += heading("Findings")
        parts += [sentence(each, "$warning", bullet="! ") for each in found.facts.findings]
    return parts


# --- downloads --------------------------------------------------------------------------------------------


def download_parts(download: Download) -> list[Part]:
    """How far it is, what it waits for, and why it failed."""
    request = download.request
    where = f"the folder {request.target} of the store" if request.target else "the store's Hub cache"
    commit = f", {download.commit[:12]}" if download.commit else ""
    parts = _progress(download)
    parts += [
        BLANK,
        *([field("revision", f"{request.revision}{commit}")] if request.repo else []),
        *([field("address", request.url)] if request.url else []),
        field("into", where),
        *([field("preset", request.preset)] if request.preset else []),
        *([field("left out", f"{download.left_out} files that no engine here reads")] if download.left_out else []),
        *([field("cap", f"{human_bytes(download.limit)}/s for all downloads together")] if download.limit else []),
        *([field("log", download.log)] if download.log else []),
        BLANK,
        sentence(f"It goes on when spark-tui ends. {_running_keys()}", "$dim")
        if download.phase.active
        else _rest(download),
    ]
    return parts


def _rest(download: Download) -> Part:
    if download.phase is DownloadPhase.DONE:
        return sentence("All of it is here.", "$success")
    return sentence(_resting_keys(), "$dim")


def _progress(download: Download) -> list[Part]:
    style = PHASE_STYLE.get(download.phase, "$warning")
    parts = [field("download", _progress_words(download), style)]
    if download.waiting:
        parts.append(field("waits", download.waiting, "$warning"))
    if download.failure is not None:
        parts += [field("failed", download.failure.summary, "$error"), field("do", download.failure.remedy)]
        parts += [field("seen", download.failure.detail, "$dim")] if download.failure.detail else []
    return parts


def _progress_words(download: Download) -> str:
    words = [download.phase.value]
    if download.total is not None and download.fraction is not None:
        words.append(f"{percent(download.fraction)} of {human_bytes(download.total)}")
    elif download.done:
        words.append(human_bytes(download.done))
    if download.files:
        files = "file" if len(download.files) == 1 else "files"
        words.append(f"{download.files_done} of {len(download.files)} {files}")
    if download.speed is not None and download.phase.active:
        words.append(f"{human_bytes(download.speed)}/s")
    if download.eta and download.phase.active:
        words.append(f"{human_duration(download.eta)} left")
    return "  ".join(words)


def download_files(download: Download) -> list[Part]:
    """Every file with how much of it is here; what runs first."""
    if not download.files:
        return [sentence("Which files it fetches is not settled yet.", "$dim")]
    ordered = sorted(download.files, key=lambda file: _FILE_ORDER.index(file.state))
    parts = [_file_progress(file) for file in ordered[:MOST_FILES]]
    if len(ordered) > MOST_FILES:
        parts += [BLANK, sentence(f"and {len(ordered) - MOST_FILES} more", "$dim")]
    return parts


_FILE_ORDER = (FileState.RUNNING, FileState.CHECKING, FileState.WAITING, FileState.DONE)
_FILE_STYLE = {FileState.RUNNING: "$secondary", FileState.CHECKING: "$warning", FileState.DONE: "$success"}


def _file_progress(file: FileProgress) -> Part:
    size = "?" if file.size is None else human_bytes(file.size)
    here = f"{percent(file.done / file.size)}" if file.size and file.state is not FileState.DONE else ""
    words = f"{file.state.value} {here}".strip()
    name = Content.assemble(told(file.path), "  ", (words, _FILE_STYLE.get(file.state, "$dim")))
    return Content.styled(f"{size:>{LABEL_WIDTH - 2}}  "), name


# --- the rest of the list ---------------------------------------------------------------------------------


def other_page(other: OtherCache) -> list[Part]:
    """What lies in another tool's cache, and what can be done with it."""
    above = other.path.removesuffix("/hub")
    parts = [
        sentence("Another tool's cache. Engines here mount the store only: they do not see these models."),
        field("place", other.path),
        field("size", f"{human_bytes(other.disk)} of disk"),
        field("use it", f"spark-tui models list --store {above}"),
        *heading("Models"),
    ]
    parts += [sentence(f"{model.id}  {human_bytes(model.size)}", bullet="- ") for model in other.models[:MOST_NAMED]]
    if len(other.models) > MOST_NAMED:
        parts.append(sentence(f"and {len(other.models) - MOST_NAMED} more", "$dim"))
    return [*parts, *_findings(other.findings)]


def finding_page(finding: StoreFinding) -> list[Part]:
    """Something to know about the store, with what to do."""
    parts = [sentence(finding.what, "$warning", bullet="! ")]
    parts += [field("do", finding.remedy)] if finding.remedy else []
    return [*parts, field("place", finding.path)] if finding.path else parts


MODELS_HUB_WORDS_MOST_FILES = 300
HIT_COLUMNS = (
    Column("model", maximum=64),
    Column("format", width=11),
    Column("weights", width=9, right=True),
    Column("one Spark", width=9),
    Column("fetched", width=7, right=True, hide_below=74),
    Column("updated", width=9, right=True, hide_below=84),
    Column("access", width=7),
)
CHOICE_COLUMNS = (Column("size", width=9, right=True), Column("file"))
_FITS_STYLE = {Fits.YES: "$success", Fits.TIGHT: "$warning", Fits.NO: "$error", Fits.UNKNOWN: "$dim"}
_FITS_WORDS = {
    Fits.YES: "fits one Spark, with room for a KV cache",
    Fits.TIGHT: "fits one Spark, and leaves little room for a KV cache",
    Fits.NO: "is too large for one Spark",
    Fits.UNKNOWN: "whether it fits one Spark is not known: the Hub does not tell its weights",
}


# --- a search ---------------------------------------------------------------------------------------------


def hit_row(hit: SearchHit, now: float) -> Row:
    """One line of the hits; `!` after a format that something speaks against."""
    word = hit.formats.words or ("GGUF" if hit.gguf else "?")
    access = "private" if hit.private else "" if hit.gating is Gating.OPEN else "gated"
    return Row(
        hit.repo,
        (
            name_cell(hit.repo),
            _cell(f"! {word}" if hit.formats.doubt else word, "$warning" if hit.formats.doubt else "$secondary"),
            _cell("?" if hit.weights is None else human_bytes(hit.weights)),
            Content.styled("?" if hit.fits is Fits.UNKNOWN else hit.fits.value, _FITS_STYLE[hit.fits]),
            _cell("?" if hit.downloads is None else short_tokens(hit.downloads), "$dim"),
            _cell("?" if hit.modified is None else fmt.ago(now - hit.modified), "$dim"),
            _cell(access, "$warning"),
        ),
    )


def hit_line(hit: SearchHit) -> Content:
    """What the row has no room for, in two lines."""
    parts = [hit.repo]
    packed = hit.formats.found[:1] not in ((WeightFormat.BF16,), (WeightFormat.FP16,), (WeightFormat.FP8,))
    if hit.parameters and not packed:  # of packed weights the Hub counts the bytes, or words, that hold them
        parts.append(f"{hit.parameters / 1e9:.3g} B parameters")
    parts += [f"{human_bytes(hit.storage)} on the Hub"] if hit.storage else []
    parts += [hit.task] if hit.task else []
    parts += [f"licence {hit.licence}"] if hit.licence else []
    first = told("   ".join(parts), "$dim")
    basis = f"The format is known by {hit.formats.basis.value}." if hit.formats.basis is not FormatBasis.CONFIG else ""
    second = told(f"It is {hit.formats.doubt}.", "$warning") if hit.formats.doubt else told(basis, "$dim")
    return Content("\n").join([first, second])


# --- a repository -----------------------------------------------------------------------------------------


def plan_parts(plan: DownloadPlan, checkpoint: Reading[Inspection] | None) -> list[Part]:
    """What stands in its way, what it takes, what it is, and every file."""
    parts: list[Part] = []
    if plan.refusal is not None and not plan.choices:
        parts += [*refusal_parts(plan.refusal), BLANK]
    if plan.choices:
        parts += [sentence("It holds one model in many sizes: choose one above."), BLANK]
    else:
        parts += [*_takes(plan), BLANK]
    if plan.facts is not None:
        parts += _card(plan.facts)
    parts += [sentence(note, "$warning", bullet="! ") for note in plan.notes]
    parts += _checkpoint(checkpoint)
    if plan.files:
        parts += heading(f"Files: {len(plan.files)}" if plan.whole else f"Files to fetch: {len(plan.files)}")
        parts += [_models_hub_words_file(file) for file in plan.files[:MODELS_HUB_WORDS_MOST_FILES]]
        parts += _more(len(plan.files))
    if plan.left_out:
        size = human_bytes(sum(each.size or 0 for each in plan.left_out))
        parts += heading(f"Left out: {len(plan.left_out)} files, {size} (a takes all files)")
        parts += [_row(each.size, each.path, each.why) for each in plan.left_out[:MODELS_HUB_WORDS_MOST_FILES]]
        parts += _more(len(plan.left_out))
    return parts


def _more(count: int) -> list[Part]:
    return (
        [sentence(f"and {count - MODELS_HUB_WORDS_MOST_FILES} more", "$dim")]
        if count > MODELS_HUB_WORDS_MOST_FILES
        else []
    )


def refusal_parts(error: SparkError) -> list[Part]:
    """Why it would fail, and what to do."""
    detail = [sentence(error.detail, "$dim")] if error.detail else []
    return [sentence(error.summary, "bold $error"), sentence(error.remedy), *detail]


def _takes(plan: DownloadPlan) -> list[Part]:
    if plan.whole:
        return [sentence("All of it is here already.", "$success")]
    total = "of unknown size" if plan.total is None else human_bytes(plan.total)
    left = "unknown" if plan.left is None else human_bytes(plan.left)
    free = value_of(plan.free)
    room = "how much room there is is not known" if free is None else f"{human_bytes(free)} are free"
    here = f", {human_bytes(sum(file.here for file in plan.files))} are here" if plan.left != plan.total else ""
    return [field("takes", f"{total} in {len(plan.files)} files{here}"), field("to fetch", f"{left}; {room}")]


def _card(facts: RepoFacts) -> list[Part]:
    doubt = f"; {facts.formats.doubt}" if facts.formats.doubt else ""
    gated = {
        Gating.OPEN: "open to everybody",
        Gating.AUTO: "terms to accept on its page first",
        Gating.MANUAL: "its makers have to agree first",
    }[facts.gating]
    licence = " ".join(filter(None, (facts.licence, facts.licence_link)))
    rows = (
        (
            "format",
            f"{facts.formats.words} by {facts.formats.basis.value}{doubt}" if facts.formats.found else "not known",
        ),
        ("weights", "not known" if facts.weights is None else human_bytes(facts.weights)),
        ("size", _FITS_WORDS[facts.fits]),
        ("access", "private" if facts.private else gated),
        ("licence", licence or "its card does not name one"),
        ("made from", ", ".join(facts.base_models)),
        ("task", facts.task),
        ("page (y)", facts.page),
        ("commit", facts.commit[:12]),
    )
    styles = {"size": _FITS_STYLE[facts.fits], "access": "" if facts.gating is Gating.OPEN else "$warning"}
    return [field(label, value, styles.get(label, "")) for label, value in rows if value]


def _checkpoint(read: Reading[Inspection] | None) -> list[Part]:
    if read is None:
        return [BLANK, sentence("Reading its config and the headers of its weights ...", "$dim")]
    if isinstance(read, Missing):
        return [BLANK, sentence(f"Its files do not tell what it is: {read.reason}.", "$dim")]
    found = read.value
    parts = [*heading("What it will do on one Spark"), *(sentence(words, bullet="- ") for words in found.verdict)]
    return [*parts, *heading("By its own files"), *(field(label, value) for label, value in inspection_rows(found))]


def _models_hub_words_file(file: PlannedFile) -> Part:
    words = "here" if file.left == 0 else f"{human_bytes(file.here)} here" if file.here else ""
    return _row(file.size, file.path, words)


def _row(size: int | None, path: str, words: str) -> Part:
    shown = "?" if size is None else human_bytes(size)
    value = Content.assemble(told(path), "  ", told(words, "$dim")) if words else told(path)
    return Content.styled(f"{shown:>{LABEL_WIDTH - 2}}  "), value


def choice_row(name: str, size: int | None) -> Row:
    """One of several files that hold the same model."""
    return Row(name, (_cell("?" if size is None else human_bytes(size)), _cell(name)))


def plan_keys(plan: DownloadPlan | SparkError | None, *, read_only: bool) -> str:
    """What keys do now."""
    if not isinstance(plan, DownloadPlan):
        return "Esc back"
    if plan.choices:
        return "Enter chooses   y copies the page's address   Esc back"
    able = not read_only and plan.refusal is None and not plan.whole
    size = f" {human_bytes(plan.left)}" if plan.left else ""
    return f"{f'Enter fetches{size}   ' if able else ''}a all files   y copies the address   Esc back"
