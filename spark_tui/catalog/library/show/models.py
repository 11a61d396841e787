"""Models: what the store has, one model of it, and what verifying and deleting do."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from spark_tui.base.errors import SparkError
from spark_tui.base.finding import Finding, Reading, value_of
from spark_tui.base.page import Cell, Column, Object, Page, Row, Section, Table, Tone, cells, labelled, maybe, moment
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.catalog.fit.model.draft import Draft
from spark_tui.catalog.fit.model.verdict import LaunchVerdict
from spark_tui.catalog.fit.show.draft import FIT_TONES
from spark_tui.catalog.models.model.download import Download
from spark_tui.catalog.models.model.inspection import Inspection
from spark_tui.catalog.models.model.store import (
    Completeness,
    DeletePlan,
    FileVerdict,
    Layout,
    OtherCache,
    StoredFile,
    StoredModel,
    VerifyProgress,
)
from spark_tui.catalog.models.show.downloads import (
    BAR,
    MOST_FILES,
    bar_cell,
    file_sections,
    name_text,
    open_downloads,
    pace,
    progress_rows,
)
from spark_tui.catalog.models.show.inspection import UNKNOWN, age, performance, shown_sections, size_or_unknown
from spark_tui.catalog.presets.model.library import LibraryEntry, LibraryView, User
from spark_tui.catalog.presets.model.preset import PublishedSpeed

MOST_NAMED: Final = 40
_MOST_USERS: Final = 3
_NO_LISTING: Final = "the Hub's listing is not here"
_STATES: Final = {
    Completeness.COMPLETE: ("complete", Tone.GOOD),
    Completeness.PARTIAL: ("partial: files are missing", Tone.WARNING),
    Completeness.CORRUPT: ("corrupt: cannot be loaded", Tone.BAD),
    Completeness.UNREFERENCED: ("old revision (no branch or tag)", Tone.QUIET),
    Completeness.UNKNOWN: ("unknown: could not be read", Tone.WARNING),
}


# --- the store --------------------------------------------------------------------------------------------


def shown_entries(
    entries: Iterable[LibraryEntry], looks: Mapping[str, Reading[Inspection]], words: Sequence[str]
) -> list[LibraryEntry]:
    """Those that have every word in what identifies the model, in its state, or in the names of its users: the cache
    first, then folders; by name without the publisher."""
    found = []
    for entry in entries:
        model = entry.model
        form = format_word(looks.get(model.id))
        texts = (model.id, model.path, model.completeness.value, model.layout.value, form)
        text = " ".join((*texts, *(use.name for use in entry.uses))).lower()
        if all(word in text for word in words):
            key = (model.layout is Layout.FOLDER, model.id.lower().rpartition("/")[2], model.id)
            found.append((key, entry))
    return [entry for _, entry in sorted(found, key=lambda each: each[0])]


def model_id_of(download: Download) -> str:
    """The model that a download fills."""
    target = download.request.target
    return f"/models/{target.strip('/').partition('/')[0]}" if target else download.request.repo


def download_of(model: StoredModel, downloads: Iterable[Download]) -> Download | None:
    """The open download that fills this model."""
    return next((each for each in open_downloads(downloads) if model_id_of(each) == model.id), None)


def format_word(look: Reading[Inspection] | None) -> str:
    """The main weight format by the checkpoint's config: `NVFP4`, `FP8+`, `BF16`; empty before it is read."""
    if look is None or (found := value_of(look)) is None:
        return "" if look is None else UNKNOWN
    form = found.facts.quantization
    if form is None or not form.method:
        return {"bfloat16": "BF16", "float16": "FP16", "float32": "F32"}.get(found.facts.dtype, UNKNOWN)
    return form.formats[0].value.partition(" ")[0] + "+" * (len(form.formats) > 1) if form.formats else UNKNOWN


def state_cell(entry: LibraryEntry, download: Download | None, full: str, empty: str) -> Cell:
    """What is being done with it, as a bar of the characters `full` and `empty`, else how complete it is. `!`: its page
    has a warning."""
    model, check = entry.model, entry.check
    if check is not None and not check.over:
        return Cell(f"verify {check.fraction:.0%}", Tone.STRONG)
    if download is not None and (download.phase.active or model.completeness is not Completeness.COMPLETE):
        return bar_cell(download, full, empty)
    if model.writing:
        return Cell("fetching", Tone.STRONG)
    if check is not None and check.wrong:
        return Cell("damaged", Tone.BAD)
    word = "verified" if check is not None and check.matching and not check.unsure else model.completeness.value
    if word == "complete" and any(use.sure for use in entry.engines):
        return Cell("in use", Tone.GOOD)
    if (model.findings or entry.failure) and model.completeness is Completeness.COMPLETE:
        return Cell(f"{word} !", Tone.WARNING)
    return Cell("old" if word == "unreferenced" else word, _STATES[model.completeness][1])


def _size_and_read(model: StoredModel, now: float) -> tuple[str, str]:
    size = model.size or model.partial_bytes
    return human_bytes(size) if size or model.partials else "-", "-" if model.used is None else age(now - model.used)


def store_table(entries: Iterable[LibraryEntry], now: float, elsewhere: Sequence[LibraryEntry] = ()) -> Table:
    """A row for each model, by its whole id; those `elsewhere` with their cache."""
    columns = (
        Column("MODEL", least=28),
        *((Column("PLACE"),) if elsewhere else ()),
        Column("STATE"),
        Column("SIZE", right=True),
        Column("READ", right=True, keep=7),
        Column("USED BY", keep=8, least=12),
    )
    rows = []
    for entry in (*entries, *elsewhere):
        model = entry.model
        place = (place_of(model) if entry in elsewhere else "store",) if elsewhere else ()
        state = Cell("downloading" if model.writing else model.completeness.value, _STATES[model.completeness][1])
        names = [use.name for use in entry.uses]  # engines before presets
        more = f" and {len(names) - _MOST_USERS} more" if len(names) > _MOST_USERS else ""
        users = ", ".join(names[:_MOST_USERS]) + more
        rows.append(cells(Cell(model.id, Tone.STRONG), *place, state, *_size_and_read(model, now), users))
    return Table(columns, tuple(rows))


def place_of(model: StoredModel) -> str:
    """The cache that a model lies in."""
    return posixpath.dirname(model.path)


OTHER, FINDING, DOWNLOAD = "other:", "finding:", "download:"
"""Before the path of another cache or of a model in one, before the number of a finding of the store, before the id of
a download whose model is not listed: their rows' ids. No model's id has a colon."""


def list_table(
    view: LibraryView,
    entries: Iterable[LibraryEntry],
    looks: Mapping[str, Reading[Inspection]],
    downloads: Sequence[Download],
    now: float,
    marks: tuple[str, str],
    *,
    rest: bool,
    empty: str,
) -> Table:
    """A row for each model under its layout; with `rest` also for downloads without a listed model, for other caches
    and for findings of the store. `marks` are the full and the empty cell of bars."""
    full, free = marks
    columns = (
        Column("model", least=22),
        Column("state"),
        Column("size", right=True, keep=7),
        Column("", keep=3),
        Column("format", keep=6),
        Column("presets", keep=5, least=12),
        Column("read", right=True, keep=4),
    )
    largest = max((each.model.size for each in view.entries), default=0) or 1
    listed = {model_id_of(each) for each in downloads} & {each.model.id for each in view.entries}
    rows: list[tuple[str, str, tuple[str | Cell, ...]]] = []
    for each in open_downloads(downloads) if rest else ():
        if model_id_of(each) not in listed:
            size, left = size_or_unknown(each.total), "  ".join(filter(None, pace(each)))
            row = (name_text(each.request.title), bar_cell(each, full, free), size, "", "", left, "")
            rows.append((f"{DOWNLOAD}{each.id}", "Downloads", row))
    for entry in entries:
        model, presets = entry.model, entry.presets
        download = download_of(model, downloads)
        users = f"{len(presets)} presets" if len(presets) > 1 else "".join(presets)
        size, read = _size_and_read(model, now)
        left = "  ".join(filter(None, pace(download))) if download is not None and download.phase.active else ""
        rows.append(
            (
                model.id,
                "Folders" if model.layout is Layout.FOLDER else "Hub cache",
                (
                    name_text(model.id),
                    state_cell(entry, download, full, free),
                    size,
                    Cell(full * (round(BAR * model.size / largest) or bool(model.size)), Tone.QUIET),
                    format_word(looks.get(model.id)),
                    left or Cell(users or "none", Tone.PLAIN if users else Tone.QUIET),
                    Cell(read, Tone.QUIET),
                ),
            )
        )
    for entry in view.elsewhere if rest else ():
        size, read = _size_and_read(entry.model, now)
        used = ", ".join(entry.presets[:_MOST_USERS]) or "none"
        row = (
            name_text(entry.model.id),
            state_cell(entry, None, full, free),
            size,
            "",
            "",
            used,
            read,
        )
        rows.append((f"{OTHER}{entry.model.path}", f"Also read: {place_of(entry.model)}", row))
    for other in view.contents.others if rest else ():
        if not other.mine:
            name = Cell(f"{_models_text(len(other.models))} in {other.path}", Tone.QUIET)
            size_cell = Cell(human_bytes(other.disk), Tone.QUIET)
            rows.append(
                (f"{OTHER}{other.path}", "Other users' caches (not read)", (name, "", size_cell, "", "", "", ""))
            )
    for number, finding in enumerate(view.contents.findings if rest else ()):
        summary = Cell(f"! {finding.summary}", Tone.WARNING)
        rows.append((f"{FINDING}{number}", "Findings", (summary, "", "", "", "", "", "")))
    ids, groups = tuple(id_ for id_, _, _ in rows), tuple(group for _, group, _ in rows)
    return Table(columns, tuple(cells(*row) for _, _, row in rows), ids, empty, groups)


def _models_text(count: int) -> str:
    return "1 model" if count == 1 else f"{count} models"


def disk_summary(view: LibraryView) -> str:
    """`6 models in /home/you/vllm: 143 GiB of disk, 1.8 TiB free.`"""
    contents = view.contents
    free = "free space unknown" if contents.free is None else f"{human_bytes(contents.free)} free"
    unused = sum(each.disk for each in contents.orphans) + sum(each.loose for each in contents.models)
    left = f", {human_bytes(unused)} unused" if unused else ""
    count = _models_text(len(contents.models))
    return f"{count} in {contents.root}: {human_bytes(contents.disk)} of disk{left}, {free}."


def disk_shares(view: LibraryView) -> tuple[tuple[str, int], ...]:
    """What takes the disk: models, all else, free; empty where its size is unknown."""
    contents = view.contents
    if contents.free is None or contents.total is None:
        return ()
    other = max(0, contents.total - contents.free - contents.disk)
    return ("models", contents.disk), ("other", other), ("free", contents.free)


def finding_text(finding: Finding) -> str:
    """What is the matter and what to do, on one line."""
    return f"{finding.summary}. {finding.remedy}".rstrip()


def finding_rows(findings: Iterable[Finding]) -> tuple[Row, ...]:
    """Each finding, its fix, and the path that it is about."""
    rows = []
    for finding in findings:
        rows.append(Row(finding.summary, "!", Tone.WARNING))
        path = finding.subject if finding.subject not in finding.summary else ""
        rows += labelled((("fix", finding.remedy), ("path", path)))
    return tuple(rows)


def other_cache_page(other: OtherCache) -> Page:
    """Where it is, its models and its findings."""
    names = [Row(f"{model.id}  {human_bytes(model.size)}", "-") for model in other.models[:MOST_NAMED]]
    more = len(other.models) - MOST_NAMED
    names += [Row(f"and {more} more", tone=Tone.QUIET)] if more > 0 else []
    about = (
        Row("Another user's cache. Launches do not read these models."),
        *labelled((("path", other.path), ("size", f"{human_bytes(other.disk)} of disk"))),
    )
    return Section(rows=about), Section("Models", tuple(names)), Section(rows=finding_rows(other.findings))


# --- one model --------------------------------------------------------------------------------------------


_ASKED: Final = ("container", "max_model_len", "quantization", "tool_calls", "reasoning_parser", "speculation")
"""Values of a draft that a person asks for before a launch."""


class Serving(Struct, frozen=True):
    """How a model would be served: its draft, or why there is none, and whether it fits now. `published` are speeds
    that presets of it state."""

    draft: Draft | SparkError
    verdict: LaunchVerdict | None = None
    published: tuple[PublishedSpeed, ...] = ()


def serving_section(serving: Serving | None, look: Reading[Inspection] | None) -> Section:
    """Fit, speed, and the values of the draft."""
    if serving is None:
        return Section()
    draft, verdict = serving.draft, serving.verdict
    if not isinstance(draft, Draft):
        return Section("To serve it", (Row(draft.summary, tone=Tone.WARNING), Row(draft.remedy, tone=Tone.QUIET)))
    rows = [Row(verdict.text, "fit", FIT_TONES.get(verdict.word, Tone.WARNING))] if verdict is not None else []
    if speed := speed_text(look, serving.published):
        rows.append(Row(speed, "speed"))
    for each in draft.values:
        if each.key in _ASKED:
            unsure = f" (uncertain: {each.doubt})" if each.doubt else ""
            rows.append(Row(f"{each.text}{unsure}", each.label, Tone.WARNING if each.doubt else Tone.PLAIN))
    return Section("To serve it", tuple(rows))


def speed_text(look: Reading[Inspection] | None, published: Sequence[PublishedSpeed]) -> str:
    """`estimate 44-63 tok/s, one stream; published 59 tok/s`."""
    found = value_of(look) if look is not None else None
    known = [each.tokens_per_second for each in published]
    texts = []
    if found is not None and found.ceiling is not None:
        texts.append(f"estimate {found.ceiling.text(max(known, default=0.0))}, one stream")
    if known:
        least, most = min(known), max(known)
        texts.append(f"published {least:.0f}{f'-{most:.0f}' if round(most) > round(least) else ''} tok/s")
    return "; ".join(texts)


def model_page(
    entry: LibraryEntry,
    look: Reading[Inspection] | None,
    download: Download | None,
    now: float,
    engines_unknown: str = "",
    serving: Serving | None = None,
) -> Page:
    """State and why, verification, download, how it is served, sizes, engines and presets that use it."""
    model, check = entry.model, entry.check
    text, tone = _STATES[model.completeness]
    state = [Row("downloading" if model.writing else text, tone=tone)]
    state += [Row(reason, "-") for reason in model.reasons]
    state += [Row(f"failed: {entry.failure}", "verified", Tone.BAD)] if entry.failure else []
    if check is not None and not check.over:
        state.append(Row(verify_progress(check), "verifying", Tone.STRONG))
        state += [Row(check.name, "  ", Tone.STRONG)] if check.name else []
    elif check is not None:
        tone = Tone.BAD if check.wrong else Tone.WARNING if check.unsure else Tone.GOOD
        state.append(Row(check.sentence, "verified", tone))
        for each in (check.wrong + (check.unsure if check.matching else ()))[:MOST_NAMED]:
            state.append(Row(f"{each.name} {each.verdict}{f' ({each.detail})' if each.detail else ''}", "-"))
    uses = [
        Row(use.words, "engine", Tone.PLAIN if use.sure else Tone.WARNING)
        for use in entry.uses
        if use.kind is not User.PRESET
    ]
    uses += [Row(f"unknown: {engines_unknown}", "engines", Tone.WARNING)] if engines_unknown else []
    if entry.presets:
        uses.append(Row(", ".join(entry.presets), "presets"))
    elif not entry.uses and not engines_unknown:
        uses.append(Row("no preset, no engine", "used by", Tone.QUIET))
    return shown_sections(
        Section(rows=tuple(state)),
        Section(rows=progress_rows(download) if download is not None else ()),
        Section(rows=finding_rows(model.findings)),
        serving_section(serving, look),
        Section(rows=(*_facts(model, now), *uses)),
        performance(look),
    )


def verify_progress(check: VerifyProgress) -> str:
    """`41% of 62.3 GiB  2.1 GiB/s  18s left`."""
    parts = [f"{check.fraction:.0%} of {human_bytes(check.total)}"]
    parts += [f"{human_bytes(check.rate)}/s"] if check.rate else []
    parts += [f"{human_duration(check.left_seconds)} left"] if check.left_seconds else []
    return "  ".join(parts)


def _facts(model: StoredModel, now: float) -> tuple[Row, ...]:
    """Sizes, revisions and path."""
    disk = f", {human_bytes(model.disk)} of disk" if model.disk != model.size else ""
    partial = f"{human_bytes(model.partial_bytes)} of interrupted or running downloads"
    revisions = []
    if len(model.revisions) > 1:
        for each in model.revisions:
            refs = f" {', '.join(each.refs)}" if each.refs else ""
            current = ", current" if each.commit == model.commit else ""
            text = f"{each.short}{refs}: {each.completeness}, {human_bytes(each.size)}{current}"
            revisions.append(("revision", text))
    elif model.commit:
        refs = ", ".join(model.revisions[0].refs) if model.revisions else ""
        revisions.append(("revision", f"{model.commit[:12]} {refs}".strip()))
    return labelled(
        (
            ("size", f"{human_bytes(model.size)}{disk}"),
            ("unfinished", partial if model.partial_bytes else ""),
            ("unused", f"{human_bytes(model.loose)} not used by any revision" if model.loose else ""),
            *revisions,
            ("kind", model.kind.value if model.kind.value != "model" else ""),
            ("last read", "" if model.used is None else age(now - model.used)),
            ("path", model.path),
        )
    )


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
    return file_sections(rows, len(files))


# --- as data ----------------------------------------------------------------------------------------------


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
            {
                "path": each.path,
                "mine": each.mine,
                "disk_bytes": each.disk,
                **maybe("tool", each.tool, "a Hub cache"),
                "models": [model_object(model) for model in each.models],
            }
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
        **maybe("used_at", moment(model.used), "nothing of it has been read, or the file system does not keep it"),
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
            {
                "name": each.name,
                "verdict": each.verdict.name.lower(),
                "size_bytes": each.size,
                "algorithm": each.algorithm.value,
                "detail": each.detail,
            }
            for each in result.checks
        ],
    }


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
