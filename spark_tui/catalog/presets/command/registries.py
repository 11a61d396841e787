"""registries: list, add, update, approve, remove."""

from __future__ import annotations

import click

from spark_tui.base.context import Context
from spark_tui.base.page import finding_object, finding_section
from spark_tui.catalog.presets.model.preset import Preset
from spark_tui.catalog.presets.model.registry import RegistryRecipe
from spark_tui.catalog.presets.model.rights import findings_of, unallowed
from spark_tui.catalog.presets.show.registries import registries_table, registry_object, update_object, update_page
from spark_tui.catalog.presets.use.registries import RegistryManager, RegistryUpdate
from spark_tui.catalog.presets.use.rights import find_preset
from spark_tui.cli.command import group, preset_argument
from spark_tui.cli.session import Session


@group("registries")
def registries(session: Session) -> None:
    """Use recipes of public registries, pinned to a commit. Without a command: the list.

    Nothing of a registry is run before you approve it: recipes appear in presets as REGISTRY.RECIPE.
    """
    _list(session)


@registries.sub("list")
def list_registries(session: Session) -> None:
    """List registries with their pins."""
    _list(session)


def _list(session: Session) -> None:
    pins = session.run(lambda context: context.in_thread(context[RegistryManager].all))
    session.out.answer([registry_object(pin) for pin in pins], registries_table(pins))


_ADD_EXAMPLES = """\
  spark-tui registries add eugr
  spark-tui registries add mine https://github.com/OWNER/REPO.git
"""


@registries.sub("add", _ADD_EXAMPLES)
@click.argument("name")
@click.argument("address", required=False, default="")
def add_registry(session: Session, name: str, address: str) -> None:
    """Fetch a registry and pin its newest commit."""
    update = session.run(lambda context: context[RegistryManager].add(name, address), changes=True)
    _show(session, update, whole=False)
    session.err.say(f"Find its recipes: spark-tui presets list {update.pinned.name}")


_UPDATE_EXAMPLES = """\
  spark-tui registries update eugr                  # what changed; the pin stays
  spark-tui registries update eugr --to 4f1c2d9a    # pin that commit
"""


@registries.sub("update", _UPDATE_EXAMPLES)
@click.argument("name")
@click.option("--to", "commit", default="", metavar="COMMIT", help="Pin this commit, the one that was shown.")
def update_registry(session: Session, name: str, commit: str) -> None:
    """Show what changed since the pin, commands and images first; move the pin only with --to."""
    if commit:
        _show(session, session.run(lambda context: context[RegistryManager].move(name, commit), changes=True))
        return
    update = session.run(lambda context: context[RegistryManager].look(name))
    _show(session, update)
    if update.commit != update.pinned.commit:
        session.err.say(f"To use it: spark-tui registries update {name} --to {update.commit[:12]}")


def _show(session: Session, update: RegistryUpdate, *, whole: bool = True) -> None:
    session.out.answer(update_object(update), update_page(update, whole=whole))


@registries.sub("approve", "  spark-tui registries approve eugr.qwen3-coder")
@preset_argument
def approve_recipe(session: Session, name: str) -> None:
    """Allow launches of a recipe with its present content. When it changes, it is asked for again.

    Rights that an engine does not need are shown, and allowed by name: spark-tui presets allow.
    """

    async def work(context: Context) -> tuple[Preset, RegistryRecipe]:
        preset = find_preset(context, name)
        return preset, context[RegistryManager].approve(preset)

    preset, recipe = session.run(work, changes=True)
    found = findings_of(preset, ())
    session.out.answer(
        {
            "id": recipe.name,
            "sha256": recipe.digest,
            "approved": True,
            "findings": [finding_object(each) for each in found],
        },
        tuple(finding_section(each, flags=True) for each in found),
    )
    if not unallowed(preset):
        session.err.say(f"{recipe.name} may be launched: spark-tui up {recipe.name}")


@registries.sub("remove", "  spark-tui registries remove eugr")
@click.argument("name")
def remove_registry(session: Session, name: str) -> None:
    """Remove a registry and its recipes from this machine. Running engines stay."""

    session.run(lambda context: context.in_thread(context[RegistryManager].remove, name), changes=True)
    session.done({"id": name, "removed": True}, f"{name} is removed.")
