"""references: list, show."""

from __future__ import annotations

import click

from spark_tui.base.engine.runtimes import LAUNCHED, KnownModels, published_of, published_where
from spark_tui.base.errors import UsageError
from spark_tui.cli.command import group
from spark_tui.cli.output import capitals
from spark_tui.cli.session import Session
from spark_tui.observe.results.show import disputed_page, figures_table, model_page, references_object


@group("references")
def references(session: Session) -> None:
    """Read the published figures: speeds, scaling, KV cache, accuracy. Without a command: the list."""
    _list(session, published_where(lambda _: True))


@references.sub("list", "  spark-tui references list qwen3 80b\n  spark-tui references list --engine sglang")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--engine", type=click.Choice([each.id for each in LAUNCHED]), default=None, help="Only of this engine.")
def list_references(session: Session, words: tuple[str, ...], engine: str | None) -> None:
    """List published figures of models with all words in their name, with source and dispute.

    Linear: the share of as many times one stream's rate. TTFT: the prompt over the prefill rate.
    """
    _list(session, _matching(words, engine or ""))


@references.sub(
    "show", "  spark-tui references show nvidia/Qwen3.6-35B-A3B-NVFP4\n  spark-tui references show qwen3 80b"
)
@click.argument("words", nargs=-1, required=True, metavar="MODEL")
def show_references(session: Session, words: tuple[str, ...]) -> None:
    """Show everything published of a model, in all its formats; of several where words of a name are given."""
    found = published_of(words[0])
    if len(words) > 1 or not (found.figure or found.kv or found.accuracy):
        found = _matching(words)
    session.out.answer(references_object(found), model_page(found))


def _matching(words: tuple[str, ...], engine: str = "") -> KnownModels:
    """Raises UsageError where nothing is published."""
    found = published_where(lambda name: all(word.lower() in name.lower() for word in words), engine)
    if not (found.figure or found.kv or found.accuracy):
        raise UsageError(f"Nothing is published of {' '.join(words) or engine}.", "List all: spark-tui references list")
    return found


def _list(session: Session, known: KnownModels) -> None:
    session.out.json(references_object(known))
    session.out.table(capitals(figures_table(known.figure)))
    session.out.page(disputed_page(known))
