"""models pull, downloads, pause, resume, cancel: downloading into the store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import click
from click.shell_completion import CompletionItem
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import UsageError
from spark_tui.base.page import maybe
from spark_tui.base.quantities import human_bytes
from spark_tui.base.text import clean_line
from spark_tui.catalog.models.model.download import (
    Download,
    DownloadPhase,
    DownloadPlan,
    DownloadRequest,
    Limits,
    rate_typed,
    room_refusal,
)
from spark_tui.catalog.models.show import downloads as show
from spark_tui.catalog.models.show.inspection import size_or_unknown
from spark_tui.catalog.models.use.downloads import Downloads, choose_store
from spark_tui.catalog.models.use.ports import Downloader, ModelStore
from spark_tui.catalog.presets.model.fetching import downloads_of
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.rights import find_preset
from spark_tui.cli.command import command, complete
from spark_tui.cli.output import Interrupted, bar
from spark_tui.cli.session import Session

_ADDRESS: Final = re.compile(
    r"https?://[^/]+/(?P<repo>[\w.-]+/[\w.-]+?)(?:/(?:tree|blob|resolve)/(?P<revision>[^/?#]+).*)?/?(?:[?#].*)?"
)
_BAR: Final = 20


# --- pull -------------------------------------------------------------------------------------------------

_PULL_EXAMPLES = """\
  spark-tui models pull nvidia/Qwen3.6-27B-NVFP4 --dry-run
  spark-tui models pull gpt-oss-120b                     all that a preset needs
  spark-tui models pull nvidia/Qwen3.6-27B-NVFP4 --background --limit 50m
  spark-tui models pull Qwen/Qwen3-30B-A3B-GGUF --file Qwen3-30B-A3B-Q4_K_M.gguf --to gguf
"""


def _what(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """A preset, or a model to resume or repair."""
    return [*complete("presets")(ctx, parameter, typed), *complete("models")(ctx, parameter, typed)]


@command("pull", _PULL_EXAMPLES)
@click.argument("what", metavar="REPO|PRESET", shell_complete=_what)
@click.option("--revision", default="", metavar="REF", help="A branch, tag or commit.  [main]")
@click.option("--file", "files", multiple=True, metavar="PATTERN", help="Only these files; may be repeated.")
@click.option("--all-files", "everything", is_flag=True, help="Also files that no engine reads.")
@click.option("--to", "folder", default="", metavar="FOLDER", help="Into a folder of the store, not the Hub's cache.")
@click.option("--again", is_flag=True, help="Download damaged files again.")
@click.option("--limit", default="", metavar="SIZE", help="Bandwidth cap for all downloads, per second; or none.")
@click.option("--dry-run", is_flag=True, help="Print what would be downloaded.")
@click.option("--background", is_flag=True, help="Start it and return.")
def models_pull(
    session: Session,
    what: str,
    revision: str,
    files: tuple[str, ...],
    everything: bool,
    folder: str,
    again: bool,
    limit: str,
    dry_run: bool,
    background: bool,
) -> None:
    """Download a model, or all that a preset needs, into the store.

    Continues when the terminal is closed, and resumes after an interruption. Ctrl-C pauses it. The token is that of
    HF_TOKEN or `hf auth login`.
    """
    rate = rate_typed(limit, "--limit")

    def requests(context: Context) -> tuple[DownloadRequest, ...]:
        address = _ADDRESS.fullmatch(what)
        repo = address["repo"] if address else what
        if "/" in repo:
            ref = revision or (address["revision"] if address else "") or "main"
            return (DownloadRequest(repo, ref, files, everything, target=folder, again=again),)
        if files or folder or revision or everything:
            raise UsageError(f"{what} is a preset and names its own files.", "Name a repository: OWNER/NAME")
        try:
            preset = find_preset(context, what)
        except UsageError as error:
            raise UsageError(error.summary, f"{error.remedy} A repository is named OWNER/NAME.") from None
        wanted = downloads_of(context[Preflight].dry_plan(preset, Overrides()))
        return tuple(replace(each, again=again) for each in wanted)

    async def prepare(context: Context) -> tuple[DownloadPlan, ...]:
        wanted = requests(context)
        there = {each: context[ModelStore].elsewhere(each.repo, each.revision) for each in wanted if _usual(each)}
        for each, model in there.items():
            if model is not None:
                session.err.note(
                    f"{each.repo} is complete in {clean_line(model.path)}: launches read it there. Into the store: "
                    f"spark-tui models move {each.repo}"
                )
        if wanted and all(there.get(each) is not None for each in wanted):
            return ()
        wanted = tuple(each for each in wanted if there.get(each) is None)
        if not wanted:
            raise UsageError(
                f"{what} downloads nothing from the Hub.", "Its model is in the store, or its engine downloads it."
            )
        plans = tuple([await context[Downloads].plan(request) for request in wanted])
        if not dry_run:
            refusal = next((plan.refusal for plan in plans if plan.refusal is not None), None)
            refusal = refusal or room_refusal(plans, str(context.settings.store))
            if refusal is not None:
                raise refusal
        return plans

    plans = session.run(prepare, changes=not dry_run)
    if dry_run:
        _print_plans(session, plans)
        return
    if any(not plan.whole for plan in plans) and choose_store(session):
        plans = session.run(prepare, changes=True)
    _note_plans(session, plans)
    wanted = [plan.request for plan in plans if not plan.whole]
    if not wanted:
        _print_result(session, [], plans)
        return

    async def start(context: Context) -> list[str]:
        if rate is not None:
            now = await context[Downloader].limits()
            await context[Downloader].set_limits(Limits(rate or None, now.at_once))
        return [await context[Downloads].start(request) for request in wanted]

    _follow(session, session.run(start), plans, background=background)


def _usual(request: DownloadRequest) -> bool:
    """Whether it asks for what an engine needs, in the Hub's cache."""
    return not (request.files or request.target or request.again or request.everything)


def _note_plans(session: Session, plans: Sequence[DownloadPlan]) -> None:
    for plan in plans:
        session.err.note(*plan.notes)
        if plan.left_out:
            left_out = show.left_out_text(plan, " (") + ")"
            session.err.note(f"{plan.request.title}: {left_out} left out, no engine reads them. Add: --all-files")


def _print_plans(session: Session, plans: Sequence[DownloadPlan]) -> None:
    session.out.json([show.plan_object(plan) for plan in plans])
    for plan in plans:
        commit = f" at {plan.facts.commit[:12]}" if plan.facts is not None else ""
        session.out.line(f"{clean_line(plan.request.title)}{commit}")
        if plan.choices:
            session.out.line("  One model in several sizes; choose one with --file:")
            session.out.lines(f"  {size_or_unknown(size):>9}  {clean_line(name)}" for name, size in plan.choices)
            continue
        for file in plan.files:
            line = f"  {size_or_unknown(file.size):>9}  {clean_line(file.path)}  {show.downloaded_text(file)}"
            session.out.line(line.rstrip())
        size = size_or_unknown(plan.total)
        session.out.line(f"  {size:>9}  in {len(plan.files)} files; to download {show.plan_room(plan)}")
    _note_plans(session, plans)
    for plan in plans:
        if plan.refusal is not None and not plan.choices:
            session.err.note(f"Would be refused: {plan.refusal}")


# --- following --------------------------------------------------------------------------------------------


def _follow(
    session: Session, ids: Sequence[str], plans: Sequence[DownloadPlan] = (), *, background: bool = False
) -> None:
    """Reports downloads until all have ended. Ctrl-C pauses them; closing the terminal does not."""
    if background:
        session.out.json({"started": list(ids)})
        session.out.lines(ids)
        session.err.say("Downloading in the background. Progress: spark-tui models downloads")
        return
    tenths: dict[str, int] = {}
    waits: dict[str, str] = {}
    err = session.err

    def line(download: Download, drawn: str = "") -> str:
        """`acme/tiny  ████░░░░  downloading  41% of 18.4 GiB  112 MiB/s  1m36s left`."""
        waiting = download.waiting if download.phase is not DownloadPhase.DOWNLOADING else ""
        title = clean_line(download.request.title)
        return "  ".join(filter(None, (title, drawn, show.progress_text(download), waiting)))

    def report(found: Sequence[Download]) -> None:
        """A bar on a terminal, a line every tenth in a pipe, an object twice a second as data."""
        session.out.json_lines({"type": "progress", **show.download_object(each, files=False)} for each in found)
        drawn = []
        for each in found:
            fraction = each.fraction or 0
            if each.waiting and waits.get(each.id) != each.waiting:
                err.say(f"{each.request.title}: {each.waiting}", "yellow")
            waits[each.id] = each.waiting
            if each.phase.active and err.interactive:
                drawn.append(line(each, bar(fraction, _BAR, unicode=err.terminal.unicode)))
            elif each.phase.active and int(fraction * 10) > tenths.get(each.id, -1):
                tenths[each.id] = int(fraction * 10)
                err.say(line(each))
        if err.interactive:
            err.standing("   ".join(drawn))

    async def watch(context: Context) -> list[Download]:
        async with aclosing(context[Downloads].watch(ids)) as looks:
            async for found in looks:
                report(found)
        return list(found)

    def interrupted() -> Interrupted:
        ways = f"Resume:  spark-tui models resume {' '.join(ids)}\nCancel:  spark-tui models cancel {' '.join(ids)}"
        return Interrupted("Paused; downloaded data is kept.", ways)

    try:
        ended = session.run(watch, on_interrupt=interrupted)
    except Interrupted:
        err.settle()
        session.run(lambda context: _pause_all(context, ids))
        raise
    err.settle()
    for download in ended:
        if download.failure is not None:
            raise download.failure.error
        if download.phase is not DownloadPhase.DONE:
            raise Interrupted(
                f"{download.request.title} is {download.phase}.", f"Resume: spark-tui models resume {download.id}"
            )
    _print_result(session, ended, plans)


def _print_result(session: Session, ended: Sequence[Download], plans: Sequence[DownloadPlan]) -> None:
    whole = [plan.request.title for plan in plans if plan.whole]
    done = [show.download_object(each) for each in ended]
    session.out.json_line({"type": "result", "downloads": done, "here_already": whole})
    session.out.lines(f"{clean_line(title)}: downloaded already" for title in whole)
    session.out.lines(f"{clean_line(each.request.title)}: downloaded, {human_bytes(each.done)}" for each in ended)


async def _pause_all(context: Context, ids: Sequence[str]) -> None:
    for id_ in ids:
        await context[Downloads].pause(id_)


# --- the list and its commands ----------------------------------------------------------------------------


@command("downloads", "  spark-tui models downloads --limit 50m\n  spark-tui models downloads --json")
@click.option(
    "--limit", default="", metavar="SIZE", help="Set the bandwidth cap of all downloads, per second; or none."
)
@click.option("--at-once", type=click.IntRange(1, 8), metavar="N", help="Set how many run at a time.  [2]")
@click.option("--clear", is_flag=True, help="Remove finished downloads from the list.")
def models_downloads(session: Session, limit: str, at_once: int | None, clear: bool) -> None:
    """List downloads: running, waiting, paused, failed, done."""
    rate = rate_typed(limit, "--limit")

    async def work(context: Context) -> tuple[tuple[Download, ...], Limits]:
        limits = await context[Downloader].limits()
        if rate is not None or at_once is not None:
            session.refuse_if_read_only(context)
            cap = limits.bytes_per_second if rate is None else rate or None
            limits = Limits(cap, at_once or limits.at_once)
            await context[Downloader].set_limits(limits)
        if clear:
            session.refuse_if_read_only(context)
            await context[Downloads].clear()
        return await context[Downloads].refresh(), limits

    found, limits = session.run(work)
    session.out.json(
        {
            **maybe("limit_bytes_per_second", limits.bytes_per_second, "there is no cap"),
            "at_once": limits.at_once,
            "downloads": [show.download_object(each) for each in found],
        }
    )
    if found:
        session.out.table(show.downloads_table(found))
    else:
        session.err.say("No downloads. Start one: spark-tui models pull OWNER/NAME")
    for each in found:
        if each.failure is not None:
            session.err.note(f"{each.id}: {each.failure.summary} {each.failure.remedy}")
        elif each.waiting:
            session.err.note(f"{each.id}: {each.waiting}")
    resumable = [each.id for each in found if each.phase.resumable]
    if resumable:
        session.err.say(f"Resume: spark-tui models resume {' '.join(resumable)}")
    if limits.bytes_per_second is not None:
        session.err.say(f"Bandwidth cap: {human_bytes(limits.bytes_per_second)}/s for all downloads.")


_names = click.argument("names", metavar="DOWNLOAD", nargs=-1, required=True, shell_complete=complete("downloads"))


@command("pause")
@_names
def models_pause(session: Session, names: tuple[str, ...]) -> None:
    """Pause downloads, by id or repository. Downloaded data is kept."""

    async def pause(context: Context) -> list[Download]:
        found = [await context[Downloads].get(name) for name in names]
        await _pause_all(context, [each.id for each in found])
        return [await context[Downloads].get(each.id) for each in found]

    found = session.run(pause, changes=True)
    session.out.json([show.download_object(each) for each in found])
    session.out.lines(f"{each.id}: {each.phase.value}" for each in found)


@command("resume")
@_names
@click.option("--background", is_flag=True, help="Return at once.")
def models_resume(session: Session, names: tuple[str, ...], background: bool) -> None:
    """Resume paused, interrupted or failed downloads."""

    async def resume(context: Context) -> list[str]:
        return [await context[Downloads].resume(name) for name in names]

    _follow(session, session.run(resume, changes=True), background=background)


@command("cancel")
@_names
@click.option("--discard", is_flag=True, help="Delete partial files too.")
def models_cancel(session: Session, names: tuple[str, ...], discard: bool) -> None:
    """Cancel downloads and remove them from the list. Whole files stay; so do parts, unless --discard."""

    async def cancel(context: Context) -> list[tuple[str, int]]:
        found = [await context[Downloads].get(name) for name in names]
        return [(each.id, await context[Downloads].cancel(each.id, discard=discard)) for each in found]

    done = session.run(cancel, changes=True)
    session.out.json([{"id": id_, "freed_bytes": freed} for id_, freed in done])
    for id_, freed in done:
        kept = f"{human_bytes(freed)} freed" if discard else "downloaded data is kept"
        session.out.line(f"{id_}: cancelled, {kept}")
