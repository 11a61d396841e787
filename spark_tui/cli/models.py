"""models list, verify, rm: the checkpoints in the store."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from spark_tui.cli import shapes
from spark_tui.cli.asking import typed
from spark_tui.cli.downloads import hit_object, repo_object, size_typed
from spark_tui.cli.engines import ago
from spark_tui.cli.output import Cell, Column, Table, bar, bulleted, labelled
from spark_tui.cli.session import Session, interrupted
from spark_tui.core.context import Context
from spark_tui.core.library import LibraryEntry, LibraryView
from spark_tui.domain.errors import ExitCode, RefusedError, SparkError, UsageError
from spark_tui.domain.models.checkpoint import CheckpointFacts, WeightFormat
from spark_tui.domain.models.hub import Fits, Gating, RepoFacts, SearchHit, SearchQuery, Sort
from spark_tui.domain.models.inspection import Inspection, inspect, inspection_rows
from spark_tui.domain.models.store import (
    Completeness,
    Deleted,
    DeletePlan,
    Extent,
    FileCheck,
    Layout,
    OtherCache,
    StoredFile,
    StoredModel,
    StoredRevision,
    StoreFinding,
    VerifyProgress,
    fetch_again,
)
from spark_tui.domain.models.weights import DecodeCeiling, format_in
from spark_tui.domain.presets.model_use import ModelUse
from spark_tui.domain.quantities import human_bytes, human_duration, short_tokens
from spark_tui.domain.reading import Reading, reason_of, value_of
from spark_tui.domain.settings import Settings
from spark_tui.domain.text import clean_line

STATE_STYLE: Final = {
    Completeness.COMPLETE: "green",
    Completeness.PARTIAL: "yellow",
    Completeness.CORRUPT: "bold red",
    Completeness.UNREFERENCED: "dim",
    Completeness.UNKNOWN: "yellow",
}
_COLUMNS: Final = (
    Column("MODEL", flexible=True, name=True),
    Column("STATE"),
    Column("SIZE", right=True),
    Column("READ", right=True, spare=2),
    Column("USED BY", flexible=True, spare=1),
)
_WAYS_OUT: Final = {
    Completeness.PARTIAL: "Fetch the rest: spark-tui models pull {model}",
    Completeness.CORRUPT: "See which files to fetch again: spark-tui models verify {model}",
}
_MOST_USERS: Final = 3
_BAR: Final = 20


# --- list -------------------------------------------------------------------------------------------------


def list_models(session: Session) -> None:
    """What is in the store, how whole it is, and who uses it; what else there is to know on standard error."""
    found, now = session.run(_view)
    if session.as_json:
        session.out.json(_list_object(found))
        return
    if found.entries:
        session.out.table(Table(_COLUMNS, tuple(_row(entry, now) for entry in found.entries)))
    _tell(session, found)


async def _view(context: Context) -> tuple[LibraryView, float]:
    reading = await context.library.refresh()
    view = value_of(reading)
    if view is None:
        raise SparkError(f"The store cannot be read: {reason_of(reading)}", "See the settings: is `store` right?")
    return view, context.clock.now()


def _row(entry: LibraryEntry, now: float) -> tuple[Cell | str, ...]:
    model = entry.model
    state = "downloading" if model.writing else model.completeness.value
    return (
        Cell(model.id, "bold"),
        Cell(state, STATE_STYLE[model.completeness]),
        human_bytes(model.size) if model.size else human_bytes(model.partial_bytes) if model.partials else "-",
        "-" if model.used is None else ago(now - model.used),
        _users(entry.uses),
    )


def _users(uses: Iterable[ModelUse]) -> str:
    names = [use.name for use in uses]
    more = f" and {len(names) - _MOST_USERS} more" if len(names) > _MOST_USERS else ""
    return ", ".join(names[:_MOST_USERS]) + more


def _tell(session: Session, view: LibraryView) -> None:
    contents = view.contents
    free = "" if contents.free is None else f"; {human_bytes(contents.free)} are free"
    models = "1 model" if len(contents.models) == 1 else f"{len(contents.models)} models"
    session.err.say(f"{models} in {contents.root}: {human_bytes(contents.disk)} of disk{free}.")
    for entry in view.entries:
        for words in entry.model.reasons:
            session.err.note(f"{entry.model.id}: {words}")
        if entry.model.layout is Layout.CACHE and not entry.model.writing and entry.model.completeness in _WAYS_OUT:
            session.err.say(_WAYS_OUT[entry.model.completeness].format(model=entry.model.id), "dim")
        _findings(session, entry.model.findings, f"{entry.model.id}: ")
    _findings(session, contents.findings)
    for other in contents.others:
        session.err.note(_other_words(other))
    if view.engines_unknown:
        session.err.note(f"Which engines use them is not known: {view.engines_unknown}")


def _findings(session: Session, findings: Iterable[StoreFinding], before: str = "") -> None:
    for finding in findings:
        remedy = f" {finding.remedy}" if finding.remedy else ""
        session.err.note(f"{before}{finding.what}.{remedy}")


def _other_words(other: OtherCache) -> str:
    names = ", ".join(model.id for model in other.models[:3])
    more = " ..." if len(other.models) > 3 else ""
    return (
        f"{other.path} holds {len(other.models)} more ({human_bytes(other.disk)}), which engines here do not see: "
        f"{names}{more}. Look at them: spark-tui models list --store {_above_hub(other.path)}"
    )


def _above_hub(path: str) -> str:
    return path.removesuffix("/hub")


# --- verify -----------------------------------------------------------------------------------------------


def verify(session: Session, name: str, revision: str) -> int:
    """Hashes every file and names those to fetch again; the exit code is 1 when there are any."""
    last: list[VerifyProgress] = []

    async def work(context: Context) -> tuple[LibraryEntry, Settings]:
        entry = await context.library.entry(name)
        teller = _VerifyTeller(session)
        async with aclosing(context.library.verify(entry.model.id, revision)) as found:
            async for progress in found:
                last[:] = [progress]
                teller.tell(progress)
        return entry, context.settings

    entry, settings = session.run(work, on_interrupt=interrupted)
    session.err.settle()
    outcome = last[0]
    again = fetch_again(entry.model, [each.name for each in outcome.wrong], settings, revision=outcome.revision)
    if session.as_json:
        session.out.json_line({"type": "result", **_outcome_object(outcome, again)})
    else:
        session.out.lines(f"{clean_line(each.name)}: {_check_words(each)}" for each in outcome.wrong)
        told = outcome.unsure if outcome.matching else ()
        session.out.lines(f"{clean_line(each.name)}: {_check_words(each)}" for each in told)
        session.out.line(outcome.sentence)
        if again:
            session.err.say(f"Fetch again: {again}")
    return ExitCode.FAILED if outcome.wrong else ExitCode.DONE


def _check_words(check: FileCheck) -> str:
    return f"{check.verdict.value}{f' ({clean_line(check.detail)})' if check.detail else ''}"


class _VerifyTeller:
    """A bar where a person watches, a line every tenth in a pipe, an object a second as data."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tenth = 0
        self._at = -1.0

    def tell(self, progress: VerifyProgress) -> None:
        """One progress."""
        if progress.over:
            return
        if self._session.as_json:
            if progress.seconds - self._at >= 1.0 or self._at < 0:
                self._at = progress.seconds
                self._session.out.json_line({"type": "progress", **_progress_object(progress)})
        elif self._session.err.interactive:
            self._session.err.standing(self._bar(progress))
        elif int(progress.fraction * 10) > self._tenth:
            self._tenth = int(progress.fraction * 10)
            self._session.err.say(_figures(progress))

    def _bar(self, progress: VerifyProgress) -> str:
        drawn = bar(progress.fraction, _BAR, unicode=self._session.err.terminal.unicode)
        return f"{drawn}  {_figures(progress)}  {clean_line(progress.name)}"


def _figures(progress: VerifyProgress) -> str:
    rate = f"  {human_bytes(progress.rate)}/s" if progress.rate else ""
    left = f"  {human_duration(progress.left_seconds)} left" if progress.left_seconds else ""
    return f"{progress.fraction:4.0%} of {human_bytes(progress.total)}{rate}{left}"


# --- rm ---------------------------------------------------------------------------------------------------


def remove(
    session: Session, name: str, *, revision: str, leftovers: bool, dry_run: bool, yes: bool, unchecked: bool
) -> None:
    """Shows what goes and what that frees, asks for the name, and deletes."""
    extent = Extent.LEFTOVERS if leftovers else Extent.REVISION if revision else Extent.MODEL

    async def prepare(context: Context) -> DeletePlan:
        if not dry_run:
            session.refuse_if_read_only(context)
        return await context.library.plan_delete(name, extent, revision, unchecked=unchecked)

    plan = session.run(prepare)
    if dry_run:
        _tell_plan(session, plan)
        return
    if plan.obstacles:
        first = plan.obstacles[0]
        raise RefusedError(f"{plan.model} is not deleted: {first.what}.", first.remedy or "Nothing was changed.")
    session.err.say(plan.sentence)
    if not yes and not typed(session, f"Type {clean_line(plan.name)} to delete: ", plan.name):
        raise RefusedError(f"{plan.model} was not deleted.", "Type its name when asked, or say --yes.")

    async def work(context: Context) -> Deleted:
        return await context.library.delete(plan, plan.name, unchecked=unchecked)

    done = session.run(work)
    if session.as_json:
        session.out.json({**_plan_object(done.plan), "deleted": True, "freed_bytes": done.freed})
    else:
        session.out.line(f"{plan.model}: deleted, {human_bytes(done.freed)} freed.")


def _tell_plan(session: Session, plan: DeletePlan) -> None:
    if session.as_json:
        session.out.json({**_plan_object(plan), "deleted": False})
        return
    session.out.line(plan.sentence)
    session.out.lines(f"  {clean_line(path)}" for path in (*plan.removes, *plan.shared))
    if plan.obstacles:
        session.out.line("It would be refused:")
        words = [f"{each.what}. {each.remedy}".rstrip() for each in plan.obstacles]
        session.out.lines(bulleted(words, session.out.terminal.width))


# --- shapes -----------------------------------------------------------------------------------------------

_NEVER: Final = "nothing of it has been read, or the file system does not keep it"


def _list_object(view: LibraryView) -> dict[str, Any]:
    contents = view.contents
    return {
        "store": contents.root,
        "size_bytes": contents.size,
        "disk_bytes": contents.disk,
        **shapes.maybe("free_bytes", contents.free, "the file system does not say"),
        "scan_seconds": round(contents.seconds, 4),
        "models": [entry_object(entry, view.engines_unknown) for entry in view.entries],
        "orphans_bytes": sum(each.disk for each in contents.orphans),
        "other_caches": [
            {"path": each.path, "disk_bytes": each.disk, "models": [model_object(model) for model in each.models]}
            for each in contents.others
        ],
        "findings": [finding_object(each) for each in contents.findings],
    }


def entry_object(entry: LibraryEntry, unknown: str = "") -> dict[str, Any]:
    """A model with who uses it. `unknown` is why nothing is known of engines."""
    engines = None if unknown else [{"id": use.name, "sure": use.sure} for use in entry.engines]
    found = model_object(entry.model) | {"engines": engines, "presets": list(entry.presets)}
    return found | {"engines_reason": unknown} if unknown else found


def model_object(model: StoredModel) -> dict[str, Any]:
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
        **shapes.maybe("used_at", shapes.moment(model.used), _NEVER),
        **shapes.maybe("commit", model.commit, "nothing here tells it"),
        "revisions": [_revision_object(each) for each in model.revisions],
        "foreign_files": model.foreign,
        "findings": [finding_object(each) for each in model.findings],
    }


def _revision_object(revision: StoredRevision) -> dict[str, Any]:
    return {
        **shapes.maybe("commit", revision.commit, "nothing here tells it"),
        "refs": list(revision.refs),
        "state": revision.completeness.value,
        "reasons": list(revision.reasons),
        "files": revision.files,
        "size_bytes": revision.size,
        **shapes.maybe("expected_bytes", revision.expected, "the Hub's listing is not here"),
        "missing": list(revision.missing),
        "path": revision.path,
    }


def finding_object(finding: StoreFinding) -> dict[str, Any]:
    """Something to know."""
    return {"what": finding.what, "remedy": finding.remedy, "path": finding.path}


def file_object(file: StoredFile) -> dict[str, Any]:
    """One file of a revision."""
    told = file.expected
    return {
        "name": file.name,
        **shapes.maybe("size_bytes", file.size, file.trouble or "there is no data"),
        **shapes.maybe("expected_bytes", told.size if told else None, "the Hub's listing is not here"),
        **shapes.maybe("digest", told.digest if told else "", "nothing here tells it"),
        "algorithm": told.algorithm.value if told else "",
        "trouble": file.trouble.value,
    }


def _progress_object(progress: VerifyProgress) -> dict[str, Any]:
    return {
        "id": progress.model,
        "done_bytes": progress.done,
        "total_bytes": progress.total,
        "files_done": len(progress.checks),
        "seconds": round(progress.seconds, 2),
        **shapes.maybe("bytes_per_second", progress.rate and round(progress.rate), "not known yet"),
    }


def _outcome_object(outcome: VerifyProgress, again: str) -> dict[str, Any]:
    return {
        **_progress_object(outcome),
        "revision": outcome.revision,
        "verified": not outcome.wrong and not outcome.unsure and bool(outcome.checks),
        "fetch_again": [check.name for check in outcome.wrong],
        "command": again,
        "files": [
            {"name": each.name, "verdict": each.verdict.name.lower(), "size_bytes": each.size,
             "algorithm": each.algorithm.value, "detail": each.detail}
            for each in outcome.checks
        ],
    }  # fmt: skip


def _plan_object(plan: DeletePlan) -> dict[str, Any]:
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


_NO_HEADERS = "the headers of its weights are not all here"


@dataclass(frozen=True, slots=True)
class _Look:
    entry: LibraryEntry
    files: tuple[StoredFile, ...]
    facts: Reading[CheckpointFacts]
    found: Inspection | None


def inspect_model(session: Session, name: str, revision: str, *, files: bool) -> None:
    """Prints the verdict, then what it rests on. A checkpoint that cannot be read is told, with what is known."""

    async def work(context: Context) -> _Look:
        entry = await _entry(context, name)
        listed = await context.library.files(entry.model.id, revision) if entry.model.revisions else ()
        told = entry.model.revision(revision)
        commit = told.commit if told is not None and told.refs != () else revision
        facts = await context.in_thread(context.checkpoints.read, entry.model.id, commit)
        value = value_of(facts)
        return _Look(entry, listed, facts, None if value is None else inspect(value, entry.model.id))

    look = session.run(work)
    if session.as_json:
        session.out.json(_object(look))
        return
    width = session.out.terminal.width
    session.out.lines(clean_line(line) for line in _lines(look, width))
    if files:
        session.out.line()
        session.out.lines(f"{_size(file):>10}  {clean_line(file.name)}{_trouble(file)}" for file in look.files)
    if look.found is None:
        session.err.note(f"Its files do not tell more: {reason_of(look.facts)}.")


async def _entry(context: Context, name: str) -> LibraryEntry:
    try:
        return await context.library.entry(name)
    except UsageError as error:
        if "/" not in name.strip("/"):
            raise
        there = f"As it is on the Hub: spark-tui models inspect {shlex.quote(clean_line(name))} --hub"
        raise UsageError(error.summary, f"{error.remedy}\n{there}") from None


def _lines(look: _Look, width: int | None) -> Iterator[str]:
    found = look.found
    yield from verdict_lines(found, width)
    yield from labelled(_pairs(look), width)
    if found is not None and found.wide and found.read is not None:
        yield ""
        yield "weights of 16 bits and more        stored    read per token"
        for each in found.wide:
            yield f"  {each.module.value:<28} {human_bytes(each.stored):>10}  {human_bytes(each.read):>16}"
    problems = [*look.entry.model.reasons, *(each.what for each in look.entry.model.findings)]
    problems += found.facts.findings if found is not None else ()
    yield from finding_lines(problems, width)


def verdict_lines(found: Inspection | None, width: int | None) -> Iterator[str]:
    """What it will do on one Spark, with a blank line below; nothing where that is not known."""
    if found is not None and found.verdict:
        yield from bulleted(found.verdict, width)
        yield ""


def finding_lines(problems: Sequence[str], width: int | None) -> Iterator[str]:
    """What is wrong or in doubt, under its heading; nothing where nothing is."""
    if problems:
        yield ""
        yield "findings"
        yield from bulleted(problems, width)


def _pairs(look: _Look) -> list[tuple[str, str]]:
    model, found = look.entry.model, look.found
    pairs = [
        ("model", model.id),
        ("state", model.completeness.value),
        ("place", model.path),
        ("revision", model.commit),
        ("size", f"{human_bytes(model.size)}, {human_bytes(model.disk)} of disk"),
        ("used by", ", ".join(use.name for use in look.entry.uses)),
    ]
    return pairs if found is None else [*pairs, *inspection_rows(found)]


def _size(file: StoredFile) -> str:
    return "-" if file.size is None else human_bytes(file.size)


def _trouble(file: StoredFile) -> str:
    return f"  {file.trouble.value}" if file.trouble else ""


# --- shapes -----------------------------------------------------------------------------------------------


def _object(look: _Look) -> dict[str, Any]:
    shape = entry_object(look.entry) | {"files": [file_object(each) for each in look.files]}
    if look.found is None:
        return shape | {"checkpoint": None, "checkpoint_reason": reason_of(look.facts)}
    return shape | {"checkpoint": checkpoint_object(look.found)}


def checkpoint_object(found: Inspection) -> dict[str, Any]:
    """A checkpoint's facts and what follows from them."""
    facts, chat, told = found.facts, found.facts.chat, found.facts.quantization
    unread = "its config does not tell"
    return {
        **shapes.maybe("architecture", facts.architecture, unread),
        **shapes.maybe("model_type", facts.model_type, unread),
        **shapes.maybe("quantization", told.words if told else None, unread),
        "formats": [form.value for form in told.formats] if told else [],
        "unquantized_modules": list(told.excluded) if told else [],
        **shapes.maybe("parameters", found.parameters, _NO_HEADERS),
        **shapes.maybe("active_parameters", found.active, _NO_HEADERS),
        **shapes.maybe("layers", facts.layers, unread),
        **shapes.maybe("context_tokens", facts.max_position_embeddings, unread),
        **shapes.maybe("weights_bytes", facts.weights.size if facts.weights else None, _NO_HEADERS),
        "dtype_bytes": dict(facts.weights.by_dtype) if facts.weights else {},
        **shapes.maybe("read_per_token_bytes", found.read.size if found.read else None, _NO_HEADERS),
        **shapes.maybe("wide_read_per_token_bytes", found.read.wide if found.read else None, _NO_HEADERS),
        "wide_modules": [
            {"module": each.module.value, "stored_bytes": each.stored, "read_per_token_bytes": each.read}
            for each in found.wide
        ],
        **shapes.maybe("ceiling_tokens_per_second", _rounded(found.ceiling), _NO_HEADERS),
        **shapes.maybe("kv_bytes_per_token", found.kv.bytes_per_token if found.kv else None, unread),
        **shapes.maybe("state_bytes_per_sequence", found.kv.state_bytes if found.kv else None, unread),
        **shapes.maybe("mtp_layers_declared", facts.mtp_declared, "none are declared"),
        **shapes.maybe("mtp_layers_here", facts.mtp_layers, "it is not known whether their weights are here"),
        "modalities": list(facts.modalities),
        "chat": None
        if chat is None
        else {
            "thinking": chat.thinking, "tools": chat.tools, "images": chat.images, "switches": list(chat.switches),
            "reasoning_parser": chat.reasoning_parser, "tool_call_parser": chat.tool_parser,
        },
        **({"chat_reason": "it has no chat template"} if chat is None else {}),
        **shapes.maybe("licence", facts.licence, "its card does not name one, or is not here"),
        "verdict": list(found.verdict),
        "findings": list(facts.findings),
    }  # fmt: skip


def _rounded(ceiling: DecodeCeiling | None) -> float | None:
    return None if ceiling is None else round(ceiling.measured, 1)


@dataclass(frozen=True, slots=True)
class RemoteLook:
    """A checkpoint on the Hub: what its card says, what its files say, and what follows; None where they do not."""

    repo: RepoFacts
    facts: Reading[CheckpointFacts]
    found: Inspection | None


async def inspect_remote(context: Context, repo: str, revision: str = "") -> RemoteLook:
    """A repository that need not be here. Raises the errors of `domain.models.hub_errors`."""
    card = await context.hub.repo(repo, revision or "main")
    facts = await context.hub.inspect(card)
    value = value_of(facts)
    return RemoteLook(card, facts, None if value is None else inspect(value, card.repo))


def inspect_on_hub(session: Session, repo: str, revision: str, *, files: bool) -> None:
    """Prints the verdict, then what it rests on."""

    async def work(context: Context) -> RemoteLook:
        return await inspect_remote(context, repo, revision)

    look = session.run(work)
    if session.as_json:
        session.out.json(_inspecting_hub_object(look))
        return
    session.out.lines(clean_line(line) for line in _inspecting_hub_lines(look, session.out.terminal.width))
    if files:
        session.out.line()
        session.out.lines(f"{_inspecting_hub_size(each.size):>10}  {clean_line(each.path)}" for each in look.repo.files)
    if look.found is None:
        session.err.note(f"Its files do not tell more: {reason_of(look.facts)}.")


def _inspecting_hub_lines(look: RemoteLook, width: int | None) -> Iterator[str]:
    found = look.found
    yield from verdict_lines(found, width)
    yield from labelled(
        [*_inspecting_hub_pairs(look.repo), *(inspection_rows(found) if found is not None else ())], width
    )
    problems = [look.repo.formats.doubt] if look.repo.formats.doubt else []
    problems += found.facts.findings if found is not None else ()
    yield from finding_lines(problems, width)


def _inspecting_hub_pairs(card: RepoFacts) -> list[tuple[str, str]]:
    return [
        ("model", card.repo),
        ("page", card.page),
        ("revision", card.commit),
        ("size", _inspecting_hub_size(card.size)),
        ("access", "private" if card.private else card.gating.value),
        ("made from", ", ".join(card.base_models)),
        ("terms", card.licence_link),
    ]


def _inspecting_hub_size(size: int | None) -> str:
    return "not told" if size is None else human_bytes(size)


def _inspecting_hub_object(look: RemoteLook) -> dict[str, Any]:
    if look.found is None:
        return repo_object(look.repo) | {"checkpoint": None, "checkpoint_reason": reason_of(look.facts)}
    return repo_object(look.repo) | {"checkpoint": checkpoint_object(look.found)}


_SEARCHING_COLUMNS: Final = (
    Column("MODEL", flexible=True, name=True),
    Column("FORMAT"),
    Column("WEIGHTS", right=True),
    Column("ONE SPARK", spare=1),
    Column("DOWNLOADS", right=True, spare=3),
    Column("UPDATED", right=True, spare=4),
    Column("ACCESS", spare=2),
)
_FITS_STYLE: Final = {Fits.YES: "green", Fits.TIGHT: "yellow", Fits.NO: "red", Fits.UNKNOWN: "dim"}


def search_models(
    session: Session, words: Sequence[str], *, formats: Sequence[str], publisher: str, max_size: str, fits: bool,
    gguf: bool, sort: str, limit: int,
) -> None:  # fmt: skip
    """Repositories on the Hub, with what matters on a Spark."""
    query = SearchQuery(
        " ".join(words), tuple(_format(word) for word in formats), publisher, size_typed(max_size, "--max-size"), fits,
        unknown=not (fits or max_size), gguf=gguf, sort=Sort[sort.upper()], limit=limit,
    )  # fmt: skip

    async def work(context: Context) -> tuple[tuple[SearchHit, ...], float]:
        return await context.hub.search(query), context.clock.now()

    hits, now = session.run(work)
    if session.as_json:
        session.out.json([hit_object(hit) for hit in hits])
        return
    if hits:
        session.out.table(Table(_SEARCHING_COLUMNS, tuple(_searching_row(hit, now) for hit in hits)))
    else:
        session.err.say("Nothing on the Hub fits that. Fewer words or another --format may find more.")
    for hit in hits:
        if hit.formats.doubt:
            session.err.note(f"{hit.repo} is {hit.formats.doubt}.")


def _searching_row(hit: SearchHit, now: float) -> tuple[Cell | str, ...]:
    access = "private" if hit.private else "" if hit.gating is Gating.OPEN else hit.gating.value
    return (
        Cell(hit.repo, "bold"),
        hit.formats.words or ("GGUF" if hit.gguf else "?"),
        "?" if hit.weights is None else human_bytes(hit.weights),
        Cell(hit.fits.value if hit.fits is not Fits.UNKNOWN else "?", _FITS_STYLE[hit.fits]),
        "?" if hit.downloads is None else short_tokens(hit.downloads),
        "?" if hit.modified is None else ago(now - hit.modified),
        Cell(access, "yellow"),
    )


def _format(word: str) -> WeightFormat:
    found = format_in(word)
    if found is None:
        raise UsageError(f"{word!r} is no format of weights.", "Write for example: nvfp4, fp8, mxfp4, bf16, int4")
    return found
