"""Models: `models` and the commands for what is in the store or on the Hub."""

from __future__ import annotations

from typing import Any

import click

from spark_tui.cli.commands.downloads import (
    models_cancel,
    models_downloads,
    models_pause,
    models_pull,
    models_resume,
)
from spark_tui.cli.commands.frame import command, group, name_argument
from spark_tui.cli.session import Session


@group("models")
def models(session: Session) -> None:
    """Checkpoints in the store: list, fetch, look into, verify, delete. Without a command: the list."""
    from spark_tui.cli.models import list_models

    list_models(session)


@command("list", "  spark-tui models list --json | jq '.models[] | select(.state != \"complete\") | .id'")
def models_list(session: Session) -> None:
    """What is here, how whole it is, when it was last read, and who uses it.

    What is wrong, and caches of other tools, are told on standard error.
    """
    from spark_tui.cli.models import list_models

    list_models(session)


_revision = click.option("--revision", default="", metavar="REF", help="A branch, tag or commit.  [the current one]")


_INSPECT_EXAMPLES = """\
  spark-tui models inspect nvidia/Qwen3.6-27B-NVFP4
  spark-tui models inspect nvidia/Qwen3.6-27B-NVFP4 --hub      before it is fetched
"""


@command("inspect", _INSPECT_EXAMPLES)
@name_argument
@_revision
@click.option("--files", is_flag=True, help="Each file, too.")
@click.option("--hub", is_flag=True, help="As it is on the Hub: a few kilobytes of it are read.")
def models_inspect(session: Session, name: str, revision: str, files: bool, hub: bool) -> None:
    """What a checkpoint is by its own files, and what it will do on a Spark.

    Configs and headers are read, never a tensor: format and its exceptions, speed at most, KV cache, chat, licence.
    """
    if hub:
        from spark_tui.cli.models import inspect_on_hub

        inspect_on_hub(session, name, revision, files=files)
        return
    from spark_tui.cli.models import inspect_model

    inspect_model(session, name, revision, files=files)


@command("verify", "  spark-tui models verify openai/gpt-oss-120b")
@name_argument
@_revision
def models_verify(session: Session, name: str, revision: str) -> int:
    """Hash every file and compare it with the Hub's digests. Needs no network.

    Names the files to fetch again; the exit code is then 1.
    """
    from spark_tui.cli.models import verify

    return verify(session, name, revision)


_RM_EXAMPLES = """\
  spark-tui models rm openai/gpt-oss-20b --dry-run
  spark-tui models rm openai/gpt-oss-20b --revision 1a2b3c4
  spark-tui models rm openai/gpt-oss-20b --leftovers
"""


@command("rm", _RM_EXAMPLES)
@name_argument
@click.option("--revision", default="", metavar="REF", help="Only that branch, tag or commit.")
@click.option("--leftovers", is_flag=True, help="Only what interrupted downloads have left, and data nobody uses.")
@click.option("--dry-run", is_flag=True, help="Say what would go and what that would free.")
@click.option("--unchecked", is_flag=True, help="Even if Docker does not tell what its containers use.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for the name.")
def models_rm(session: Session, name: str, **options: Any) -> None:
    """Delete a model, after you have typed its name. Refused while an engine uses it.

    Data that other models use too stays.
    """
    from spark_tui.cli.models import remove

    if options["revision"] and options["leftovers"]:
        raise click.UsageError("--revision and --leftovers are two things.")
    remove(session, name, **options)


_SEARCH_EXAMPLES = """\
  spark-tui models search qwen3.6 --format nvfp4 --fits
  spark-tui models search --publisher nvidia --format nvfp4 --max-size 70g --sort updated
"""


@command("search", _SEARCH_EXAMPLES)
@click.argument("words", nargs=-1)
@click.option("--format", "formats", multiple=True, metavar="FORMAT", help="nvfp4, fp8, mxfp4, ...; may be repeated.")
@click.option("--publisher", default="", metavar="NAME", help="Only of this account.")
@click.option("--max-size", default="", metavar="SIZE", help="Weights of at most so much: 70g.")
@click.option("--fits", is_flag=True, help="Only what one Spark can hold.")
@click.option("--gguf", is_flag=True, help="GGUF repositories too.")
@click.option(
    "--sort", type=click.Choice(["downloads", "trending", "likes", "updated", "created"]), default="downloads",
    help="[downloads]",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 100), default=20, metavar="N", help="At most so many.  [20]")
def models_search(session: Session, words: tuple[str, ...], **options: Any) -> None:
    """Look for models on the Hugging Face Hub: format, size, whether one Spark holds them.

    The format is by the config where the Hub tells it, else by tags and name, which may lie: inspect before you pull.
    """
    from spark_tui.cli.models import search_models

    search_models(session, words, **options)


models.add(
    models_list,
    models_search,
    models_pull,
    models_downloads,
    models_pause,
    models_resume,
    models_cancel,
    models_inspect,
    models_verify,
    models_rm,
)
