"""Models: the store, checkpoints, downloads and the Hub, for both front ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from spark_tui.domain.errors import SparkError
from spark_tui.domain.finding import Finding
from spark_tui.domain.models.checkpoint import WeightFormat
from spark_tui.domain.models.download import Download, DownloadPhase, DownloadPlan, FileProgress, FileState, PlannedFile
from spark_tui.domain.models.hub import Fits, FormatBasis, Gating, RepoFacts, SearchHit
from spark_tui.domain.models.inspection import Inspection
from spark_tui.domain.models.store import (
    Completeness,
    DeletePlan,
    FileVerdict,
    Layout,
    OtherCache,
    StoredFile,
    StoredModel,
    VerifyProgress,
)
from spark_tui.domain.presets.model_use import LibraryEntry, LibraryView
from spark_tui.domain.quantities import human_bytes, human_duration, short_tokens
from spark_tui.domain.reading import Missing, Reading, value_of
from spark_tui.present.inspection import inspection_rows
from spark_tui.present.json import Object, maybe, moment, read, rounded
from spark_tui.present.page import Cell, Column, Page, Row, Section, Table, Tone, cells, labelled

MOST_FILES: Final = 500
MOST_NAMED: Final = 40
_MOST_USERS: Final = 3
UNKNOWN: Final = "?"

STATE_TONES: Final = {
    Completeness.COMPLETE: Tone.GOOD,
    Completeness.PARTIAL: Tone.WARNING,
    Completeness.CORRUPT: Tone.BAD,
    Completeness.UNREFERENCED: Tone.QUIET,
    Completeness.UNKNOWN: Tone.WARNING,
}
PHASE_TONES: Final = {
    DownloadPhase.DOWNLOADING: Tone.STRONG,
    DownloadPhase.PREPARING: Tone.STRONG,
    DownloadPhase.FINISHING: Tone.STRONG,
    DownloadPhase.FAILED: Tone.BAD,
    DownloadPhase.DONE: Tone.GOOD,
    DownloadPhase.QUEUED: Tone.QUIET,
}
FITS_TONES: Final = {Fits.YES: Tone.GOOD, Fits.TIGHT: Tone.WARNING, Fits.NO: Tone.BAD, Fits.UNKNOWN: Tone.QUIET}
_STATES: Final = {
    Completeness.COMPLETE: "complete",
    Completeness.PARTIAL: "partial: files are missing",
    Completeness.CORRUPT: "corrupt: cannot be loaded",
    Completeness.UNREFERENCED: "old revision (no branch or tag)",
    Completeness.UNKNOWN: "unknown: could not be read",
}
_FITS: Final = {
    Fits.YES: "fits one Spark, with room for a KV cache",
    Fits.TIGHT: "fits one Spark, with little room for a KV cache",
    Fits.NO: "too large for one Spark",
    Fits.UNKNOWN: "unknown if it fits one Spark (the Hub reports no weights)",
}
_ACCESS: Final = {
    Gating.OPEN: "open",
    Gating.AUTO: "accept the licence on its page first",
    Gating.MANUAL: "requires approval by the author",
}
_PHASE_ORDER: Final = (
    DownloadPhase.FINISHING, DownloadPhase.DOWNLOADING, DownloadPhase.PREPARING, DownloadPhase.WAITING,
    DownloadPhase.QUEUED, DownloadPhase.FAILED, DownloadPhase.INTERRUPTED, DownloadPhase.PAUSED,
)  # fmt: skip


def size_or_unknown(size: int | None) -> str:
    """`12.8 GiB`; `?` where it is not known."""
    return UNKNOWN if size is None else human_bytes(size)


def percent(fraction: float) -> str:
    """`41%`; 100 % only when all of it is there."""
    return f"{int(fraction * 100)}%"


def models_text(count: int) -> str:
    """`1 model`, `6 models`."""
    return "1 model" if count == 1 else f"{count} models"


# --- the store --------------------------------------------------------------------------------------------


def matches(entry: LibraryEntry, look: Reading[Inspection] | None, words: Sequence[str]) -> bool:
    """Whether every word occurs in what identifies the model, in its state, or in the names of its users."""
    model = entry.model
    texts = (model.id, model.path, model.completeness.value, model.layout.value, format_word(look))
    text = " ".join((*texts, *(use.name for use in entry.uses))).lower()
    return all(word in text for word in words)


def in_order(entries: Iterable[LibraryEntry]) -> list[LibraryEntry]:
    """The cache first, then folders; by name without the publisher."""

    def key(entry: LibraryEntry) -> tuple[bool, str, str]:
        id_ = entry.model.id
        return entry.model.layout is Layout.FOLDER, id_.lower().rpartition("/")[2], id_

    return sorted(entries, key=key)


def open_downloads(downloads: Iterable[Download]) -> list[Download]:
    """Those that are not done: running ones first, then failed and paused ones."""
    found = (each for each in downloads if each.phase is not DownloadPhase.DONE)
    return sorted(found, key=lambda each: (_PHASE_ORDER.index(each.phase), each.created))


def download_of(model: StoredModel, downloads: Iterable[Download]) -> Download | None:
    """The open download that fills this model."""
    for each in open_downloads(downloads):
        target = each.request.target
        if model.id == (f"/models/{target.strip('/').partition('/')[0]}" if target else each.request.repo):
            return each
    return None


def format_word(look: Reading[Inspection] | None) -> str:
    """The main weight format by the checkpoint's config: `NVFP4`, `FP8+`, `BF16`; empty before it is read."""
    if look is None or (found := value_of(look)) is None:
        return "" if look is None else UNKNOWN
    form = found.facts.quantization
    if form is None or not form.method:
        return {"bfloat16": "BF16", "float16": "FP16", "float32": "F32"}.get(found.facts.dtype, UNKNOWN)
    return form.formats[0].value.partition(" ")[0] + "+" * (len(form.formats) > 1) if form.formats else UNKNOWN


def state_cell(entry: LibraryEntry, download: Download | None = None) -> Cell:
    """One word: what is being done with it, else how complete it is. `!`: its page has a warning."""
    model, check = entry.model, entry.check
    if check is not None and not check.over:
        return Cell(f"verify {check.fraction:.0%}", Tone.STRONG)
    if download is not None and download.phase.active:
        fraction = download.fraction if download.phase is DownloadPhase.DOWNLOADING else None
        text = phase_word(download) if fraction is None else f"fetch {percent(fraction)}"
        return Cell(text, PHASE_TONES.get(download.phase, Tone.WARNING))
    if model.writing:
        return Cell("fetching", Tone.STRONG)
    if download is not None and model.completeness is not Completeness.COMPLETE:
        return Cell(download.phase.value, PHASE_TONES.get(download.phase, Tone.WARNING))
    if check is not None and check.wrong:
        return Cell("damaged", Tone.BAD)
    word = "verified" if check is not None and check.matching and not check.unsure else model.completeness.value
    if word == "complete" and any(use.sure for use in entry.engines):
        return Cell("in use", Tone.GOOD)
    if (model.findings or entry.failure) and model.completeness is Completeness.COMPLETE:
        return Cell(f"{word} !", Tone.WARNING)
    return Cell("old" if word == "unreferenced" else word, STATE_TONES[model.completeness])


def phase_word(download: Download) -> str:
    """`fetching`, `paused`, `failed` ..."""
    return "fetching" if download.phase is DownloadPhase.DOWNLOADING else download.phase.value


def age(seconds: float) -> str:
    """Coarse: the file system keeps it once a day. `today`, `6d`, `3mo`."""
    days = max(0, int(seconds // 86_400))
    if days == 0:
        return "today"
    return f"{days}d" if days < 60 else f"{days // 30}mo" if days < 730 else f"{days // 365}y"


def store_table(entries: Iterable[LibraryEntry], now: float) -> Table:
    columns = (
        Column("MODEL", least=28),
        Column("STATE"),
        Column("SIZE", right=True),
        Column("READ", right=True, keep=7),
        Column("USED BY", keep=8, least=12),
    )
    rows = []
    for entry in entries:
        model = entry.model
        state = Cell("downloading" if model.writing else model.completeness.value, STATE_TONES[model.completeness])
        size = human_bytes(model.size or model.partial_bytes) if model.size or model.partials else "-"
        names = [use.name for use in entry.uses]  # engines before presets
        more = f" and {len(names) - _MOST_USERS} more" if len(names) > _MOST_USERS else ""
        users = ", ".join(names[:_MOST_USERS]) + more
        rows.append(cells(Cell(model.id, Tone.STRONG), state, size, _read_ago(model, now), users))
    return Table(columns, tuple(rows))


def _read_ago(model: StoredModel, now: float) -> str:
    return "-" if model.used is None else age(now - model.used)


def name_text(id_: str) -> str:
    """The name, then its publisher: where it is cut, the publisher goes first."""
    owner, _, name = id_.removeprefix("/models/").rpartition("/")
    return f"{name}  {owner}" if owner else name


OTHER, FINDING = "other:", "finding:"
"""Before the number of another cache, of a finding of the store: their rows' ids. No model's id has a colon."""


def list_table(
    view: LibraryView, entries: Iterable[LibraryEntry], looks: Mapping[str, Reading[Inspection]],
    downloads: Sequence[Download], now: float, *, rest: bool, empty: str,
) -> Table:  # fmt: skip
    """A row for each model under its layout; with `rest` also for other caches and for findings of the store."""
    columns = (
        Column("model", least=20),
        Column("state"),
        Column("format", keep=5),
        Column("size", right=True, keep=6),
        Column("read", right=True, keep=4),
        Column("used by", keep=3, least=12),
    )
    rows, ids, groups = [], [], []

    def add(id_: str, group: str, *row: str | Cell) -> None:
        rows.append(cells(*row, *("" for _ in columns[len(row) :])))
        ids.append(id_)
        groups.append(group)

    for entry in entries:
        model, uses = entry.model, [use.name for use in entry.uses]
        size = model.size or model.partial_bytes
        users = f"{uses[0]}{f' +{len(uses) - 1}' if len(uses) > 1 else ''}" if uses else ""
        add(
            model.id, "Folders" if model.layout is Layout.FOLDER else "Hub cache", name_text(model.id),
            state_cell(entry, download_of(model, downloads)), format_word(looks.get(model.id)),
            human_bytes(size) if size else "-", Cell(_read_ago(model, now), Tone.QUIET),
            Cell(users, Tone.GOOD if entry.engines else Tone.PLAIN),
        )  # fmt: skip
    for number, other in enumerate(view.contents.others if rest else ()):
        name = Cell(f"{models_text(len(other.models))} in {other.path}", Tone.QUIET)
        group = "Other caches (not visible to engines)"
        add(f"{OTHER}{number}", group, name, "", "", Cell(human_bytes(other.disk), Tone.QUIET))
    for number, finding in enumerate(view.contents.findings if rest else ()):
        add(f"{FINDING}{number}", "Findings", Cell(f"! {finding.summary}", Tone.WARNING))
    return Table(columns, tuple(rows), tuple(ids), empty, tuple(groups))


def strip_table(downloads: Iterable[Download], full: str, empty: str) -> Table:
    """A row for each download that is not done, with a bar of the characters `full` and `empty`."""
    columns = (
        Column("download", least=16),
        Column("", keep=3),
        Column("state"),
        Column("done", right=True),
        Column("size", right=True, keep=4),
        Column("speed", right=True, keep=5),
        Column("left", right=True, keep=6),
    )
    found = open_downloads(downloads)
    rows = []
    for each in found:
        done = round(10 * (each.fraction or 0.0))
        rows.append(
            cells(
                name_text(each.request.title),
                "" if each.fraction is None else full * done + empty * (10 - done),
                Cell(phase_word(each), PHASE_TONES.get(each.phase, Tone.WARNING)),
                UNKNOWN if each.fraction is None else percent(each.fraction),
                Cell(size_or_unknown(each.total), Tone.QUIET),
                "" if each.speed is None else f"{human_bytes(each.speed)}/s",
                human_duration(each.eta) if each.phase.active and each.eta else "",
            )
        )
    return Table(columns, tuple(rows), tuple(each.id for each in found))


def disk_summary(view: LibraryView) -> str:
    """`6 models in /home/you/vllm: 143 GiB of disk, 1.8 TiB free.`"""
    contents = view.contents
    free = "free space unknown" if contents.free is None else f"{human_bytes(contents.free)} free"
    unused = sum(each.disk for each in contents.orphans) + sum(each.loose for each in contents.models)
    left = f", {human_bytes(unused)} unused" if unused else ""
    return (
        f"{models_text(len(contents.models))} in {contents.root}: {human_bytes(contents.disk)} of disk{left}, {free}."
    )


def finding_text(finding: Finding) -> str:
    """What is the matter and what to do, on one line."""
    return f"{finding.summary}. {finding.remedy}".rstrip()


def finding_rows(findings: Iterable[Finding]) -> list[Row]:
    rows = []
    for finding in findings:
        rows.append(Row(finding.summary, "!", Tone.WARNING))
        rows += [Row(finding.remedy, "fix")] if finding.remedy else []
        rows += [Row(finding.subject, "path")] if finding.subject and finding.subject not in finding.summary else []
    return rows


def other_cache_page(other: OtherCache) -> Page:
    names = [Row(f"{model.id}  {human_bytes(model.size)}", "-") for model in other.models[:MOST_NAMED]]
    more = len(other.models) - MOST_NAMED
    names += [Row(f"and {more} more", tone=Tone.QUIET)] if more > 0 else []
    about = (
        Row("Another tool's cache. Engines mount the store only and do not see these models."),
        *labelled((("path", other.path), ("size", f"{human_bytes(other.disk)} of disk"))),
    )
    return Section(rows=about), Section("Models", tuple(names)), Section(rows=tuple(finding_rows(other.findings)))


# --- one model --------------------------------------------------------------------------------------------


def model_page(
    entry: LibraryEntry, look: Reading[Inspection] | None, download: Download | None, now: float,
    engines_unknown: str = "",
) -> Page:  # fmt: skip
    """State and why, verification, download, performance, sizes, engines and presets that use it."""
    model = entry.model
    state = [Row("downloading" if model.writing else _STATES[model.completeness], tone=STATE_TONES[model.completeness])]
    state += [Row(reason, "-") for reason in model.reasons]
    found = value_of(look) if look is not None else None
    expected = performance(found) if found is not None else Section()
    if isinstance(look, Missing):
        expected = Section(rows=(Row(f"Performance unknown: {look.reason}.", tone=Tone.QUIET),))
    return _page(
        Section(rows=(*state, *_check_rows(entry))),
        Section(rows=tuple(_progress_rows(download)) if download is not None else ()),
        Section(rows=tuple(finding_rows(model.findings))),
        expected,
        Section(rows=(*_sizes(model, now), *_uses(entry, engines_unknown))),
    )


def _page(*sections: Section) -> Page:
    return tuple(each for each in sections if each != Section())


def performance(found: Inspection) -> Section:
    """What to expect on one Spark."""
    rows = tuple(Row(text, "-") for text in found.verdict)
    return Section("Performance on one Spark", rows) if rows else Section()


def _check_rows(entry: LibraryEntry) -> list[Row]:
    check = entry.check
    rows = [Row(f"failed: {entry.failure}", "verified", Tone.BAD)] if entry.failure else []
    if check is None:
        return rows
    if not check.over:
        rows.append(Row(verify_progress(check), "verifying", Tone.STRONG))
        return rows + ([Row(check.name, "  ", Tone.STRONG)] if check.name else [])
    tone = Tone.BAD if check.wrong else Tone.WARNING if check.unsure else Tone.GOOD
    rows.append(Row(check.sentence, "verified", tone))
    for each in (check.wrong + (check.unsure if check.matching else ()))[:MOST_NAMED]:
        rows.append(Row(f"{each.name} {each.verdict}{f' ({each.detail})' if each.detail else ''}", "-"))
    return rows


def verify_progress(check: VerifyProgress) -> str:
    """`41% of 62.3 GiB  2.1 GiB/s  18s left`."""
    parts = [f"{check.fraction:.0%} of {human_bytes(check.total)}"]
    parts += [f"{human_bytes(check.rate)}/s"] if check.rate else []
    parts += [f"{human_duration(check.left_seconds)} left"] if check.left_seconds else []
    return "  ".join(parts)


def _sizes(model: StoredModel, now: float) -> list[Row]:
    disk = f", {human_bytes(model.disk)} of disk" if model.disk != model.size else ""
    pairs = [("size", f"{human_bytes(model.size)}{disk}")]
    if model.partial_bytes:
        pairs.append(("unfinished", f"{human_bytes(model.partial_bytes)} of interrupted or running downloads"))
    if model.loose:
        pairs.append(("unused", f"{human_bytes(model.loose)} not used by any revision"))
    if len(model.revisions) > 1:
        for each in model.revisions:
            refs = f" {', '.join(each.refs)}" if each.refs else ""
            current = ", current" if each.commit == model.commit else ""
            text = f"{each.short}{refs}: {each.completeness}, {human_bytes(each.size)}{current}"
            pairs.append(("revision", text))
    elif model.commit:
        refs = ", ".join(model.revisions[0].refs) if model.revisions else ""
        pairs.append(("revision", f"{model.commit[:12]} {refs}".strip()))
    if model.kind.value != "model":
        pairs.append(("kind", model.kind.value))
    if model.used is not None:
        pairs.append(("last read", age(now - model.used)))
    return list(labelled((*pairs, ("path", model.path))))


def _uses(entry: LibraryEntry, engines_unknown: str) -> list[Row]:
    others = (use for use in entry.uses if use.kind.value != "preset")
    rows = [Row(use.words, "engine", Tone.PLAIN if use.sure else Tone.WARNING) for use in others]
    if engines_unknown:
        rows.append(Row(f"unknown: {engines_unknown}", "engines", Tone.WARNING))
    if entry.presets:
        rows.append(Row(", ".join(entry.presets), "presets"))
    elif not entry.uses and not engines_unknown:
        rows.append(Row("no preset, no engine", "used by", Tone.QUIET))
    return rows


def files_page(files: Sequence[StoredFile], check: VerifyProgress | None = None) -> Page:
    """Every file with its size, what is wrong with it, and the result of a verification."""
    verdicts = {each.name: each.verdict for each in check.checks} if check is not None else {}
    rows = []
    for file in files[:MOST_FILES]:
        verdict, state = verdicts.get(file.name), Cell("")
        if verdict is not None:
            good = verdict is FileVerdict.MATCHES
            state = Cell(str(verdict), Tone.GOOD if good else Tone.BAD if verdict.wrong else Tone.WARNING)
        elif file.trouble:
            state = Cell(str(file.trouble), Tone.BAD)
        elif check is not None and not check.over and check.name == file.name:
            state = Cell("reading", Tone.STRONG)
        rows.append(cells("-" if file.size is None else human_bytes(file.size), file.name, state))
    return _file_sections(rows, len(files))


_FILE_COLUMNS: Final = (Column("SIZE", right=True), Column("FILE", least=20), Column("STATE"))


def _file_sections(rows: Sequence[tuple[Cell, ...]], count: int, title: str = "") -> Page:
    more = (Row(f"and {count - len(rows)} more", tone=Tone.QUIET),) if count > len(rows) else ()
    table = Section(title, table=Table(_FILE_COLUMNS, tuple(rows), empty="No files."))
    return (table, Section(rows=more)) if more else (table,)


def checkpoint_page(
    found: Inspection | None, about: Sequence[tuple[str, str]] = (), problems: Iterable[str] = ()
) -> Page:
    """Performance, `about` it, what it is by its own files, the weights of 16 bits, and findings."""
    known = inspection_rows(found) if found is not None else ()
    wide = Section()
    if found is not None and found.wide and found.read is not None:
        columns = (Column("MODULE"), Column("STORED", right=True), Column("READ PER TOKEN", right=True))
        rows = (cells(each.module.value, human_bytes(each.stored), human_bytes(each.read)) for each in found.wide)
        wide = Section("Weights of 16 bits and more", table=Table(columns, tuple(rows)))
    problems = (*problems, *(found.facts.findings if found is not None else ()))
    warnings = tuple(Row(text, "!", Tone.WARNING) for text in problems)
    return _page(
        performance(found) if found is not None else Section(),
        Section(rows=labelled((*about, *known))),
        wide,
        Section("Findings", warnings) if warnings else Section(),
    )


# --- downloads --------------------------------------------------------------------------------------------


def progress_text(download: Download) -> str:
    """`downloading  41% of 18.4 GiB  3 of 7 files  112 MiB/s  1m36s left`."""
    parts = [download.phase.value]
    if download.total is not None and download.fraction is not None:
        parts.append(f"{percent(download.fraction)} of {human_bytes(download.total)}")
    elif download.done:
        parts.append(human_bytes(download.done))
    if download.files:
        parts.append(f"{download.files_done} of {len(download.files)} file{'s' * (len(download.files) != 1)}")
    if download.speed is not None and download.phase.active:
        parts.append(f"{human_bytes(download.speed)}/s")
    if download.eta and download.phase.active:
        parts.append(f"{human_duration(download.eta)} left")
    return "  ".join(parts)


def _progress_rows(download: Download) -> list[Row]:
    rows = [Row(progress_text(download), "download", PHASE_TONES.get(download.phase, Tone.WARNING))]
    rows += [Row(download.waiting, "waiting", Tone.WARNING)] if download.waiting else []
    if download.failure is not None:
        rows += [Row(download.failure.summary, "failed", Tone.BAD), Row(download.failure.remedy, "fix")]
        rows += [Row(download.failure.detail, "evidence", Tone.QUIET)] if download.failure.detail else []
    return rows


def download_page(download: Download) -> Page:
    """How far it is, what it waits for, why it failed, and where it goes."""
    request = download.request
    commit = f", {download.commit[:12]}" if download.commit else ""
    pairs = (
        ("revision", f"{request.revision}{commit}" if request.repo else ""),
        ("url", request.url),
        ("into", f"folder {request.target} of the store" if request.target else "the store's Hub cache"),
        ("preset", request.preset),
        ("left out", f"{download.left_out} files that no engine reads" if download.left_out else ""),
        ("cap", f"{human_bytes(download.limit)}/s for all downloads" if download.limit else ""),
        ("log", download.log),
    )
    return Section(rows=tuple(_progress_rows(download))), Section(rows=labelled(pairs))


_FILE_ORDER: Final = (FileState.RUNNING, FileState.CHECKING, FileState.WAITING, FileState.DONE)
_FILE_TONES: Final = {FileState.RUNNING: Tone.STRONG, FileState.CHECKING: Tone.WARNING, FileState.DONE: Tone.GOOD}


def download_files_page(download: Download) -> Page:
    """Every file and how much of it is downloaded; running ones first."""

    def row(file: FileProgress) -> tuple[Cell, ...]:
        part = f" {percent(file.done / file.size)}" if file.size and file.state is not FileState.DONE else ""
        state = Cell(f"{file.state.value}{part}", _FILE_TONES.get(file.state, Tone.QUIET))
        return cells(size_or_unknown(file.size), file.path, state)

    ordered = sorted(download.files, key=lambda file: _FILE_ORDER.index(file.state))
    if not ordered:
        return (Section(rows=(Row("File list not settled yet.", tone=Tone.QUIET),)),)
    return _file_sections([row(file) for file in ordered[:MOST_FILES]], len(ordered))


def downloads_table(downloads: Iterable[Download]) -> Table:
    columns = (
        Column("DOWNLOAD", least=20),
        Column("STATE"),
        Column("DONE", right=True),
        Column("SIZE", right=True, keep=6),
        Column("SPEED", right=True, keep=8),
        Column("LEFT", right=True, keep=7),
    )
    rows = []
    for each in downloads:
        done = percent(each.fraction) if each.fraction is not None else human_bytes(each.done) if each.done else "-"
        state = Cell(each.phase.value, PHASE_TONES.get(each.phase, Tone.WARNING))
        speed = "-" if each.speed is None else f"{human_bytes(each.speed)}/s"
        left = human_duration(each.eta) if each.eta and each.phase.active else "-"
        rows.append(cells(Cell(each.id, Tone.STRONG), state, done, size_or_unknown(each.total), speed, left))
    return Table(columns, tuple(rows), empty="No downloads.")


def plan_page(plan: DownloadPlan, checkpoint: Reading[Inspection] | None) -> Page:
    """What would be downloaded: why it cannot be, sizes, the card, the checkpoint, every file."""
    sections: list[Section] = []
    if plan.refusal is not None and not plan.choices:
        sections += refusal_page(plan.refusal)
    if plan.choices:
        sections.append(Section(rows=(Row("One model in several sizes: choose one."),)))
    elif plan.whole:
        sections.append(Section(rows=(Row("Downloaded already.", tone=Tone.GOOD),)))
    else:
        sections.append(Section(rows=labelled((("size", plan_size(plan)), ("to download", plan_room(plan))))))
    if plan.facts is not None:
        sections.append(Section(rows=tuple(card_rows(plan.facts))))
    sections.append(Section(rows=tuple(Row(note, "!", Tone.WARNING) for note in plan.notes)))
    if checkpoint is None or isinstance(checkpoint, Missing):
        reading = "Reading its config and the headers of its weights..." if plan.facts is not None else ""
        text = reading if checkpoint is None else f"No format information: {checkpoint.reason}."
        sections.append(Section(rows=(Row(text, tone=Tone.QUIET),) if text else ()))
    else:
        rows = labelled(inspection_rows(checkpoint.value))
        sections += [performance(checkpoint.value), Section("From its own files", rows)]
    if plan.files:
        files = [
            cells(size_or_unknown(file.size), file.path, Cell(downloaded_text(file), Tone.QUIET))
            for file in plan.files[:MOST_FILES]
        ]
        sections += _file_sections(files, len(plan.files), f"Files: {len(plan.files)}")
    if plan.left_out:
        out = [cells(size_or_unknown(each.size), each.path, each.why) for each in plan.left_out[:MOST_FILES]]
        title = f"Left out: {len(plan.left_out)} files, {left_out_size(plan)}"
        sections += _file_sections(out, len(plan.left_out), title)
    return _page(*sections)


def downloaded_text(file: PlannedFile) -> str:
    """`downloaded`, `1.2 GiB downloaded`; empty before a byte of it is."""
    return "downloaded" if file.left == 0 else f"{human_bytes(file.here)} downloaded" if file.here else ""


def left_out_size(plan: DownloadPlan) -> str:
    """`43.1 GiB`: of the files that are not downloaded."""
    return human_bytes(sum(each.size or 0 for each in plan.left_out))


def refusal_page(error: SparkError) -> Page:
    detail = (Row(error.detail, tone=Tone.QUIET),) if error.detail else ()
    return (Section(rows=(Row(error.summary, tone=Tone.BAD), Row(error.remedy), *detail)),)


def plan_size(plan: DownloadPlan) -> str:
    """`18.4 GiB in 7 files, 2.1 GiB downloaded`."""
    here = "" if plan.left == plan.total else f", {human_bytes(sum(file.here for file in plan.files))} downloaded"
    total = "unknown size" if plan.total is None else human_bytes(plan.total)
    return f"{total} in {len(plan.files)} files{here}"


def plan_room(plan: DownloadPlan) -> str:
    """`16.3 GiB (2.2 TiB free)`."""
    free = value_of(plan.free)
    left = "unknown size" if plan.left is None else human_bytes(plan.left)
    return f"{left} ({'free space unknown' if free is None else f'{human_bytes(free)} free'})"


def choices_table(plan: DownloadPlan) -> Table:
    rows = tuple(cells(size_or_unknown(size), name) for name, size in plan.choices)
    return Table((Column("size", right=True), Column("file", least=20)), rows, tuple(name for name, _ in plan.choices))


# --- the Hub ----------------------------------------------------------------------------------------------


def card_rows(facts: RepoFacts) -> list[Row]:
    doubt = f"; {facts.formats.doubt}" if facts.formats.doubt else ""
    form = f"{facts.formats.words} by {facts.formats.basis.value}{doubt}" if facts.formats.found else "unknown"
    licence = " ".join(filter(None, (facts.licence, facts.licence_link)))
    rows = (
        Row(form, "format"),
        Row("unknown" if facts.weights is None else human_bytes(facts.weights), "weights"),
        Row(_FITS[facts.fits], "fit", FITS_TONES[facts.fits]),
        Row(
            "private" if facts.private else _ACCESS[facts.gating],
            "access",
            Tone.PLAIN if facts.gating is Gating.OPEN else Tone.WARNING,
        ),
        Row(licence or "not stated", "licence"),
        Row(", ".join(facts.base_models), "base model"),
        Row(facts.task, "task"),
        Row(facts.page, "page"),
        Row(facts.commit[:12], "commit"),
    )
    return [row for row in rows if row.text]


def hits_table(hits: Iterable[SearchHit], now: float) -> Table:
    """Repositories of a search; `!` before a format that is in doubt."""
    columns = (
        Column("MODEL", least=28),
        Column("FORMAT"),
        Column("WEIGHTS", right=True),
        Column("ONE SPARK", keep=8),
        Column("DOWNLOADS", right=True, keep=6),
        Column("UPDATED", right=True, keep=5),
        Column("ACCESS", keep=7),
    )
    rows, ids = [], []
    for hit in hits:
        word = hit.formats.words or ("GGUF" if hit.gguf else UNKNOWN)
        access = "private" if hit.private else "" if hit.gating is Gating.OPEN else "gated"
        ids.append(hit.repo)
        rows.append(
            cells(
                Cell(hit.repo, Tone.STRONG),
                Cell(f"! {word}", Tone.WARNING) if hit.formats.doubt else word,
                size_or_unknown(hit.weights),
                Cell(UNKNOWN if hit.fits is Fits.UNKNOWN else hit.fits.value, FITS_TONES[hit.fits]),
                UNKNOWN if hit.downloads is None else short_tokens(hit.downloads),
                UNKNOWN if hit.modified is None else age(now - hit.modified),
                Cell(access, Tone.WARNING),
            )
        )
    return Table(columns, tuple(rows), tuple(ids))


def hit_rows(hit: SearchHit) -> tuple[Row, ...]:
    """What the row of a hit has no room for, in two lines."""
    parts = [hit.repo]
    packed = hit.formats.found[:1] not in ((WeightFormat.BF16,), (WeightFormat.FP16,), (WeightFormat.FP8,))
    if hit.parameters and not packed:  # of packed weights the Hub counts the bytes, or words, that hold them
        parts.append(f"{hit.parameters / 1e9:.3g} B parameters")
    parts += [f"{human_bytes(hit.storage)} on the Hub"] if hit.storage else []
    parts += [hit.task] if hit.task else []
    parts += [f"licence {hit.licence}"] if hit.licence else []
    basis = f"Format by {hit.formats.basis.value}." if hit.formats.basis is not FormatBasis.CONFIG else ""
    second = Row(f"It is {hit.formats.doubt}.", tone=Tone.WARNING) if hit.formats.doubt else Row(basis, tone=Tone.QUIET)
    return Row("   ".join(parts), tone=Tone.QUIET), second


# --- as data ----------------------------------------------------------------------------------------------

NO_HEADERS: Final = "the headers of its weights are not all here"
_NEVER: Final = "nothing of it has been read, or the file system does not keep it"
_NOT_TOLD: Final = "the Hub does not say"
_NO_LISTING: Final = "the Hub's listing is not here"


def store_object(view: LibraryView) -> Object:
    contents = view.contents
    return {
        "store": contents.root,
        "size_bytes": contents.size,
        "disk_bytes": contents.disk,
        **maybe("free_bytes", contents.free, "the file system does not say"),
        "scan_seconds": round(contents.seconds, 4),
        "models": [entry_object(entry, view.engines_unknown) for entry in view.entries],
        "orphans_bytes": sum(each.disk for each in contents.orphans),
        "other_caches": [
            {"path": each.path, "disk_bytes": each.disk, "models": [model_object(model) for model in each.models]}
            for each in contents.others
        ],
        "findings": [finding_object(each) for each in contents.findings],
    }


def entry_object(entry: LibraryEntry, unknown: str = "") -> Object:
    """A model with the engines and presets that use it. `unknown` is why engines are unknown."""
    engines = None if unknown else [{"id": use.name, "sure": use.sure} for use in entry.engines]
    found = model_object(entry.model) | {"engines": engines, "presets": list(entry.presets)}
    return found | {"engines_reason": unknown} if unknown else found


def model_object(model: StoredModel) -> Object:
    """One model. `size` is what its files show, `disk` what they take."""
    return {
        "id": model.id,
        "layout": "cache" if model.layout is Layout.CACHE else "folder",
        "kind": model.kind.value,
        "path": model.path,
        "state": model.completeness.value,
        "reasons": list(model.reasons),
        "downloading": model.writing,
        "size_bytes": model.size,
        "disk_bytes": model.disk,
        "loose_bytes": model.loose,
        "partial_bytes": model.partial_bytes,
        **maybe("used_at", moment(model.used), _NEVER),
        **maybe("commit", model.commit, "unknown"),
        "revisions": [
            {
                **maybe("commit", each.commit, "unknown"),
                "refs": list(each.refs),
                "state": each.completeness.value,
                "reasons": list(each.reasons),
                "files": each.files,
                "size_bytes": each.size,
                **maybe("expected_bytes", each.expected, _NO_LISTING),
                "missing": list(each.missing),
                "path": each.path,
            }
            for each in model.revisions
        ],
        "foreign_files": model.foreign,
        "findings": [finding_object(each) for each in model.findings],
    }


def finding_object(finding: Finding) -> Object:
    return {"what": finding.summary, "remedy": finding.remedy, "path": finding.subject}


def file_object(file: StoredFile) -> Object:
    expected = file.expected
    return {
        "name": file.name,
        **maybe("size_bytes", file.size, file.trouble or "there is no data"),
        **maybe("expected_bytes", expected.size if expected else None, _NO_LISTING),
        **maybe("digest", expected.digest if expected else "", "unknown"),
        "algorithm": expected.algorithm.value if expected else "",
        "trouble": file.trouble.value,
    }


def verify_progress_object(progress: VerifyProgress) -> Object:
    return {
        "id": progress.model,
        "done_bytes": progress.done,
        "total_bytes": progress.total,
        "files_done": len(progress.checks),
        "seconds": round(progress.seconds, 2),
        **maybe("bytes_per_second", progress.rate and round(progress.rate), "not known yet"),
    }


def verified_object(result: VerifyProgress, command: str) -> Object:
    """A verification that is over; `command` downloads again what is wrong."""
    return {
        **verify_progress_object(result),
        "revision": result.revision,
        "verified": not result.wrong and not result.unsure and bool(result.checks),
        "fetch_again": [check.name for check in result.wrong],
        "command": command,
        "files": [
            {"name": each.name, "verdict": each.verdict.name.lower(), "size_bytes": each.size,
             "algorithm": each.algorithm.value, "detail": each.detail}
            for each in result.checks
        ],
    }  # fmt: skip


def delete_object(plan: DeletePlan) -> Object:
    return {
        "id": plan.model,
        "extent": plan.extent.value,
        "revision": plan.revision,
        "freed_bytes": plan.freed,
        "stays_bytes": plan.stays,
        "files": plan.files,
        "removes": [*plan.removes, *plan.shared],
        "obstacles": [finding_object(each) for each in plan.obstacles],
    }


def checkpoint_object(found: Inspection) -> Object:
    facts, chat, form = found.facts, found.facts.chat, found.facts.quantization
    unread = "not in its config"
    chat_shape: Any = {"chat": None, "chat_reason": "it has no chat template"}
    if chat is not None:
        chat_shape = {
            "chat": {
                "thinking": chat.thinking, "tools": chat.tools, "images": chat.images, "switches": list(chat.switches),
                "reasoning_parser": chat.reasoning_parser, "tool_call_parser": chat.tool_parser,
            }
        }  # fmt: skip
    return {
        **maybe("architecture", facts.architecture, unread),
        **maybe("model_type", facts.model_type, unread),
        **maybe("quantization", form.words if form else None, unread),
        "formats": [each.value for each in form.formats] if form else [],
        "unquantized_modules": list(form.excluded) if form else [],
        **maybe("parameters", found.parameters, NO_HEADERS),
        **maybe("active_parameters", found.active, NO_HEADERS),
        **maybe("layers", facts.layers, unread),
        **maybe("context_tokens", facts.max_position_embeddings, unread),
        **maybe("weights_bytes", facts.weights.size if facts.weights else None, NO_HEADERS),
        "dtype_bytes": dict(facts.weights.by_dtype) if facts.weights else {},
        **maybe("read_per_token_bytes", found.read.size if found.read else None, NO_HEADERS),
        **maybe("wide_read_per_token_bytes", found.read.wide if found.read else None, NO_HEADERS),
        "wide_modules": [
            {"module": each.module.value, "stored_bytes": each.stored, "read_per_token_bytes": each.read}
            for each in found.wide
        ],
        **maybe("ceiling_tokens_per_second", rounded(found.ceiling.measured, 1) if found.ceiling else None, NO_HEADERS),
        **maybe("kv_bytes_per_token", found.kv.bytes_per_token if found.kv else None, unread),
        **maybe("state_bytes_per_sequence", found.kv.state_bytes if found.kv else None, unread),
        **maybe("mtp_layers_declared", facts.mtp_declared, "none are declared"),
        **maybe("mtp_layers_here", facts.mtp_layers, "it is not known whether their weights are here"),
        "modalities": list(facts.modalities),
        **chat_shape,
        **maybe("licence", facts.licence, "its card does not name one, or is not here"),
        "verdict": list(found.verdict),
        "findings": list(facts.findings),
    }


def checkpoint_field(found: Reading[Inspection]) -> Object:
    return read("checkpoint", found, checkpoint_object)


def hit_object(hit: SearchHit) -> Object:
    """One repository of a search. `weights_bytes` are its tensors; `storage_bytes` all that it takes on the Hub."""
    return {
        **_repo_object(hit),
        **maybe("parameters", hit.parameters, _NOT_TOLD),
        **maybe("storage_bytes", hit.storage, _NOT_TOLD),
        "gguf": hit.gguf,
    }


def repo_object(facts: RepoFacts) -> Object:
    return {
        **_repo_object(facts),
        "commit": facts.commit,
        "page": facts.page,
        "licence_link": facts.licence_link,
        **maybe("size_bytes", facts.size, _NOT_TOLD),
        "base_models": list(facts.base_models),
        "library": facts.library,
    }


def _repo_object(hit: SearchHit) -> Object:
    return {
        "id": hit.repo,
        "publisher": hit.publisher,
        "formats": [form.value for form in hit.formats.found],
        "formats_by": hit.formats.basis.value,
        "formats_doubt": hit.formats.doubt,
        **maybe("weights_bytes", hit.weights, _NOT_TOLD),
        "fits_one_spark": hit.fits.value,
        "access": hit.gating.value,
        "private": hit.private,
        **maybe("downloads", hit.downloads, _NOT_TOLD),
        **maybe("likes", hit.likes, _NOT_TOLD),
        **maybe("modified_at", moment(hit.modified), _NOT_TOLD),
        "task": hit.task,
        "licence": hit.licence,
    }


def plan_object(plan: DownloadPlan) -> Object:
    refusal = plan.refusal
    why = None if refusal is None else {"id": refusal.id, "summary": refusal.summary, "remedy": refusal.remedy}
    return {
        "id": plan.request.id,
        "repo": plan.request.repo,
        "target": plan.request.target,
        "url": plan.request.url,
        **maybe("commit", plan.facts.commit if plan.facts else None, "it is not on the Hub"),
        **maybe("total_bytes", plan.total, _NOT_TOLD),
        **maybe("left_bytes", plan.left, _NOT_TOLD),
        **read("free_bytes", plan.free, int),
        "files": [
            {"path": file.path, **maybe("size_bytes", file.size, _NOT_TOLD), "here_bytes": file.here}
            for file in plan.files
        ],
        "left_out": [
            {"path": each.path, **maybe("size_bytes", each.size, _NOT_TOLD), "why": each.why} for each in plan.left_out
        ],
        "choices": [{"name": name, **maybe("size_bytes", size, _NOT_TOLD)} for name, size in plan.choices],
        "notes": list(plan.notes),
        "refusal": why,
    }


def download_object(download: Download, *, files: bool = True) -> Object:
    unknown = "not known yet" if download.phase.active else "it rests"
    failure = download.failure
    shape = {
        "id": download.id,
        "repo": download.request.repo,
        "revision": download.request.revision,
        "target": download.request.target,
        "preset": download.request.preset,
        "state": download.phase.value,
        "waiting_for": download.waiting,
        **maybe("commit", download.commit, "it is not settled yet"),
        "done_bytes": download.done,
        **maybe("total_bytes", download.total, "it is not known yet"),
        "files_done": download.files_done,
        "files_total": len(download.files),
        **maybe("bytes_per_second", download.speed and round(download.speed), unknown),
        **maybe("seconds_left", download.eta and round(download.eta), unknown),
        **maybe("limit_bytes_per_second", download.limit and round(download.limit), "there is no cap"),
        **maybe("created_at", moment(download.created or None), "its record is damaged"),
        **maybe("ended_at", moment(download.ended), "it has not ended"),
        "failure": None if failure is None else
        {"id": failure.id, "summary": failure.summary, "remedy": failure.remedy, "detail": failure.detail},
    }  # fmt: skip
    if files:
        shape["files"] = [
            {"path": file.path, **maybe("size_bytes", file.size, _NOT_TOLD), "done_bytes": file.done,
             "state": file.state.value}
            for file in download.files
        ]  # fmt: skip
    return shape
