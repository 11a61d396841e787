"""presets list, compare: what could be launched here; the options and readings of every command that judges presets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError, UnreachableError, UsageError
from spark_tui.base.quantities import parse_bytes
from spark_tui.base.text import clean_line
from spark_tui.catalog.fit.show.presets import MARKS, candidate_object, comparison, names_table
from spark_tui.catalog.fit.use.finder import SORTS, PresetFinder, Search
from spark_tui.catalog.fit.use.recommend import Candidate
from spark_tui.catalog.presets.model.preset import PRESETS, PresetCatalogue, Tag
from spark_tui.catalog.presets.use.library import Library
from spark_tui.catalog.presets.use.rights import find_preset, load_presets
from spark_tui.cli.command import command, complete
from spark_tui.cli.session import Session
from spark_tui.observe.engines.use.collectors import Collectors
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.results.feature import PROOFS


async def look_around(context: Context) -> None:
    """What a verdict depends on: memory, engines, earlier starts, presets, the model store. What cannot be read stays
    unknown."""
    load_presets(context, shown=True)
    await context[History].load()
    await context[Collectors].collect_once()
    with contextlib.suppress(UnreachableError):
        await context[EngineSupervisor].look()
    if context.ports.has("models"):
        await context[Library].refresh()
    with contextlib.suppress(SparkError):
        context.store.put(PROOFS, tuple(sorted(context.ports["proofs"].all(), key=lambda proof: -proof.at)))


def _tokens(_: click.Context, __: click.Parameter, text: str) -> int | None:
    """`64k` is 65,536 tokens, as on screen. Raises UsageError."""
    if not text:
        return None
    factor = {"k": 1024, "m": 1024**2}.get(text[-1].lower(), 1)
    digits = text[:-1] if factor > 1 else text
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits) * factor <= 100_000_000):
        raise UsageError(f"`--context` must be a number of tokens; got {clean_line(text)[:40]!r}.", "For example: 64k")
    return int(digits) * factor


def search_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What the launch that is judged is like."""
    users = click.option("--users", type=click.IntRange(1, 65536), metavar="N", help="Requests at once.  [as preset]")
    context = click.option(
        "--context", default="", callback=_tokens, metavar="TOKENS", help="Context to judge, e.g. 64k.  [as preset]"
    )
    return context(users(function))


# --- preset list -----------------------------------------------------------------------------------------


_LIST_EXAMPLES = """\
  spark-tui presets list --tag coding --fits --sort tok_s
  spark-tui presets list qwen --tools --on-disk --context 64k --users 2
"""


def _size(_: click.Context, __: click.Parameter, text: str) -> int | None:
    if not text:
        return None
    try:
        return parse_bytes(text)
    except ValueError:
        raise UsageError(f"`--max-need` must be a size; got {clean_line(text)[:40]!r}.", "For example: 30GiB") from None


@command("list", _LIST_EXAMPLES)
@click.argument("words", nargs=-1)
@click.option("--tag", "tags", multiple=True, type=click.Choice([tag.value for tag in Tag]), help="Use or trait.")
@click.option("--fits", is_flag=True, help="Only what fits now.")
@click.option("--tools", is_flag=True, help="Only what calls tools.")
@click.option("--on-disk", is_flag=True, help="Only with a downloaded model.")
@click.option("--max-need", "most_bytes", default="", callback=_size, metavar="SIZE", help="Maximum memory need.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="preset", help="Column to sort by.  [preset]")
@click.option("--reverse", is_flag=True, help="The other way round.")
@search_options
def presets_list(session: Session, words: tuple[str, ...], tags: tuple[str, ...], **wanted: Any) -> None:
    """Find presets by words, use and limits; unreadable files are named on stderr.

    Speeds with * were measured on this machine, others are published. Memory in GiB is what the launch needs.
    """
    list_presets(session, Search(tuple(word.lower() for word in words), tuple(Tag(tag) for tag in tags), **wanted))


def list_presets(session: Session, search: Search = Search()) -> None:  # noqa: B008 - immutable
    """Every preset that is found; what cannot be read goes to standard error."""

    async def work(context: Context) -> tuple[tuple[Candidate, ...], PresetCatalogue]:
        await look_around(context)
        world = context.store.world
        return await context[PresetFinder].judged(world, search), world[PRESETS]

    found, catalogue = session.run(work)
    if search.sort == "preset":
        found = tuple(sorted(found, key=lambda each: each.preset.name, reverse=search.reverse))
    if session.as_json:
        session.out.json([candidate_object(each) for each in found])
    session.out.table(names_table(found))
    session.err.problem(*catalogue.problems)


@command("compare", "  spark-tui presets compare gpt-oss-20b gpt-oss-120b --context 64k --users 2")
@click.argument("names", nargs=-1, required=True, shell_complete=complete("presets"))
@search_options
def compare_presets(session: Session, names: tuple[str, ...], context: int | None, users: int | None) -> None:
    """Compare two or three presets: fit, speed, format, licence, cautions."""
    if not 2 <= len(set(names)) <= len(MARKS):
        raise UsageError("Name two or three different presets.", "For example: spark-tui presets compare A B")
    search = Search(context=context, users=users)

    async def work(context: Context) -> list[Candidate]:
        await look_around(context)
        chosen = [find_preset(context, name) for name in names]
        for preset in chosen:
            await context[PresetFinder].judge(preset, search)
        found = {each.preset.name: each for each in context[PresetFinder].candidates(context.store.world, search)}
        return [found[preset.name] for preset in chosen]

    found = session.run(work)
    session.out.answer([candidate_object(each) for each in found], comparison(found))
