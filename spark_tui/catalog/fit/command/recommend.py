"""recommend, from-ollama."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.catalog.fit.command.preset_list import look_around, search_options
from spark_tui.catalog.fit.show.from_ollama import replacements_object, replacements_page
from spark_tui.catalog.fit.show.presets import recommendation, recommendation_object
from spark_tui.catalog.fit.use.finder import PresetFinder, Search
from spark_tui.catalog.fit.use.from_ollama import OllamaApi, Replacement, replacements
from spark_tui.catalog.fit.use.recommend import Candidate, Use, purpose_of
from spark_tui.catalog.fit.use.recommend import recommend as ranked
from spark_tui.catalog.models.model.ollama import OllamaModels
from spark_tui.cli.command import command
from spark_tui.cli.session import Session

_RECOMMEND_EXAMPLES = """\
  spark-tui recommend                                  for chat, with what is free now
  spark-tui recommend --for agent --context 128k --users 2
"""


@command("recommend", _RECOMMEND_EXAMPLES)
@click.option("--for", "use", type=click.Choice([use.value for use in Use]), default=Use.CHAT.value, help="[chat]")
@click.option("-n", "--most", type=click.IntRange(1), default=5, metavar="N", help="Presets to list.  [5]")
@search_options
def recommend(session: Session, use: str, most: int, context: int | None, users: int | None) -> None:
    """Recommend presets for a purpose on this machine, and say why others are left out.

    By fit in the memory that is free now, speed (measured here before published before estimated), size of the model,
    earlier starts, what was proved, context and licence. For eight users or more the throughput of many streams counts.
    """
    purpose = purpose_of(Use(use), context, users)
    search = Search(context=purpose.context, users=purpose.users)

    async def work(context: Context) -> tuple[Candidate, ...]:
        await look_around(context)
        return await context[PresetFinder].judged(context.store.world, search)

    picks, others = ranked(session.run(work), purpose)
    session.out.answer(recommendation_object(picks, others), recommendation(picks, others, most))
    if picks:
        session.err.say(f"Launch the first: spark-tui up {picks[0].candidate.preset.name}")


_OLLAMA_EXAMPLES = """\
  spark-tui from-ollama
  spark-tui from-ollama --address 192.168.1.20:11434 --context 32k
"""


@command("from-ollama", _OLLAMA_EXAMPLES)
@click.option("--address", default="", metavar="HOST:PORT", help="Where Ollama listens.  [OLLAMA_HOST, this machine]")
@search_options
def from_ollama(session: Session, address: str, context: int | None, users: int | None) -> None:
    """Propose presets for the models that Ollama has, with the speed to expect.

    Reads the list of models over Ollama's API and changes nothing there. Speeds: measured here before published before
    estimated from bytes per token.
    """
    purpose = purpose_of(Use.CHAT, context, users)
    search = Search(context=purpose.context, users=purpose.users)

    async def work(context: Context) -> tuple[OllamaModels, tuple[Replacement, ...]]:
        store = await context[OllamaApi].models(address)
        await look_around(context)
        return store, replacements(
            store.models, await context[PresetFinder].judged(context.store.world, search), purpose
        )

    store, found = session.run(work)
    session.out.answer(replacements_object(store, found), replacements_page(store, found))
    if store.left_out:
        session.err.note(f"{store.left_out} more models of Ollama's are left out.")
    first = next((each.picks[0].candidate.preset.name for each in found if each.picks), "")
    if first:
        session.err.say(f"Launch the first: spark-tui up {first}")
