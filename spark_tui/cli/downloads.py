"""models downloads, pause, resume, cancel: what is fetched, and a hand on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from spark_tui.cli import shapes
from spark_tui.cli.diagnostics import Interrupted
from spark_tui.cli.output import Cell, Column, Table, bar
from spark_tui.cli.presets import find_preset
from spark_tui.cli.session import Session
from spark_tui.cli.shapes import Object, maybe, moment, read
from spark_tui.core.context import Context
from spark_tui.domain.errors import UsageError
from spark_tui.domain.models.download import (
    Download,
    DownloadPhase,
    DownloadPlan,
    DownloadRequest,
    Limits,
    room_refusal,
)
from spark_tui.domain.models.hub import RepoFacts, SearchHit
from spark_tui.domain.presets.fetching import downloads_of
from spark_tui.domain.presets.overrides import Overrides
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.quantities import human_bytes, human_duration, parse_bytes
from spark_tui.domain.reading import value_of
from spark_tui.domain.text import clean_line, truncate

_NOT_TOLD = "the Hub does not say"


def hit_object(hit: SearchHit) -> Object:
    """One repository of a search. `weights_bytes` are its tensors; `storage_bytes` all that it takes on the Hub."""
    return {
        "id": hit.repo,
        "publisher": hit.publisher,
        "formats": [form.value for form in hit.formats.found],
        "formats_by": hit.formats.basis.value,
        "formats_doubt": hit.formats.doubt,
        **maybe("parameters", hit.parameters, _NOT_TOLD),
        **maybe("weights_bytes", hit.weights, _NOT_TOLD),
        **maybe("storage_bytes", hit.storage, _NOT_TOLD),
        "fits_one_spark": hit.fits.value,
        "access": hit.gating.value,
        "private": hit.private,
        **maybe("downloads", hit.downloads, _NOT_TOLD),
        **maybe("likes", hit.likes, _NOT_TOLD),
        **maybe("modified_at", moment(hit.modified), _NOT_TOLD),
        "task": hit.task,
        "licence": hit.licence,
        "gguf": hit.gguf,
    }


def repo_object(facts: RepoFacts) -> Object:
    """One revision's card."""
    return {
        "id": facts.repo,
        "commit": facts.commit,
        "page": facts.page,
        "publisher": facts.publisher,
        "access": facts.gating.value,
        "private": facts.private,
        "licence": facts.licence,
        "licence_link": facts.licence_link,
        "formats": [form.value for form in facts.formats.found],
        "formats_by": facts.formats.basis.value,
        "formats_doubt": facts.formats.doubt,
        **maybe("size_bytes", facts.size, _NOT_TOLD),
        **maybe("weights_bytes", facts.weights, _NOT_TOLD),
        "fits_one_spark": facts.fits.value,
        **maybe("downloads", facts.downloads, _NOT_TOLD),
        **maybe("likes", facts.likes, _NOT_TOLD),
        **maybe("modified_at", moment(facts.modified), _NOT_TOLD),
        "base_models": list(facts.base_models),
        "task": facts.task,
        "library": facts.library,
    }


def plan_object(plan: DownloadPlan) -> Object:
    """A dry run."""
    return {
        "id": plan.request.id,
        "repo": plan.request.repo,
        "target": plan.request.target,
        "url": plan.request.url,
        **maybe("commit", plan.facts.commit if plan.facts else None, "it is not on the Hub"),
        **maybe("total_bytes", plan.total, _NOT_TOLD),
        **maybe("left_bytes", plan.left, _NOT_TOLD),
        **read("free_bytes", plan.free, int),
        "files": [{"path": file.path, **maybe("size_bytes", file.size, _NOT_TOLD), "here_bytes": file.here}
                  for file in plan.files],
        "left_out": [{"path": each.path, **maybe("size_bytes", each.size, _NOT_TOLD), "why": each.why}
                     for each in plan.left_out],
        "choices": [{"name": name, **maybe("size_bytes", size, _NOT_TOLD)} for name, size in plan.choices],
        "notes": list(plan.notes),
        "refusal": None if plan.refusal is None else
        {"id": plan.refusal.id, "summary": plan.refusal.summary, "remedy": plan.refusal.remedy},
    }  # fmt: skip


def download_object(download: Download, *, files: bool = True) -> Object:
    """A download as it stands."""
    unknown = "not known yet" if download.phase.active else "it rests"
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
        "failure": None if download.failure is None else
        {"id": download.failure.id, "summary": download.failure.summary, "remedy": download.failure.remedy,
         "detail": download.failure.detail},
    }  # fmt: skip
    if files:
        shape["files"] = [
            {"path": file.path, **maybe("size_bytes", file.size, _NOT_TOLD), "done_bytes": file.done,
             "state": file.state.value}
            for file in download.files
        ]  # fmt: skip
    return shape


def size_typed(text: str, option: str) -> int | None:
    """`70g` -> bytes; None for nothing. Raises UsageError, which names the option."""
    if not text:
        return None
    try:
        return parse_bytes(text)
    except ValueError:
        shown = truncate(clean_line(text), 40)
        raise UsageError(f"{option}: {shown!r} is not a size.", "Write for example 70g or 500m.") from None


def rate_typed(text: str) -> float | None:
    """`50m` -> bytes per second; `none` and `0` take a cap away (0.0), nothing leaves it as it is (None)."""
    if not text:
        return None
    return 0.0 if text.lower() in ("none", "off", "0") else float(size_typed(text, "--limit") or 0)


_ADDRESS: Final = re.compile(
    r"https?://[^/]+/(?P<repo>[\w.-]+/[\w.-]+?)(?:/(?:tree|blob|resolve)/(?P<revision>[^/?#]+).*)?/?(?:[?#].*)?"
)
_BAR: Final = 20


@dataclass(frozen=True, slots=True)
class PullOptions:
    """What was typed. `limit` is a size per second."""

    revision: str = ""
    files: tuple[str, ...] = ()
    everything: bool = False
    folder: str = ""
    again: bool = False
    limit: str = ""
    dry_run: bool = False
    background: bool = False


def pull(session: Session, what: str, options: PullOptions) -> None:
    """Fetches a repository, or all that a preset needs. What is here already is not fetched again."""
    rate = rate_typed(options.limit)

    async def prepare(context: Context) -> tuple[DownloadPlan, ...]:
        if not options.dry_run:
            session.refuse_if_read_only(context)
        requests = _requests(context, what, options)
        if not requests:
            raise UsageError(f"{what} fetches nothing from the Hub.", "It lies in the store, or its engine fetches it.")
        plans = tuple([await context.downloads.plan(request) for request in requests])
        if not options.dry_run:
            _refuse(plans, str(context.settings.store))
        return plans

    plans = session.run(prepare)
    if options.dry_run:
        _tell_plans(session, plans)
        return
    _note_plans(session, plans)
    wanted = [plan.request for plan in plans if not plan.whole]
    if not wanted:
        _tell_result(session, [], plans)
        return

    async def start(context: Context) -> list[str]:
        if rate is not None:
            now = await context.downloads.limits()
            await context.downloads.set_limits(Limits(rate or None, now.at_once))
        return [await context.downloads.start(request) for request in wanted]

    ids = session.run(start)
    if options.background:
        tell_background(session, ids)
        return
    follow(session, ids, plans)


def _requests(context: Context, what: str, options: PullOptions) -> tuple[DownloadRequest, ...]:
    """A repository by name or address; a preset by its name."""
    address = _ADDRESS.fullmatch(what)
    repo = address["repo"] if address else what
    if "/" not in repo:
        if options.files or options.folder or options.revision or options.everything:
            raise UsageError(f"{what} is a preset: it says itself what it needs.", "Name a repository: OWNER/NAME")
        preset = _preset(context, what)
        requests = downloads_of(context.preflight.dry_plan(preset, Overrides()))
        return tuple(replace(each, again=options.again) for each in requests)
    revision = options.revision or (address["revision"] if address else "") or "main"
    return (
        DownloadRequest(
            repo, revision, options.files, options.everything, target=options.folder, again=options.again,
        ),
    )  # fmt: skip


def _preset(context: Context, name: str) -> Preset:
    try:
        return find_preset(context, name)
    except UsageError as error:
        raise UsageError(error.summary, f"{error.remedy} A repository is named OWNER/NAME.") from None


def _refuse(plans: Sequence[DownloadPlan], store: str) -> None:
    for plan in plans:
        if plan.refusal is not None:
            raise plan.refusal
    refusal = room_refusal(plans, store)
    if refusal is not None:
        raise refusal


def _note_plans(session: Session, plans: Sequence[DownloadPlan]) -> None:
    for plan in plans:
        for note in plan.notes:
            session.err.note(note)
        if plan.left_out:
            size = sum(each.size or 0 for each in plan.left_out)
            session.err.note(
                f"{plan.request.title}: {len(plan.left_out)} files ({human_bytes(size)}) are left out, because no "
                "engine here reads them. All of it: --all-files"
            )


def _tell_plans(session: Session, plans: Sequence[DownloadPlan]) -> None:
    if session.as_json:
        session.out.json([plan_object(plan) for plan in plans])
        return
    for plan in plans:
        session.out.lines(_plan_lines(plan))
    _note_plans(session, plans)
    for plan in plans:
        if plan.refusal is not None and not plan.choices:
            session.err.note(f"It would be refused: {plan.refusal}")


def _plan_lines(plan: DownloadPlan) -> list[str]:
    facts = plan.facts
    commit = f" at {facts.commit[:12]}" if facts is not None else ""
    lines = [f"{clean_line(plan.request.title)}{commit}"]
    if plan.choices:
        lines.append("  It holds one model in many sizes; name one with --file:")
        return lines + [f"  {bytes_or_unknown(size):>9}  {clean_line(name)}" for name, size in plan.choices]
    for file in plan.files:
        state = "here" if file.left == 0 else f"{human_bytes(file.here)} here" if file.here else ""
        lines.append(f"  {bytes_or_unknown(file.size):>9}  {clean_line(file.path)}  {state}".rstrip())
    free = value_of(plan.free)
    room = "" if free is None else f"; {human_bytes(free)} are free"
    left = "of unknown size" if plan.left is None else f"{human_bytes(plan.left)} to fetch"
    return [*lines, f"  {bytes_or_unknown(plan.total):>9}  in {len(plan.files)} files, {left}{room}"]


def bytes_or_unknown(size: int | None) -> str:
    """A size, or a question mark."""
    return "?" if size is None else human_bytes(size)


def tell_background(session: Session, ids: Sequence[str]) -> None:
    """Where they are from now on."""
    if session.as_json:
        session.out.json({"started": list(ids)})
        return
    session.out.lines(ids)
    session.err.say("They go on by themselves. Look at them: spark-tui models downloads")


# --- following --------------------------------------------------------------------------------------------


def follow(session: Session, ids: Sequence[str], plans: Sequence[DownloadPlan] = ()) -> None:
    """Tells downloads as they go, until all have ended. Ctrl-C pauses them; the end of the terminal does not."""
    teller = Teller(session)

    async def work(context: Context) -> list[Download]:
        async with aclosing(context.downloads.watch(ids)) as looks:
            async for found in looks:
                teller.tell(found)
        return list(found)

    try:
        ended = session.run(work, on_interrupt=lambda: _interrupted(ids))
    except Interrupted:
        session.err.settle()
        session.run(lambda context: pause_all(context, ids))
        raise
    session.err.settle()
    for download in ended:
        if download.failure is not None:
            raise download.failure.error
        if download.phase is not DownloadPhase.DONE:
            raise Interrupted(
                f"{download.request.title} is {download.phase}.", f"Go on: spark-tui models resume {download.id}"
            )
    _tell_result(session, ended, plans)


async def pause_all(context: Context, ids: Sequence[str]) -> None:
    """Ends all of these; what has arrived stays."""
    for id_ in ids:
        await context.downloads.pause(id_)


def _interrupted(ids: Sequence[str]) -> Interrupted:
    ways = [
        f"Go on:     spark-tui models resume {' '.join(ids)}",
        f"Give up:   spark-tui models cancel {' '.join(ids)}",
    ]
    return Interrupted("Paused; what has arrived is kept.", "\n".join(ways))


def _tell_result(session: Session, ended: Sequence[Download], plans: Sequence[DownloadPlan]) -> None:
    whole = [plan for plan in plans if plan.whole]
    if session.as_json:
        done = [download_object(each) for each in ended]
        session.out.json_line({"type": "result", "downloads": done, "here_already": [p.request.title for p in whole]})
        return
    for plan in whole:
        session.out.line(f"{clean_line(plan.request.title)}: here already")
    for each in ended:
        session.out.line(f"{clean_line(each.request.title)}: fetched, {human_bytes(each.done)}")


class Teller:
    """A bar where a person watches, a line every tenth in a pipe, an object twice a second as data."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tenths: dict[str, int] = {}
        self._waits: dict[str, str] = {}

    def tell(self, found: Sequence[Download]) -> None:
        """One look at all of them."""
        if self._session.as_json:
            self._session.out.json_lines({"type": "progress", **download_object(each, files=False)} for each in found)
            return
        for each in found:
            if each.waiting and self._waits.get(each.id) != each.waiting:
                self._session.err.say(f"{each.request.title}: {each.waiting}", "yellow")
            self._waits[each.id] = each.waiting
        active = [each for each in found if each.phase.active]
        if self._session.err.interactive:
            unicode = self._session.err.terminal.unicode
            self._session.err.standing("   ".join(progress_line(each, unicode) for each in active))
            return
        for each in active:
            tenth = int((each.fraction or 0) * 10)
            if tenth > self._tenths.get(each.id, -1):
                self._tenths[each.id] = tenth
                self._session.err.say(progress_line(each, None))


def progress_line(download: Download, unicode: bool | None) -> str:
    """`acme/tiny  ████░░░░  41% of 18.4 GiB  112 MiB/s  1m36s left`; without a bar where `unicode` is None."""
    parts = [clean_line(download.request.title)]
    fraction = download.fraction
    if unicode is not None:
        parts.append(bar(fraction or 0, _BAR, unicode=unicode))
    if fraction is not None:
        parts.append(f"{fraction:.0%} of {bytes_or_unknown(download.total)}")
    elif download.done:
        parts.append(human_bytes(download.done))
    if download.phase is not DownloadPhase.DOWNLOADING:
        parts.append(download.waiting or download.phase.value)
    if download.speed:
        parts.append(f"{human_bytes(download.speed)}/s")
    if download.eta:
        parts.append(f"{human_duration(download.eta)} left")
    return "  ".join(part for part in parts if part)


_DOWNLOADS: Final = (
    Column("DOWNLOAD", flexible=True),
    Column("STATE"),
    Column("DONE", right=True),
    Column("SIZE", right=True),
    Column("SPEED", right=True),
    Column("LEFT", right=True),
)
_STYLE: Final = {DownloadPhase.DONE: "green", DownloadPhase.FAILED: "bold red", DownloadPhase.DOWNLOADING: "cyan"}


def list_downloads(session: Session, *, limit: str = "", at_once: int | None = None, clear: bool = False) -> None:
    """All downloads that are known. `limit` and `at_once` set what holds for all of them."""
    rate = rate_typed(limit)

    async def work(context: Context) -> tuple[tuple[Download, ...], Limits]:
        limits = await context.downloads.limits()
        if rate is not None or at_once is not None:
            session.refuse_if_read_only(context)
            cap = limits.bytes_per_second if rate is None else rate or None
            limits = Limits(cap, at_once or limits.at_once)
            await context.downloads.set_limits(limits)
        if clear:
            session.refuse_if_read_only(context)
            await context.downloads.clear()
        return await context.downloads.refresh(), limits

    found, limits = session.run(work)
    if session.as_json:
        session.out.json({
            **shapes.maybe("limit_bytes_per_second", limits.bytes_per_second, "there is no cap"),
            "at_once": limits.at_once,
            "downloads": [download_object(each) for each in found],
        })  # fmt: skip
        return
    if found:
        session.out.table(Table(_DOWNLOADS, tuple(_download_row(each) for each in found)))
    else:
        session.err.say("No downloads. Fetch a model: spark-tui models pull OWNER/NAME")
    _note_downloads(session, found, limits)


def _download_row(each: Download) -> tuple[Cell | str, ...]:
    done = f"{each.fraction:.0%}" if each.fraction is not None else human_bytes(each.done) if each.done else "-"
    return (
        Cell(each.id, "bold"),
        Cell(each.phase.value, _STYLE.get(each.phase, "yellow")),
        done,
        bytes_or_unknown(each.total),
        f"{human_bytes(each.speed)}/s" if each.speed is not None else "-",
        human_duration(each.eta) if each.eta and each.phase.active else "-",
    )


def _note_downloads(session: Session, found: Sequence[Download], limits: Limits) -> None:
    for each in found:
        if each.failure is not None:
            session.err.note(f"{each.id}: {each.failure.summary} {each.failure.remedy}")
        elif each.waiting:
            session.err.note(f"{each.id}: {each.waiting}")
    resumable = [each.id for each in found if each.phase.resumable]
    if resumable:
        session.err.say(f"Go on: spark-tui models resume {' '.join(resumable)}")
    if limits.bytes_per_second is not None:
        session.err.say(f"All together at most {human_bytes(limits.bytes_per_second)}/s.")


def pause(session: Session, names: Sequence[str]) -> None:
    """Ends downloads; what has arrived stays."""

    async def work(context: Context) -> list[Download]:
        session.refuse_if_read_only(context)
        found = [await context.downloads.get(name) for name in names]
        await pause_all(context, [each.id for each in found])
        return [await context.downloads.get(each.id) for each in found]

    _tell_each(session, session.run(work))


def resume(session: Session, names: Sequence[str], *, background: bool) -> None:
    """Goes on with downloads."""

    async def work(context: Context) -> list[str]:
        session.refuse_if_read_only(context)
        return [await context.downloads.resume(name) for name in names]

    ids = session.run(work)
    if background:
        tell_background(session, ids)
    else:
        follow(session, ids)


def cancel(session: Session, names: Sequence[str], *, discard: bool) -> None:
    """Ends downloads and takes them off the list."""

    async def work(context: Context) -> list[tuple[str, int]]:
        session.refuse_if_read_only(context)
        found = [await context.downloads.get(name) for name in names]
        return [(each.id, await context.downloads.cancel(each.id, discard=discard)) for each in found]

    done = session.run(work)
    if session.as_json:
        session.out.json([{"id": id_, "freed_bytes": freed} for id_, freed in done])
        return
    for id_, freed in done:
        kept = f"{human_bytes(freed)} freed" if discard else "what has arrived is kept"
        session.out.line(f"{id_}: cancelled, {kept}")


def _tell_each(session: Session, found: Sequence[Download]) -> None:
    if session.as_json:
        session.out.json([download_object(each) for each in found])
    else:
        session.out.lines(f"{each.id}: {each.phase.value}" for each in found)
