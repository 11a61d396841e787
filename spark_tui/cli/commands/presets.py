"""Presets: `presets` and its commands, and `fit`."""

from __future__ import annotations

import click

from spark_tui.cli.commands.frame import command, group, name_argument, settings_option
from spark_tui.cli.session import Session


@group("presets")
def presets(session: Session) -> None:
    """Recipes: list them, look at one. Without a command: the list.

    Your own go into ~/.config/spark-tui/presets, as sparkrun v2 YAML; one of the same name takes the place of ours.
    """
    from spark_tui.cli.presets import list_presets

    list_presets(session)


@command("list")
def presets_list(session: Session) -> None:
    """All presets; files that cannot be read are named on standard error."""
    from spark_tui.cli.presets import list_presets

    list_presets(session)


@command("show", "  spark-tui presets show gpt-oss-120b")
@name_argument
def presets_show(session: Session, name: str) -> None:
    """Everything that is known about one preset, and its command."""
    from spark_tui.cli.presets import show_preset

    show_preset(session, name)


@command("check", "  spark-tui presets check\n  spark-tui presets check gpt-oss-120b --set kv_cache_dtype=fp8")
@click.argument("name", required=False)
@settings_option()
@click.option("--notes", is_flag=True, help="With all presets: notes too.")
def presets_check(session: Session, name: str | None, settings: tuple[str, ...], notes: bool) -> int:
    """What would go wrong with a launch, why, and the change that helps. Exit code 4: an error was found."""
    from spark_tui.cli.presets import check_presets

    return check_presets(session, name, settings, everything=notes)


_DIFF_EXAMPLES = """\
  spark-tui presets diff gpt-oss-120b
  spark-tui presets diff gpt-oss-120b --set max_model_len=65536
"""


@command("diff", _DIFF_EXAMPLES)
@click.argument("name")
@click.argument("container", required=False, default="")
@settings_option()
@click.option("--all", "everything", is_flag=True, help="Settings that agree, too.")
def presets_diff(session: Session, name: str, container: str, settings: tuple[str, ...], everything: bool) -> None:
    """What the preset says, what a launch would use, and what its container really uses."""
    from spark_tui.cli.presets import diff_preset

    diff_preset(session, name, container, settings, everything=everything)


_IMPORT_EXAMPLES = """\
  spark-tui presets import recipe.yaml --name mine
  spark-tui presets import serve.sh          # a docker run command; - reads what you paste, until Ctrl-D
  git clone https://github.com/spark-arena/eugr-recipes.git && spark-tui presets import eugr-recipes
"""


@command("import", _IMPORT_EXAMPLES)
@click.argument("source", metavar="FILE|FOLDER|-")
@click.option("--name", default="", metavar="NAME", help="The preset's name.  [the file's, the container's]")
@click.option("--force", is_flag=True, help="Take the place of a preset of that name.")
def presets_import(session: Session, source: str, name: str, force: bool) -> None:
    """Recipes of eugr (version 1) and sparkrun (version 2), and docker run commands, become presets of yours.

    A file, a folder of them, or a registry cloned with git; a script or guide with docker run commands; - for standard
    input. Nothing in them is run: hooks and mods are shown. Keys and tokens are taken out.
    """
    from spark_tui.cli.presets import import_presets

    import_presets(session, source, name=name, replace=force)


_FORMATS = ("docker-run", "compose", "systemd", "quadlet", "sparkrun", "eugr")
_EXPORT_EXAMPLES = """\
  spark-tui presets export gpt-oss-120b --format compose > compose.yaml
  spark-tui presets export gpt-oss-120b --format systemd -o gpt-oss-120b.service
  spark-tui presets export gpt-oss-120b --format sparkrun --set max_model_len=65536
"""


@command("export", _EXPORT_EXAMPLES)
@name_argument
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="docker-run", help="[docker-run]")
@settings_option()
@click.option("-o", "--output", default="", metavar="FILE", help="Write it there, where there is no file yet.")
def presets_export(session: Session, name: str, format_: str, settings: tuple[str, ...], output: str) -> None:
    """A preset for another tool: a command, a Compose file, a service, a recipe.

    Keys and tokens are never in it: it names the private file that holds them.
    """
    from spark_tui.cli.presets import export_preset

    export_preset(session, name, format_, settings, output)


presets.add(presets_list, presets_show, presets_check, presets_diff, presets_import, presets_export)


_FIT_EXAMPLES = """\
  spark-tui fit gpt-oss-120b
  spark-tui fit gpt-oss-120b --set max_model_len=65536 --json | jq .verdict
"""


@command("fit", _FIT_EXAMPLES)
@name_argument
@settings_option("A value of the preset; may be repeated.")
def fit(session: Session, name: str, settings: tuple[str, ...]) -> None:
    """Does a preset fit into the memory that is free now, and what would help.

    Weights, KV cache, state and the rest; measured where the checkpoint is in the store. Changes nothing.
    """
    from spark_tui.cli.launch import fit as work

    work(session, name, settings)
