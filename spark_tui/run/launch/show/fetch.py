"""What a launch would download first, in its form."""

from __future__ import annotations

from msgspec import Struct

from spark_tui.base.errors import SparkError
from spark_tui.base.page import Page, Row, Section, Tone
from spark_tui.catalog.models.model.download import DownloadRequest
from spark_tui.catalog.presets.use.launch_downloads import MissingFiles


class ModelStatus(Struct, frozen=True):
    """What a launch would download, of all that it `needs`. `wanted` None: unknown, or there is no Hub."""

    needs: tuple[DownloadRequest, ...]
    wanted: MissingFiles | None = None
    problem: SparkError | None = None


def model_page(status: ModelStatus | None, *, fetch: bool, key: str) -> Page:
    """One line where something is missing, none where all of it is downloaded. `fetch`: the launch downloads it;
    `key` changes that."""
    if status is None or (status.problem is None and (status.wanted is None or not status.wanted.plans)):
        return ()
    wanted = status.wanted
    if not fetch:
        row = Row(f"left to the engine  {key} download first", "model", Tone.QUIET)
    elif status.problem is not None or wanted is None:
        problem = status.problem
        row = Row(f"{problem.summary} {problem.remedy}" if problem else "", "model", Tone.BAD)
    else:
        row = Row(f"{wanted.words}; downloaded first  {key} skip", "model", Tone.WARNING)
    return (Section(rows=(row,)),)
