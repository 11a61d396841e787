"""presets import: recipes of other people as presets of the person's own."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Final, cast

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.image import mod_words
from spark_tui.base.errors import (
    RefusedError,
    UsageError,
)
from spark_tui.base.page import Object, finding_object, maybe
from spark_tui.base.secret import mask_secrets
from spark_tui.catalog.fit.show.preset_files import (
    import_page,
)
from spark_tui.catalog.presets.model.preset import Origin
from spark_tui.catalog.presets.model.registry import review_of
from spark_tui.catalog.presets.use.imports import (
    ImportedRecipe,
    ImportReport,
    PastedText,
    RecipeStore,
    import_copy,
    import_recipes,
)
from spark_tui.catalog.presets.use.registries import RegistryManager
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.cli.command import command
from spark_tui.cli.output import error_object
from spark_tui.cli.session import Session

MAX_PIPED: Final = 1024 * 1024
"""Bytes or characters; what is longer is refused."""


_IMPORT_EXAMPLES = """\
  spark-tui presets import recipe.yaml --name mine
  spark-tui presets import eugr.qwen3-coder --name coder    # a copy, yours to change
  spark-tui presets import serve.sh          # a docker run command; - reads what you paste, until Ctrl-D
  git clone https://github.com/spark-arena/eugr-recipes.git && spark-tui presets import eugr-recipes
"""


@command("import", _IMPORT_EXAMPLES)
@click.argument("source", metavar="FILE|FOLDER|NAME|-")
@click.option("--name", default="", metavar="NAME", help="The preset's name.  [the file's, the container's]")
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A variable of a Compose file, unit or script."
)
@click.option("--force", "replace", is_flag=True, help="Replace a preset of that name.")
def import_presets(session: Session, source: str, name: str, pairs: tuple[str, ...], replace: bool) -> None:
    """Import recipes of eugr (version 1), sparkrun (version 2) and vLLM, Compose files, units and scripts as presets.

    A file, a folder of them, or a registry cloned with git; a guide or post with recipes or docker run commands in it;
    - for standard input. Podman quadlets, Kubernetes manifests and llama-swap configurations too. Nothing in them is
    run: hooks and mods are shown. Keys and tokens are removed. NAME of a registry's recipe makes a copy that
    remembers its commit and hash: `presets show` and doctor say when the recipe there changes.
    """
    given = PastedText(_piped(session), "standard input") if source == "-" else Path(source)
    values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if len(values) < len(pairs):
        raise UsageError("--set takes a name and a value.", "Write: --set NAME=VALUE")
    is_file = isinstance(given, Path) and given.exists()

    async def work(context: Context) -> ImportReport:
        catalogue = context[PresetSource].load()
        builtin = [preset.name for preset in catalogue.presets if preset.origin is Origin.BUILTIN]
        preset = catalogue.get(source)
        if preset is not None and preset.origin is Origin.REGISTRY and not is_file:
            copy = context[RegistryManager].copy(preset, name)
            return import_copy(context[RecipeStore], copy, builtin=builtin, replace=replace)
        return import_recipes(
            context[RecipeStore],
            given,
            builtin=builtin,
            name=name,
            replace=replace,
            paths=context.paths,
            auto=context.settings.memory_share == "auto",
            values=values,
        )

    report = session.run(work, changes=True)
    refused = [recipe.problem for recipe in report.recipes if recipe.problem is not None]
    if len(refused) == len(report.recipes) == 1:
        raise refused[0]
    session.out.answer(_report_object(report), import_page(report, refused=False))
    if not session.as_json:
        session.err.problem(*(*refused, *report.passed_over))
        done = [recipe.recipe.name for recipe in report.recipes if recipe.problem is None]
        if done:
            session.err.say(f"The exact docker run: spark-tui up {done[0]} --dry-run")
    if len(refused) == len(report.recipes):
        raise RefusedError(f"None of {len(refused)} recipes could be imported.", "See the reason for each.")


def _piped(session: Session) -> str:
    """All of standard input, as far as a recipe can be long."""
    if session.stdin is None:
        raise UsageError("No standard input to read.", "Pipe a recipe or a docker run command into it.")
    if session.stdin.isatty():
        session.err.say("Paste a docker run command or a recipe, then press Ctrl-D on a line of its own.")
    binary = getattr(session.stdin, "buffer", None)
    if binary is None:  # a stream of text, which is already decoded
        return session.stdin.read(MAX_PIPED + 1)
    return cast("IO[bytes]", binary).read(MAX_PIPED + 1).decode("utf-8", "replace")


def _report_object(report: ImportReport) -> Object:
    registry = report.registry
    return {
        "root": registry.root,
        **maybe("address", registry.address, "it is no git checkout with a remote"),
        **maybe("commit", registry.commit, "it is no git checkout"),
        **maybe("licence", registry.licence, "it is not stated"),
        "recipes": [_recipe_object(recipe) for recipe in report.recipes],
        "passed_over": [error_object(problem) for problem in report.passed_over],
    }


def _recipe_object(imported: ImportedRecipe) -> Object:
    recipe = imported.recipe
    image = recipe.preset.reference if recipe.preset is not None else ""
    return {
        "id": recipe.name,
        "source": recipe.path,
        "outcome": imported.outcome.value,
        **maybe("dialect", recipe.dialect.value if recipe.dialect else None, "the file could not be read"),
        **maybe("file", imported.file, "nothing was written"),
        "changes": list(recipe.changes),
        "kept": {key: mask_secrets(value) for key, value in recipe.kept},
        "hooks": list(recipe.hooks),
        "mods": [
            {
                "name": mod.name,
                "script": mod.script,
                "lines": list(mod.lines),
                **maybe("about", mod_words(mod.name, image).partition(": ")[2], "spark-tui does not know this mod"),
            }
            for mod in recipe.mods
        ],
        "values_needed": list(recipe.needs),
        "notes": list(recipe.notes),
        "findings": [finding_object(each) for each in review_of(recipe)],
        **maybe("problem", error_object(imported.problem) if imported.problem else None, "there is none"),
    }
