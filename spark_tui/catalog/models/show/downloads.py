"""Downloads: what one would fetch, how far it is, and its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Missing, Reading, value_of
from spark_tui.base.page import (
    Cell,
    Column,
    Object,
    Page,
    Row,
    Section,
    Table,
    Tone,
    cells,
    known,
    labelled,
    maybe,
    moment,
    read,
)
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadPhase,
    DownloadPlan,
    FileProgress,
    FileState,
    PlannedFile,
)
from spark_tui.catalog.models.model.inspection import Inspection
from spark_tui.catalog.models.show.inspection import (
    NOT_ON_HUB,
    card_rows,
    inspection_rows,
    performance,
    sentence_page,
    shown_sections,
    size_or_unknown,
)

MOST_FILES: Final = 500
BAR: Final = 6
"""Cells of a download's bar in a list."""
FILE_BAR: Final = 16
_PHASES: Final = {
    DownloadPhase.FINISHING: Tone.STRONG,
    DownloadPhase.DOWNLOADING: Tone.STRONG,
    DownloadPhase.PREPARING: Tone.STRONG,
    DownloadPhase.WAITING: Tone.WARNING,
    DownloadPhase.QUEUED: Tone.QUIET,
    DownloadPhase.FAILED: Tone.BAD,
    DownloadPhase.INTERRUPTED: Tone.WARNING,
    DownloadPhase.PAUSED: Tone.WARNING,
    DownloadPhase.DONE: Tone.GOOD,
}
"""In the order of the list, with their tones."""
_FILE_STATES: Final = {
    FileState.RUNNING: Tone.STRONG,
    FileState.CHECKING: Tone.WARNING,
    FileState.WAITING: Tone.QUIET,
    FileState.DONE: Tone.GOOD,
}


def phase_cell(download: Download, text: str = "") -> Cell:
    """`text`, else the name of its phase, in the tone of the phase."""
    return Cell(text or download.phase.value, _PHASES[download.phase])


def percent(fraction: float) -> str:
    """`41%`; 100 % only when all of it is there."""
    return f"{int(fraction * 100)}%"


def name_text(id_: str) -> str:
    """The name, then its publisher: where it is cut, the publisher goes first."""
    owner, _, name = id_.removeprefix("/models/").rpartition("/")
    return f"{name}  {owner}" if owner else name


def open_downloads(downloads: Iterable[Download]) -> list[Download]:
    """Those that are not done: running ones first, then failed and paused ones."""
    order = list(_PHASES)
    found = (each for each in downloads if each.phase is not DownloadPhase.DONE)
    return sorted(found, key=lambda each: (order.index(each.phase), each.created))


def downloads_table(downloads: Iterable[Download]) -> Table:
    """All downloads by the ids that commands take."""
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
        speed, left = pace(each)
        name, size = Cell(each.id, Tone.STRONG), size_or_unknown(each.total)
        rows.append(cells(name, phase_cell(each), done, size, speed or "-", left or "-"))
    return Table(columns, tuple(rows), empty="No downloads.")


def bar_cell(download: Download, full: str, empty: str) -> Cell:
    """`████░░ 41%` while it downloads, else its phase: `paused 41%`."""
    fraction = download.fraction
    if fraction is None:
        return phase_cell(download, "fetching" if download.phase is DownloadPhase.DOWNLOADING else "")
    if download.phase is not DownloadPhase.DOWNLOADING:
        return phase_cell(download, f"{download.phase.value} {percent(fraction)}")
    parts = int(BAR * fraction)
    return phase_cell(download, f"{full * parts}{empty * (BAR - parts)} {percent(fraction)}")


def pace(download: Download) -> tuple[str, str]:
    """Speed and time left; empty where unknown."""
    speed = "" if download.speed is None else f"{human_bytes(download.speed)}/s"
    return speed, human_duration(download.eta) if download.phase.active and download.eta else ""


def progress_text(download: Download) -> str:
    """`downloading  41% of 18.4 GiB  3 of 7 files  112 MiB/s  1m36s left`."""
    size, count = "", len(download.files)
    if download.total is not None and download.fraction is not None:
        size = f"{percent(download.fraction)} of {human_bytes(download.total)}"
    elif download.done:
        size = human_bytes(download.done)
    files = f"{download.files_done} of {count} file{'s' * (count != 1)}" if count else ""
    speed, left = pace(download)
    active = (speed, left and f"{left} left") if download.phase.active else ()
    return "  ".join(filter(None, (download.phase.value, size, files, *active)))


def progress_rows(download: Download) -> tuple[Row, ...]:
    """How far it is, what it waits for, and why it failed."""
    state = phase_cell(download, progress_text(download))
    rows = [Row(state.text, "download", state.tone)]
    rows += [Row(download.waiting, "waiting", Tone.WARNING)] if download.waiting else []
    if download.failure is not None:
        rows += [Row(download.failure.summary, "failed", Tone.BAD), Row(download.failure.remedy, "fix")]
        rows += [Row(download.failure.detail, "evidence", Tone.QUIET)] if download.failure.detail else []
    return tuple(rows)


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
    return Section(rows=progress_rows(download)), Section(rows=labelled(pairs))


def download_files_page(download: Download) -> Page:
    """Every file and how much of it is downloaded; running ones first."""

    def row(file: FileProgress) -> tuple[Cell, ...]:
        part = f" {percent(file.done / file.size)}" if file.size and file.state is not FileState.DONE else ""
        state = Cell(f"{file.state.value}{part}", _FILE_STATES[file.state])
        return cells(size_or_unknown(file.size), file.path, state)

    order = list(_FILE_STATES)
    ordered = sorted(download.files, key=lambda file: order.index(file.state))
    if not ordered:
        return sentence_page("File list not settled yet.")
    return file_sections([row(file) for file in ordered[:MOST_FILES]], len(ordered))


def fetch_page(downloads: Sequence[Download], full: str, empty: str) -> Page:
    """What a launch waits for: how far each download is, its files with a bar (running ones first), where it goes."""
    order, page = list(_FILE_STATES), list[Section]()
    for each in downloads:
        rows = []
        for file in sorted(each.files, key=lambda file: order.index(file.state)):
            share = 1.0 if file.state is FileState.DONE else file.done / file.size if file.size else 0.0
            parts = int(FILE_BAR * share)
            bar = Cell(f"{full * parts}{empty * (FILE_BAR - parts)} {percent(share):>4}", _FILE_STATES[file.state])
            rows.append(cells(Cell(file.path), size_or_unknown(file.size), bar))
        columns = (Column("file", least=12), Column("size", right=True), Column("downloaded"))
        _, where = download_page(each)
        state, *rest = progress_rows(each)
        text = state.text.removeprefix(f"{DownloadPhase.DOWNLOADING.value}  ")  # the step of the launch says so
        files = Section(table=Table(columns, tuple(rows[:MOST_FILES])))
        page += [Section(rows=(replace(state, text=text, label=""), *rest)), files, where]
    return tuple(page)


def file_sections(rows: Sequence[tuple[Cell, ...]], count: int, title: str = "") -> Page:
    """Size, name and state of files, and how many more of the `count` there are."""
    columns = (Column("SIZE", right=True), Column("FILE", least=20), Column("STATE"))
    table = Section(title, table=Table(columns, tuple(rows), empty="No files."))
    return (table, *sentence_page(f"and {count - len(rows)} more")) if count > len(rows) else (table,)


# --- a plan -----------------------------------------------------------------------------------------------


def plan_page(plan: DownloadPlan, checkpoint: Reading[Inspection] | None) -> Page:
    """What would be downloaded: why it cannot be, sizes, the card, the checkpoint, every file."""
    sections: list[Section] = []
    if plan.refusal is not None and not plan.choices:
        sections += refusal_page(plan.refusal)
    if plan.choices:
        sections += sentence_page("One model in several sizes: choose one.", Tone.PLAIN)
    elif plan.whole:
        sections += sentence_page("Downloaded already.", Tone.GOOD)
    else:
        here = "" if plan.left == plan.total else f", {human_bytes(sum(file.here for file in plan.files))} downloaded"
        total = "unknown size" if plan.total is None else human_bytes(plan.total)
        size = f"{total} in {len(plan.files)} files{here}"
        sections.append(Section(rows=labelled((("size", size), ("to download", plan_room(plan))))))
    if plan.facts is not None:
        sections.append(Section(rows=card_rows(plan.facts)))
    sections.append(Section(rows=tuple(Row(note, "!", Tone.WARNING) for note in plan.notes)))
    if isinstance(checkpoint, Missing):
        sections += sentence_page(f"No format information: {checkpoint.reason}.")
    elif checkpoint is not None:
        rows = labelled(inspection_rows(checkpoint.value))
        sections += [performance(checkpoint), Section("From its own files", rows)]
    elif plan.facts is not None:
        sections += sentence_page("Reading its config and the headers of its weights...")
    if plan.files:
        files = [
            cells(size_or_unknown(file.size), file.path, Cell(downloaded_text(file), Tone.QUIET))
            for file in plan.files[:MOST_FILES]
        ]
        sections += file_sections(files, len(plan.files), f"Files: {len(plan.files)}")
    if plan.left_out:
        out = [cells(size_or_unknown(each.size), each.path, each.why) for each in plan.left_out[:MOST_FILES]]
        sections += file_sections(out, len(plan.left_out), f"Left out: {left_out_text(plan, ', ')}")
    return shown_sections(*sections)


def downloaded_text(file: PlannedFile) -> str:
    """`downloaded`, `1.2 GiB downloaded`; empty before a byte of it is."""
    return "downloaded" if file.left == 0 else f"{human_bytes(file.here)} downloaded" if file.here else ""


def left_out_text(plan: DownloadPlan, gap: str) -> str:
    """`3 files, 43.1 GiB`: those that no engine reads."""
    return f"{len(plan.left_out)} files{gap}{human_bytes(sum(each.size or 0 for each in plan.left_out))}"


def refusal_page(error: SparkError) -> Page:
    detail = (Row(error.detail, tone=Tone.QUIET),) if error.detail else ()
    return (Section(rows=(Row(error.summary, tone=Tone.BAD), Row(error.remedy), *detail)),)


def plan_room(plan: DownloadPlan) -> str:
    """`16.3 GiB (2.2 TiB free)`."""
    free = value_of(plan.free)
    left = "unknown size" if plan.left is None else human_bytes(plan.left)
    return f"{left} ({'free space unknown' if free is None else f'{human_bytes(free)} free'})"


def choices_table(plan: DownloadPlan) -> Table:
    rows = tuple(cells(size_or_unknown(size), name) for name, size in plan.choices)
    return Table((Column("size", right=True), Column("file", least=20)), rows, tuple(name for name, _ in plan.choices))


def plan_object(plan: DownloadPlan) -> Object:
    """A dry run: files to download and left out, sizes, and why it would be refused."""
    refusal = plan.refusal
    why = None if refusal is None else {"id": refusal.id, "summary": refusal.summary, "remedy": refusal.remedy}
    return {
        "id": plan.request.id,
        "repo": plan.request.repo,
        "target": plan.request.target,
        "url": plan.request.url,
        **maybe("commit", plan.facts.commit if plan.facts else None, "it is not on the Hub"),
        **known(NOT_ON_HUB, total_bytes=plan.total, left_bytes=plan.left),
        **read("free_bytes", plan.free, int),
        "files": [
            {"path": file.path, **maybe("size_bytes", file.size, NOT_ON_HUB), "here_bytes": file.here}
            for file in plan.files
        ],
        "left_out": [
            {"path": each.path, **maybe("size_bytes", each.size, NOT_ON_HUB), "why": each.why} for each in plan.left_out
        ],
        "choices": [{"name": name, **maybe("size_bytes", size, NOT_ON_HUB)} for name, size in plan.choices],
        "notes": list(plan.notes),
        "refusal": why,
    }


def download_object(download: Download, *, files: bool = True) -> Object:
    """One download, with its files or without."""
    unknown = "not known yet" if download.phase.active else "it rests"
    speed, eta, failure = download.speed, download.eta, download.failure
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
        **known(unknown, bytes_per_second=speed and round(speed), seconds_left=eta and round(eta)),
        **maybe("limit_bytes_per_second", download.limit and round(download.limit), "there is no cap"),
        **maybe("created_at", moment(download.created or None), "its record is damaged"),
        **maybe("ended_at", moment(download.ended), "it has not ended"),
        "failure": None
        if failure is None
        else {"id": failure.id, "summary": failure.summary, "remedy": failure.remedy, "detail": failure.detail},
    }
    if files:
        shape["files"] = [
            {
                "path": file.path,
                **maybe("size_bytes", file.size, NOT_ON_HUB),
                "done_bytes": file.done,
                "state": file.state.value,
            }
            for file in download.files
        ]
    return shape
