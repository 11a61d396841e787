"""Clusters on screen: the nodes, what runs on them rank by rank, the form that launches, and a stop on all nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from spark_tui.app.home.screen import HomeScreen
from spark_tui.base.actions import key_of
from spark_tui.base.jobs import StepState
from spark_tui.base.launches import Stage
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.catalog.presets.use.last_launches import LastLaunches
from spark_tui.manage.cluster.screen.cluster import ClusterScreen
from spark_tui.manage.cluster.show.cluster import ADD_COMMAND
from spark_tui.manage.cluster.use.launch import ClusterLauncher
from spark_tui.observe.engines.screen.logs import LogsScreen
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList
from tests.manage.cluster.test_cluster_jobs import launched
from tests.manage.cluster.test_cluster_launch import no_docker, no_image, no_ssh, other_version
from tests.manage.cluster.test_cluster_plan import cluster_of, preset
from tests.sparks import HEAD, WORKER, Sparks
from tests.tui.kit import QWEN, SIZES, Sight, kit_of, seen

WORDS = {
    "answers": ("spark-1", "head", "spark-2", "worker", "116.0 of 121.0 GiB"),
    "ranks": ("Launches", "ready", "running"),
    "no ssh": ("n/a: no answer", "No route to host", "Check it."),
    "other version": ("n/a: other version", "spark-tui cluster install"),
    "no docker": ("Docker",),
    "verdict": ("layout", "pp 2", "spark-1", "available"),
    "starting": ("Boot ", "spark-1 starting; spark-2 "),
    "no image": ("spark-2 does not have the image org/vllm:1", "cluster copy image"),
    "on home": ("2 nodes", "lab", "rank 0", "rank 1", "spark-2   worker   running"),
    "alone": ("2 nodes", "launch r again on lab"),
    "foreign": ("2 nodes", "launched from another machine"),
    "broken": ("broken, 2 nodes", "r-rank1 on spark-2 is gone."),
    "finished": ("the interrupted stop is over",),
    "nothing": ("Nothing runs on several nodes.",),
    "question": ("on all nodes?", "spark-1, spark-2"),
}


@pytest.fixture
def sparks() -> Sparks:
    return Sparks()


@asynccontextmanager
async def shown(sparks: Sparks, size: tuple[int, int] = (120, 36), *, serves: bool = True) -> AsyncIterator[Sight]:
    """The Cluster page, opened from Home, of a launch that serves."""
    kit = sparks.controller()
    if serves:
        await launched(sparks, kit)
    async with seen(kit, size, "1") as sight:
        await sight.until(lambda: len(sight.app.world.launches) == serves)
        await sight.press(key_of("open_cluster"))
        await sight.until(lambda: len(sight.app.world.nodes) == 2)
        sight.on(ClusterScreen)
        yield sight


async def test_nodes_and_ranks_are_shown_at_every_size_and_escape_goes_back(sparks: Sparks) -> None:
    async with shown(sparks) as sight:
        for size in SIZES:
            await sight.resized(size)
            await sight.until_seen(*WORDS["answers"], *WORDS["ranks"])
        await sight.press("escape")
        sight.on(HomeScreen)


@pytest.mark.parametrize(
    ("fault", "words"), [(no_ssh, "no ssh"), (other_version, "other version"), (no_docker, "no docker")]
)
async def test_what_a_node_does_not_say_has_its_reason(sparks: Sparks, fault: object, words: str) -> None:
    async with shown(sparks) as sight:
        assert callable(fault)
        fault(sparks)
        await sight.press("ctrl+r")
        await sight.until_seen(*WORDS[words])


async def test_without_a_launch_nothing_can_be_stopped(sparks: Sparks) -> None:
    async with shown(sparks, serves=False) as sight:
        await sight.until_seen(*WORDS["nothing"])
        assert "stop_launch" not in offered(sight)
        await sight.press("x")
        sight.on(ClusterScreen)
        await sight.press("l")
        sight.on(PresetsScreen)


async def test_without_a_cluster_there_is_the_command_that_adds_one() -> None:
    async with seen(kit_of(QWEN), (80, 24), "1") as sight:
        assert "open_cluster" not in offered(sight)
        await sight.press(key_of("open_cluster"))
        await sight.until_seen(ADD_COMMAND)
        assert {"stop_launch", "ask_nodes"}.isdisjoint(offered(sight))
        await sight.press("ctrl+r", "x", "enter", "escape")
        sight.on(HomeScreen)


async def test_a_stop_names_the_nodes_and_leaves_nothing_on_any(sparks: Sparks) -> None:
    async with shown(sparks) as sight:
        await sight.press("x")
        sight.on(ConfirmScreen)
        await sight.until_seen(*WORDS["question"])
        await sight.press("n")
        assert len(sparks.containers()) == 2
        await sight.press("x", "y")
        await sight.until(lambda: not sight.app.world.launches)
        assert sparks.containers() == []
        assert sight.app.world.jobs[-1].state is StepState.DONE
        await sight.until_seen(*WORDS["nothing"])


async def test_the_log_of_the_head_is_opened(sparks: Sparks) -> None:
    async with shown(sparks) as sight:
        await sight.press("enter")
        sight.on(LogsScreen)
        assert sight.app.selected == "r"


async def test_a_launch_that_the_watcher_gave_up_says_why(sparks: Sparks) -> None:
    async with shown(sparks) as sight:
        sparks[WORKER].docker.end("r-rank1", 137)
        (record,) = sight.app.world.launches
        sparks.keep(replace(record, stage=Stage.BROKEN, problem="r-rank1 on spark-2 is gone."))
        await sight.until_seen("broken", "r-rank1 on spark-2 is gone.", "exited (137)")
        assert sight.app.screen.query_one(RowList).ids == ("r 0", "r 1")


# --- the launch form --------------------------------------------------------------------------------------


@asynccontextmanager
async def form(sparks: Sparks, text: str = "", *, clusters: int = 1) -> AsyncIterator[Sight]:
    """The form of a preset, opened on Presets."""
    sparks[HEAD].presets.catalogue = PresetCatalogue((preset(text),))
    kit = sparks.controller()
    more = tuple(replace(cluster_of(2), name=f"lab{number}") for number in range(1, clusters))
    kit.context.settings = replace(kit.context.settings, clusters=(*kit.context.settings.clusters, *more))
    async with seen(kit, (120, 36), "enter") as sight:
        sight.on(LaunchForm)
        yield sight


def value(sight: Sight, key: str) -> str:
    return next(row.text for row in sight.on(LaunchForm).fields if row.field.key == key)


def choose(sight: Sight, key: str, text: str) -> None:
    next(row for row in sight.on(LaunchForm).fields if row.field.key == key).input.value = text


@pytest.mark.parametrize(
    ("text", "clusters", "chosen"), [("", 1, ""), ("min_nodes: 2\n", 1, "lab"), ("min_nodes: 2\n", 2, "")]
)
async def test_a_preset_for_several_nodes_chooses_the_only_cluster(
    sparks: Sparks, text: str, clusters: int, chosen: str
) -> None:
    async with form(sparks, text, clusters=clusters) as sight:
        assert value(sight, "nodes") == chosen


@pytest.mark.parametrize("text", ["", "min_nodes: 2\n"])
async def test_the_nodes_of_the_last_launch_are_chosen_again_while_there_are_such(sparks: Sparks, text: str) -> None:
    async with form(sparks, text, clusters=2) as sight:
        choose(sight, "nodes", "lab1")
        choose(sight, "parallel", "pp")
        await sight.until(lambda: sight.on(LaunchForm).overrides is not None and not sight.on(LaunchForm).problem)
        await sight.press("ctrl+l")
        await sight.until(lambda: bool(sight.app.world.jobs))
        last = sight.app.context[LastLaunches]
        assert last.of(preset(text), ["lab1"]).pairs == {"nodes": "lab1", "parallel": "pp"}
        assert last.of(preset(text), ["lab"]).left_out == ("nodes", "parallel")
        await sight.press("3", "enter")
        await sight.until(lambda: isinstance(sight.app.screen, LaunchForm))
        assert (value(sight, "nodes"), value(sight, "parallel")) == ("lab1", "pp")


async def test_without_a_cluster_the_form_has_no_field_for_nodes() -> None:
    async with seen(kit_of(QWEN), (120, 36), "enter") as sight:
        assert {"nodes", "parallel"}.isdisjoint(row.field.key for row in sight.on(LaunchForm).fields)


async def test_the_preview_has_the_verdict_and_the_command_of_each_node(sparks: Sparks) -> None:
    async with form(sparks) as sight:
        choose(sight, "nodes", "lab")
        choose(sight, "parallel", "pp")
        await sight.until_seen(*WORDS["verdict"])
        page = sight.app.screen.query_one("#preview", Page)
        text = page.say(100).plain
        assert text.count("docker run") == 2
        assert text.count("Other than the recipe") == text.count("--device /dev/infiniband --cap-add IPC_LOCK:") == 1
        assert "--pipeline-parallel-size 2" in " ".join(text.split())


async def test_parallel_without_nodes_is_refused(sparks: Sparks) -> None:
    async with form(sparks) as sight:
        choose(sight, "parallel", "tp")
        await sight.until(lambda: sight.on(LaunchForm).blamed)
        choose(sight, "nodes", "lab")
        await sight.until(lambda: sight.on(LaunchForm).problem is None)


async def test_a_launch_from_the_form_starts_all_ranks_and_shows_them_on_home(sparks: Sparks) -> None:
    sparks[HEAD].docker.on_start = None  # it loads for ever
    async with form(sparks, "min_nodes: 2\n") as sight:
        await sight.press("ctrl+l")
        await sight.until(lambda: len(sparks.containers()) == 2)
        sight.on(HomeScreen)
        sparks[WORKER].docker.write("r-rank1", "a line")
        await sight.until_seen(*WORDS["starting"])
        await sight.press("c")
        await sight.until(lambda: sight.app.world.jobs[-1].state is StepState.CANCELLED)
        assert sparks.containers() == []


async def test_a_launch_that_fails_keeps_its_summary_and_what_to_do(sparks: Sparks) -> None:
    no_image(sparks)
    async with form(sparks, "min_nodes: 2\n") as sight:
        await sight.press("ctrl+l")
        await sight.until_seen(*WORDS["no image"])
        assert sight.app.world.jobs[-1].state is StepState.FAILED


async def test_what_runs_under_that_name_is_replaced_after_a_question(sparks: Sparks) -> None:
    await launched(sparks, sparks.controller())
    async with form(sparks, "min_nodes: 2\n") as sight:
        await sight.until(lambda: bool(sight.app.world.launches))
        await sight.press("ctrl+l")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        before = sight.app.world.launches[0].launch
        await sight.press("y")
        await sight.until(lambda: sight.app.world.launches[0].launch != before)
        await sight.until(lambda: sight.app.world.launches[0].stage is Stage.READY)


# --- Home -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def home(sparks: Sparks, size: tuple[int, int] = (120, 36)) -> AsyncIterator[Sight]:
    """Home with the head of a launch that serves under the cursor."""
    kit = sparks.controller()
    await launched(sparks, kit)
    async with seen(kit, size, "1") as sight:
        await sight.until(lambda: sight.app.selected == "r" and len(sight.app.world.nodes) == 2)
        sight.on(HomeScreen)
        yield sight


async def test_an_engine_on_several_nodes_shows_each_rank_at_every_size(sparks: Sparks) -> None:
    async with home(sparks) as sight:
        for size in SIZES:
            await sight.resized(size)
            await sight.until_seen(*WORDS["on home"])


async def test_down_on_one_rank_stops_the_whole_launch(sparks: Sparks) -> None:
    async with home(sparks) as sight:
        await sight.press("x")
        await sight.until_seen(*WORDS["question"])
        await sight.press("y")
        await sight.until(lambda: not sight.app.world.launches)
        assert sparks.containers() == []


async def test_nothing_else_is_done_with_one_rank_alone(sparks: Sparks) -> None:
    async with home(sparks) as sight:
        assert {"edit_engine", "restart"}.isdisjoint(offered(sight))
        for key in ("e", "r", "delete", "B", "Z", "K"):
            sight.app.clear_notifications()
            await sight.until(lambda: WORDS["alone"][1] not in sight.text)
            await sight.press(key)
            await sight.until_seen(*WORDS["alone"])
            sight.on(HomeScreen)
            assert len(sparks.containers()) == 2, key


async def test_a_rank_that_another_machine_launched_is_not_stopped_alone(sparks: Sparks) -> None:
    async with home(sparks) as sight:
        sparks.state.remove("cluster-r")
        await sight.until_seen(*WORDS["foreign"])
        await sight.press("x")
        sight.on(HomeScreen)
        assert len(sparks.containers()) == 2


async def test_a_launch_that_has_no_engine_here_any_more_stays_in_the_list(sparks: Sparks) -> None:
    async with home(sparks) as sight:
        (record,) = sight.app.world.launches
        sparks[HEAD].docker.go_down()
        await sparks.launcher().stop("r")
        sparks.keep(replace(record, stage=Stage.BROKEN, problem="r-rank1 on spark-2 is gone."))
        sparks[HEAD].docker.come_back()
        for engine in sparks[HEAD].docker.all_containers.copy():
            await sparks[HEAD].docker.remove(engine, force=True)
        await sight.until_seen(*WORDS["broken"])
        await sight.press("x", "y")
        await sight.until(lambda: not sight.app.world.launches)


async def test_what_was_interrupted_is_finished_when_the_program_is_opened(sparks: Sparks) -> None:
    kit = sparks.controller()
    await launched(sparks, kit)
    (record,) = kit.context[ClusterLauncher].records()
    sparks.keep(replace(record, stage=Stage.STOPPING))
    async with seen(sparks.controller(), (120, 36), "1") as sight:
        await sight.until(lambda: sparks.containers() == [] and not sight.app.world.launches)
        await sight.until_seen(*WORDS["finished"])


def offered(sight: Sight) -> set[str]:
    return {action.id for action in sight.app.screen.query_one(KeyBar).actions}
