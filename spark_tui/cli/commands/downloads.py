"""Fetching models: `models pull`, and the commands for downloads."""

from __future__ import annotations

from typing import Any

import click

from spark_tui.cli.commands.frame import command
from spark_tui.cli.session import Session

_PULL_EXAMPLES = """\
  spark-tui models pull nvidia/Qwen3.6-27B-NVFP4 --dry-run
  spark-tui models pull gpt-oss-120b                     all that a preset needs
  spark-tui models pull nvidia/Qwen3.6-27B-NVFP4 --background --limit 50m
  spark-tui models pull Qwen/Qwen3-30B-A3B-GGUF --file Qwen3-30B-A3B-Q4_K_M.gguf --to gguf
"""


@command("pull", _PULL_EXAMPLES)
@click.argument("what", metavar="REPO|PRESET")
@click.option("--revision", default="", metavar="REF", help="A branch, tag or commit.  [main]")
@click.option("--file", "files", multiple=True, metavar="PATTERN", help="Only these files; may be repeated.")
@click.option("--all-files", "everything", is_flag=True, help="Also what no engine here reads.")
@click.option("--to", "folder", default="", metavar="FOLDER", help="Into a folder of the store, not the Hub's cache.")
@click.option("--again", is_flag=True, help="What is here is damaged: fetch it anew.")
@click.option("--limit", default="", metavar="SIZE", help="All downloads together at most so much a second; none.")
@click.option("--dry-run", is_flag=True, help="Say what would be fetched.")
@click.option("--background", is_flag=True, help="Start it and return.")
def models_pull(session: Session, what: str, **options: Any) -> None:
    """Fetch a model, or all that a preset needs, into the store.

    It goes on when the terminal is closed, and where it stopped after an interruption. Ctrl-C pauses it. The token is
    that of HF_TOKEN or `hf auth login`.
    """
    from spark_tui.cli.downloads import PullOptions
    from spark_tui.cli.downloads import pull as work

    work(session, what, PullOptions(**options))


@command("downloads", "  spark-tui models downloads --limit 50m\n  spark-tui models downloads --json")
@click.option("--limit", default="", metavar="SIZE", help="From now on, all together at most so much a second; none.")
@click.option("--at-once", type=click.IntRange(1, 8), metavar="N", help="From now on, so many at once.  [2]")
@click.option("--clear", is_flag=True, help="Take what is done off the list.")
def models_downloads(session: Session, **options: Any) -> None:
    """Downloads: running, waiting, paused, failed, done."""
    from spark_tui.cli.downloads import list_downloads

    list_downloads(session, **options)


_downloads = click.argument("names", metavar="DOWNLOAD", nargs=-1, required=True)


@command("pause")
@_downloads
def models_pause(session: Session, names: tuple[str, ...]) -> None:
    """Pause downloads, by id or repository. What has arrived is kept."""
    from spark_tui.cli.downloads import pause as work

    work(session, names)


@command("resume")
@_downloads
@click.option("--background", is_flag=True, help="Return at once.")
def models_resume(session: Session, names: tuple[str, ...], background: bool) -> None:
    """Go on with paused, interrupted or failed downloads."""
    from spark_tui.cli.downloads import resume as work

    work(session, names, background=background)


@command("cancel")
@_downloads
@click.option("--discard", is_flag=True, help="Delete the parts of files, too.")
def models_cancel(session: Session, names: tuple[str, ...], discard: bool) -> None:
    """End downloads and take them off the list. Whole files stay; so do parts, unless --discard."""
    from spark_tui.cli.downloads import cancel as work

    work(session, names, discard=discard)
