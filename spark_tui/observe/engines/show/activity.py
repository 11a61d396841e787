"""What is under way on this machine, and how its engines are, in a few words: for the frame of every screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spark_tui.base.engine.state import EngineState, EngineWord
from spark_tui.base.finding import Missing, value_of
from spark_tui.base.jobs import Activity, StepState
from spark_tui.base.page import Cell, Tone
from spark_tui.observe.engines.show.engines import EngineStatus, engine_status, latest_job

if TYPE_CHECKING:  # at the first frame nothing is under way
    from spark_tui.base.store import World
    from spark_tui.observe.explain.model.view import EngineView

UNDER_WAY = (
    EngineWord.QUEUED, EngineWord.FETCHING, EngineWord.PULLING, EngineWord.STARTING, EngineWord.LOADING,
    EngineWord.COMPILING, EngineWord.WARMING_UP, EngineWord.STOPPING,
)  # fmt: skip


def activities(world: World, seconds_left: Callable[[EngineView], float | None]) -> tuple[Activity, ...]:
    """Launches, other starts, downloads, verifications, the benchmark; none of them twice: what a launch downloads is
    the launch's. `seconds_left` is how long a start will still take."""
    statuses = engine_statuses(world)
    downloads = [each for each in value_of(world.downloads) or () if each.phase.active]
    found, taken = [], set[str]()
    for name, status in statuses.items():
        job = latest_job(world.jobs, name)
        awaited = {id_ for step in job.steps for id_ in step.downloads} if job is not None else set()
        if status.word is EngineWord.FETCHING:
            taken |= awaited
            left = next((each.eta for each in downloads if each.id in awaited and each.eta is not None), None)
        else:
            view = world.view(name)
            left = seconds_left(view) if view is not None and view.state is EngineState.STARTING else None
        if status.word in UNDER_WAY:
            found.append(Activity("show_home", name, f"{name} {status.text}", left))
    for each in downloads:
        if each.id in taken:
            continue
        percent = "" if each.fraction is None else f" {each.fraction:.0%}"
        title = each.request.title.rpartition("/")[2]
        found.append(Activity("show_models", each.id, f"download {title}{percent}", each.eta))
    library = value_of(world.library)
    for entry in library.entries if library is not None else ():
        check = entry.check
        if check is not None and not check.over:
            words = f"verify {entry.model.id.rpartition('/')[2]} {check.fraction:.0%}"
            found.append(Activity("show_models", entry.model.id, words, check.left_seconds))
    bench = world.bench
    if bench is not None:
        count = f"{bench.done} of {bench.total}" if bench.total else bench.step
        found.append(Activity("show_bench", bench.engine, f"bench {bench.engine} {count}", bench.seconds_left))
    return tuple(found)


def engine_statuses(world: World) -> Mapping[str, EngineStatus]:
    """The status of every engine, and of every launch that has no engine yet, by name."""
    jobs = world.jobs
    found = {view.name: engine_status(view, latest_job(jobs, view.name)) for view in world.views}
    for job in jobs:
        if job.title not in found and job.state in (StepState.RUNNING, StepState.FAILED):
            found[job.title] = engine_status(None, latest_job(jobs, job.title))
    return found


def launch_words(world: World, name: str) -> str:
    """`qwen fetching 16%` of a launch that has no container yet, else empty."""
    status = engine_statuses(world).get(name)
    return "" if status is None or world.view(name) is not None else f"{name} {status.text}"


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
    none = "engines unknown" if isinstance(world.engines, Missing) else "no engine running"
    return tuple(cells) or (Cell(none, Tone.QUIET),)


def window_title(world: World) -> str:
    """`spark-7f3a: qwen loading`: the state of things for a window's title, without figures that change often."""
    statuses = {
        name: replace(status, percent=None, word=EngineWord.READY if status.word.serves else status.word)
        for name, status in engine_statuses(world).items()
    }
    counts = ", ".join(cell.text for cell in engine_counts(world, statuses))
    return f"{world.identity.hostname or 'spark-tui'}: {counts}"
