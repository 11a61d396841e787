"""models: the checkpoints of the store and of the Hub."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import ExitCode, RefusedError, SparkError, UsageError
from spark_tui.base.finding import Missing, Reading, reason_of, value_of
from spark_tui.base.quantities import human_bytes
from spark_tui.base.settings import Settings
from spark_tui.base.text import clean_line
from spark_tui.catalog.library.command import downloads
from spark_tui.catalog.library.show import models as show
from spark_tui.catalog.models.model.download import size_typed
from spark_tui.catalog.models.model.hub import RepoFacts, SearchHit, SearchQuery, Sort
from spark_tui.catalog.models.model.inspection import Inspection, inspected
from spark_tui.catalog.models.model.store import (
    Completeness,
    DeleteExtent,
    Layout,
    MovePlan,
    MoveProgress,
    StoredFile,
    VerifyProgress,
    fetch_again,
)
from spark_tui.catalog.models.model.weights import formats_typed
from spark_tui.catalog.models.show import inspection as checkpoint
from spark_tui.catalog.models.use.downloads import Hub
from spark_tui.catalog.presets.model.library import LibraryEntry, LibraryView
from spark_tui.catalog.presets.use.library import Library
from spark_tui.catalog.presets.use.rights import load_presets
from spark_tui.cli.command import command, group, model_argument
from spark_tui.cli.output import bar, bulleted
from spark_tui.cli.session import Session, typed

_REMEDIES: Final = {
    Completeness.PARTIAL: "Download the rest: spark-tui models pull {model}",
    Completeness.CORRUPT: "List files to download again: spark-tui models verify {model}",
}
_BAR: Final = 20

_revision = click.option("--revision", default="", metavar="REF", help="A branch, tag or commit.  [the current one]")


# --- list -------------------------------------------------------------------------------------------------


@group("models")
def models(session: Session) -> None:
    """List, download, inspect, verify and delete checkpoints. Without a command: the list."""
    list_models(session)


@command("list", "  spark-tui models list --json | jq '.models[] | select(.state != \"complete\") | .id'")
def models_list(session: Session) -> None:
    """List models: state, size, last read, used by.

    Problems, and caches of other tools, are reported on stderr.
    """
    list_models(session)


def list_models(session: Session) -> None:
    """The store's models as a table; what else there is to know on stderr."""

    async def look(context: Context) -> tuple[LibraryView, float]:
        load_presets(context, shown=True)
        reading = await context[Library].refresh()
        view = value_of(reading)
        if view is None:
            raise SparkError(f"The store cannot be read: {reason_of(reading)}", "Check the setting `store`.")
        return view, context.clock.now()

    view, now = session.run(look)
    session.out.json(show.store_object(view))
    if view.entries or view.elsewhere:
        session.out.table(show.store_table(view.entries, now, view.elsewhere))
    session.err.say(show.disk_summary(view))
    for entry in view.entries:
        model = entry.model
        session.err.note(*(f"{model.id}: {reason}" for reason in model.reasons))
        if model.layout is Layout.CACHE and not model.writing and model.completeness in _REMEDIES:
            session.err.say(_REMEDIES[model.completeness].format(model=shlex.quote(clean_line(model.id))), "dim")
        session.err.note(*(f"{model.id}: {show.finding_text(finding)}" for finding in model.findings))
    session.err.note(*(show.finding_text(finding) for finding in view.contents.findings))
    for other in view.contents.others:
        names = ", ".join(model.id for model in other.models[:3]) + " ..." * (len(other.models) > 3)
        count = f"{other.path}: {len(other.models)} more ({human_bytes(other.disk)})"
        folder = shlex.quote(clean_line(other.path.removesuffix("/hub")))
        if other.tool:
            session.err.note(
                f"{count} of {clean_line(other.tool)}. llama.cpp serves one in place: spark-tui draft NAME"
            )
        elif other.mine:
            session.err.note(f"{count}, read from there. Into the store: spark-tui models move NAME")
        else:
            session.err.note(
                f"{count} of another user, not read: {names}. List them: spark-tui models list --store {folder}"
            )
    if view.engines_unknown:
        session.err.note(f"Cannot list engines: {view.engines_unknown}")


# --- search -----------------------------------------------------------------------------------------------

_SEARCH_EXAMPLES = """\
  spark-tui models search qwen3.6 --format nvfp4 --fits
  spark-tui models search --publisher nvidia --format nvfp4 --max-size 70g --sort updated
"""


@command("search", _SEARCH_EXAMPLES)
@click.argument("words", nargs=-1)
@click.option("--format", "formats", multiple=True, metavar="FORMAT", help="nvfp4, fp8, mxfp4, ...; may be repeated.")
@click.option("--publisher", default="", metavar="NAME", help="Only this account.")
@click.option("--max-size", default="", metavar="SIZE", help="Maximum size of the weights: 70g.")
@click.option("--fits", is_flag=True, help="Only what fits one Spark.")
@click.option("--gguf", is_flag=True, help="GGUF repositories too.")
@click.option(
    "--sort",
    type=click.Choice(["downloads", "trending", "likes", "updated", "created"]),
    default="downloads",
    help="[downloads]",
)
@click.option("--limit", type=click.IntRange(1, 100), default=20, metavar="N", help="Maximum number of results.  [20]")
def models_search(
    session: Session,
    words: tuple[str, ...],
    formats: tuple[str, ...],
    publisher: str,
    max_size: str,
    fits: bool,
    gguf: bool,
    sort: str,
    limit: int,
) -> None:
    """Search the Hugging Face Hub: format, size, fit on one Spark.

    The format is read from the config where the Hub has it, else guessed from tags and name: inspect before you pull.
    """
    query = SearchQuery(
        " ".join(words),
        formats_typed(formats),
        publisher,
        size_typed(max_size, "--max-size"),
        fits,
        unknown=not (fits or max_size),
        gguf=gguf,
        sort=Sort[sort.upper()],
        limit=limit,
    )

    async def search(context: Context) -> tuple[tuple[SearchHit, ...], float]:
        return await context[Hub].search(query), context.clock.now()

    hits, now = session.run(search)
    session.out.json([checkpoint.hit_object(hit) for hit in hits])
    if hits:
        session.out.table(checkpoint.hits_table(hits, now))
    else:
        session.err.say("No results. Try fewer words or another --format.")
    for hit in hits:
        if hit.formats.doubt:
            session.err.note(f"{hit.repo} is {hit.formats.doubt}.")


# --- inspect ----------------------------------------------------------------------------------------------

_INSPECT_EXAMPLES = """\
  spark-tui models inspect nvidia/Qwen3.6-27B-NVFP4
  spark-tui models inspect nvidia/Qwen3.6-27B-NVFP4 --hub      before it is downloaded
"""


@command("inspect", _INSPECT_EXAMPLES)
@model_argument
@_revision
@click.option("--files", is_flag=True, help="List the files too.")
@click.option("--hub", is_flag=True, help="Inspect it on the Hub; reads a few kilobytes.")
def models_inspect(session: Session, name: str, revision: str, files: bool, hub: bool) -> None:
    """Inspect a checkpoint by its own files: format, performance on one Spark, KV cache, chat, licence.

    Reads configs and headers, never a tensor.
    """
    if hub:
        _inspect_on_hub(session, name, revision, files=files)
        return

    async def look(context: Context) -> tuple[LibraryEntry, tuple[StoredFile, ...], Reading[Inspection]]:
        try:
            entry = await context[Library].entry(name)
        except UsageError as error:
            if "/" not in name.strip("/"):
                raise
            on_hub = f"On the Hub: spark-tui models inspect {shlex.quote(clean_line(name))} --hub"
            raise UsageError(error.summary, f"{error.remedy}\n{on_hub}") from None
        listed = await context[Library].files(entry.model.id, revision) if entry.model.revisions else ()
        wanted = entry.model.revision(revision)
        commit = wanted.commit if wanted is not None and wanted.refs != () else revision
        facts = await context.in_thread(context.checkpoints.read, entry.model.readable, commit)
        return entry, listed, inspected(facts, entry.model.id, context[Hub].memory)

    entry, listed, found = session.run(look)
    model = entry.model
    shape = show.entry_object(entry) | {"files": [show.file_object(each) for each in listed]}
    session.out.json(shape | checkpoint.checkpoint_object(found))
    about = (
        ("model", model.id),
        ("state", model.completeness.value),
        ("path", model.path),
        ("revision", model.commit),
        ("size", f"{human_bytes(model.size)}, {human_bytes(model.disk)} of disk"),
        ("used by", ", ".join(use.name for use in entry.uses)),
    )
    problems = (*model.reasons, *(each.summary for each in model.findings))
    _print_inspection(session, found, about, problems)
    if files:
        session.out.line()
        session.out.page(show.files_page(listed))


def _print_inspection(
    session: Session, found: Reading[Inspection], about: Sequence[tuple[str, str]], problems: Sequence[str]
) -> None:
    session.out.page(checkpoint.checkpoint_page(found, about, problems))
    if isinstance(found, Missing):
        session.err.note(f"No format information: {found.reason}.")


def _inspect_on_hub(session: Session, repo: str, revision: str, *, files: bool) -> None:
    async def look(context: Context) -> tuple[RepoFacts, Reading[Inspection]]:
        card = await context[Hub].repo(repo, revision or "main")
        return card, inspected(await context[Hub].inspect(card), card.repo, card.memory)

    card, found = session.run(look)
    session.out.json(checkpoint.repo_object(card) | checkpoint.checkpoint_object(found))
    about = (
        ("model", card.repo),
        ("page", card.page),
        ("revision", card.commit),
        ("size", checkpoint.size_or_unknown(card.size)),
        ("access", "private" if card.private else card.gating.value),
        ("base model", ", ".join(card.base_models)),
        ("terms", card.licence_link),
    )
    _print_inspection(session, found, about, (card.formats.doubt,) if card.formats.doubt else ())
    if files:
        session.out.line()
        session.out.lines(
            f"{checkpoint.size_or_unknown(each.size):>10}  {clean_line(each.path)}" for each in card.files
        )


# --- verify -----------------------------------------------------------------------------------------------


@command("verify", "  spark-tui models verify openai/gpt-oss-120b")
@model_argument
@_revision
def models_verify(session: Session, name: str, revision: str) -> int:
    """Hash every file and compare it with the Hub's digests. Needs no network.

    Lists the files to download again; the exit code is then 1.
    """
    last: list[VerifyProgress] = []
    tenth, second = 0, -1.0

    def report(progress: VerifyProgress) -> None:
        """A bar on a terminal, a line every tenth in a pipe, an object a second as data."""
        nonlocal tenth, second
        if progress.over:
            return
        if session.as_json:
            if progress.seconds - second >= 1.0 or second < 0:
                second = progress.seconds
                session.out.json_line({"type": "progress", **show.verify_progress_object(progress)})
        elif session.err.interactive:
            drawn = bar(progress.fraction, _BAR, unicode=session.err.terminal.unicode)
            session.err.standing(f"{drawn}  {show.verify_progress(progress)}  {clean_line(progress.name)}")
        elif int(progress.fraction * 10) > tenth:
            tenth = int(progress.fraction * 10)
            session.err.say(show.verify_progress(progress))

    async def verify(context: Context) -> tuple[LibraryEntry, Settings]:
        entry = await context[Library].entry(name)
        async with aclosing(context[Library].verify(entry.model.id, revision)) as found:
            async for progress in found:
                last[:] = [progress]
                report(progress)
        return entry, context.settings

    entry, settings = session.run(verify)
    session.err.settle()
    result = last[0]
    again = fetch_again(entry.model, [each.name for each in result.wrong], settings, revision=result.revision)
    session.out.json_line({"type": "result", **show.verified_object(result, again)})
    for each in (*result.wrong, *(result.unsure if result.matching else ())):
        detail = f" ({clean_line(each.detail)})" if each.detail else ""
        session.out.line(f"{clean_line(each.name)}: {each.verdict.value}{detail}")
    session.out.line(result.sentence)
    if again:
        session.err.say(f"Download again: {again}")
    return ExitCode.FAILED if result.wrong else ExitCode.DONE


# --- rm ---------------------------------------------------------------------------------------------------

_RM_EXAMPLES = """\
  spark-tui models rm openai/gpt-oss-20b --dry-run
  spark-tui models rm openai/gpt-oss-20b --revision 1a2b3c4
  spark-tui models rm openai/gpt-oss-20b --leftovers
"""


@command("rm", _RM_EXAMPLES)
@model_argument
@click.option("--revision", default="", metavar="REF", help="Only that branch, tag or commit.")
@click.option("--leftovers", is_flag=True, help="Only parts of interrupted downloads and unused data.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted and what that frees.")
@click.option("--unchecked", is_flag=True, help="Even if Docker does not say which models are in use.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for the name.")
def models_rm(
    session: Session, name: str, revision: str, leftovers: bool, dry_run: bool, unchecked: bool, yes: bool
) -> None:
    """Delete a model, after you have typed its name. Refused while an engine uses it.

    Data shared with other models stays.
    """
    if revision and leftovers:
        raise click.UsageError("Use either --revision or --leftovers.")
    extent = DeleteExtent.LEFTOVERS if leftovers else DeleteExtent.REVISION if revision else DeleteExtent.MODEL

    plan = session.run(
        lambda context: context[Library].plan_delete(name, extent, revision, unchecked=unchecked), changes=not dry_run
    )
    if dry_run:
        session.out.answer({**show.delete_object(plan), "deleted": False}, plan.sentence)
        session.out.lines(f"  {clean_line(path)}" for path in (*plan.removes, *plan.shared))
        if plan.obstacles:
            session.out.line("Would be refused:")
            reasons = [show.finding_text(each) for each in plan.obstacles]
            session.out.lines(bulleted(reasons, session.out.terminal.width))
        return
    plan.check()
    session.err.say(plan.sentence)
    if not yes and not typed(session, f"Type {clean_line(plan.name)} to delete: ", plan.name):
        raise RefusedError(f"{plan.model} was not deleted.", "Type its name when asked, or use --yes.")

    done = session.run(lambda context: context[Library].delete(plan, plan.name, unchecked=unchecked))
    session.out.answer(
        {**show.delete_object(done.plan), "deleted": True, "freed_bytes": done.freed},
        f"{plan.model}: deleted, {human_bytes(done.freed)} freed.",
    )


# --- move -------------------------------------------------------------------------------------------------


@command("move", "  spark-tui models move openai/gpt-oss-120b\n  spark-tui models move openai/gpt-oss-120b /mnt/big")
@model_argument
@click.argument("folder", required=False, default="")
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.option("--unchecked", is_flag=True, help="Even if Docker does not say which models are in use.")
def models_move(session: Session, name: str, folder: str, dry_run: bool, unchecked: bool) -> None:
    """Move a model of the Hub into the store, or into another folder of models. Downloads nothing.

    Renames it on one disk, else copies, verifies and then deletes. Interrupted, it is continued by the same command.
    """

    def report(progress: MoveProgress) -> None:
        if session.err.interactive and not progress.over:
            drawn = bar(progress.fraction, _BAR, unicode=session.err.terminal.unicode)
            session.err.standing(f"{drawn}  {progress.step}  {clean_line(progress.name)}")

    async def move(context: Context) -> MovePlan:
        plan = await context[Library].plan_move(name, folder, unchecked=unchecked or dry_run)
        if not dry_run:
            session.err.say(plan.sentence)
            async with aclosing(context[Library].move(plan)) as found:
                async for progress in found:
                    report(progress)
        return plan

    plan = session.run(move, changes=not dry_run)
    session.err.settle()
    done = plan.sentence if dry_run else f"{plan.model}: in {clean_line(plan.target)}."
    shape = {"id": plan.model, "from": plan.source, "to": plan.target, "copied_bytes": plan.size, "moved": not dry_run}
    session.out.answer(shape, done)


models.add(
    models_list,
    models_search,
    downloads.models_pull,
    downloads.models_downloads,
    downloads.models_pause,
    downloads.models_resume,
    downloads.models_cancel,
    models_inspect,
    models_verify,
    models_rm,
    models_move,
)
