"""What the commands share that judge presets as launches: the readings behind a verdict, the options of a search."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import click

from spark_tui.base.context import Context
from spark_tui.base.errors import SparkError, UnreachableError, UsageError
from spark_tui.base.text import clean_line
from spark_tui.catalog.presets.use.library import Library
from spark_tui.catalog.presets.use.rights import load_presets
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
