"""What the pages of the Models screen say: of a model, its files and its checkpoint, of a download, of other caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.content import Content

from spark_tui.core.key_words import key_of
from spark_tui.core.library import LibraryEntry
from spark_tui.domain.errors import SparkError
from spark_tui.domain.models.download import Download, DownloadPhase, FileProgress, FileState
from spark_tui.domain.models.inspection import Inspection
from spark_tui.domain.models.inspection_words import inspection_rows
from spark_tui.domain.models.store import Completeness, OtherCache, StoredFile, StoredModel, StoreFinding
from spark_tui.domain.models.store_verify import Verdict, VerifyProgress
from spark_tui.domain.quantities import human_bytes, human_duration
from spark_tui.tui import format as fmt
from spark_tui.tui.screens.models_words import PHASE_STYLE, STATE_STYLE, Look, percent
from spark_tui.tui.widgets.page import BLANK, Part, sentence, told

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
