"""What is under way on this machine, and how its engines are, in a few words: for the frame of every screen."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from spark_tui.base.engine.state import EngineWord
from spark_tui.base.finding import Missing
from spark_tui.base.jobs import StepState
from spark_tui.base.page import Cell, Tone
from spark_tui.base.store import World
from spark_tui.observe.engines.show.engines import EngineStatus, engine_status, latest_job
from spark_tui.observe.explain.feature import ENGINES


def engine_statuses(world: World) -> Mapping[str, EngineStatus]:
    """The status of every engine, and of every launch that has no engine yet, by name."""
    jobs = world.jobs
    found = {view.name: engine_status(view, latest_job(jobs, view.name)) for view in world.known(ENGINES)}
    for job in jobs:
        if job.title not in found and job.state in (StepState.RUNNING, StepState.FAILED):
            found[job.title] = engine_status(None, latest_job(jobs, job.title))
    return found


def launch_words(world: World, name: str) -> str:
    """`qwen fetching 16%` of a launch that has no container yet, else empty."""
    status = engine_statuses(world).get(name)
    return "" if status is None or world.named(ENGINES, name) is not None else f"{name} {status.text}"


def engine_counts(world: World, statuses: Mapping[str, EngineStatus]) -> tuple[Cell, ...]:
    """`2 running`, `1 loading`, `1 failed`, the most urgent last; a single engine by its name."""
    if len(statuses) == 1:
        return tuple(Cell(f"{name} {status.text}", status.tone) for name, status in statuses.items())
    words: dict[str, tuple[int, Tone]] = {}
    for status in statuses.values():
        if status.word is not EngineWord.STOPPED:
            word = "running" if status.word.serves else status.word.value
            words[word] = (words.get(word, (0, status.tone))[0] + 1, status.tone)
    order = ("running", *(word.value for word in EngineWord))
    cells = [Cell(f"{words[word][0]} {word}", words[word][1]) for word in dict.fromkeys(order) if word in words]
    none = "engines unknown" if isinstance(world[ENGINES], Missing) else "no engine running"
    return tuple(cells) or (Cell(none, Tone.QUIET),)


def window_title(world: World) -> str:
    """`spark-7f3a: qwen loading`: the state of things for a window's title, without figures that change often."""
    statuses = {
        name: replace(status, percent=None, word=EngineWord.READY if status.word.serves else status.word)
        for name, status in engine_statuses(world).items()
    }
    counts = ", ".join(cell.text for cell in engine_counts(world, statuses))
    return f"{world.identity.hostname or 'spark-tui'}: {counts}"
