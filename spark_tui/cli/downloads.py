"""models downloads, pause, resume, cancel: what is fetched, and a hand on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.cli import shapes
from spark_tui.cli.pull_shapes import download_object
from spark_tui.cli.pulling import bytes_or_unknown, follow, pause_all, tell_background
from spark_tui.cli.session import Session
from spark_tui.cli.sizes import rate_typed
from spark_tui.cli.tables import Cell, Column, Table
from spark_tui.core.context import Context
from spark_tui.domain.models.download import Download, DownloadPhase, Limits
from spark_tui.domain.quantities import human_bytes, human_duration

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
