"""The doctor of a cluster by keys: its matrix, a finding with its fix, bandwidth, presets, cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from spark_tui.base.actions import key_of
from spark_tui.base.errors import UnreachableError
from spark_tui.base.finding import Severity
from spark_tui.base.ports import ShellResult
from spark_tui.base.remote import RemoteHost
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.manage.cluster.screen.cluster import ClusterScreen
from spark_tui.manage.cluster.screen.doctor import ClusterDoctorScreen
from spark_tui.tui.modals import ChoiceDialog, ConfirmScreen
from spark_tui.tui.widgets.bars import KeyBar
from spark_tui.tui.widgets.page import Page
from spark_tui.tui.widgets.row_list import RowList
from tests.manage.cluster.test_cluster_doctor_model import HEALTHY
from tests.manage.cluster.test_cluster_doctor_use import Pair
from tests.manage.cluster.test_cluster_plan import preset
from tests.sparks import HEAD, Sparks
from tests.tui.kit import SIZES, Sight, seen

WORDS = {
    "headings": ("Needs attention", "Skipped", "Passed"),
    "cut": ("FAIL  spark-2", "netplan"),
    "running": ("Read nodes", "Running checks..."),
    "preset": (f"compare: {key_of('compare_preset')}",),
    "not measured": (f"Measure it: {key_of('measure_bandwidth')}",),
    "question": ("Measure the bandwidth of duo?", "slow down"),
    "measured": ("190.0 Gbit/s",),
    "refused": (f"Cancel: {key_of('cancel_checks')}",),
    "silent": ("No route to host",),
}


class ExaminedSparks(Sparks):
    """Two nodes whose examination is that of a healthy pair until something is planted; `held` answers wait."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.clock)
        self.held: asyncio.Event | None = None

    async def ask(
        self, host: RemoteHost, arguments: Sequence[str], *, given: str = "", seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> ShellResult:  # fmt: skip
        if arguments[1:] and arguments[1] in ("facts", "probe") and host.destination not in self.cut:
            if self.held is not None:
                await self.held.wait()
            return await self.pair.ask(host, arguments, given=given, seconds=seconds, on_line=on_line)
        return await super().ask(host, arguments, given=given, seconds=seconds, on_line=on_line)


@pytest.fixture
def sparks() -> ExaminedSparks:
    return ExaminedSparks()


@asynccontextmanager
async def shown(
    sparks: ExaminedSparks, size: tuple[int, int] = (120, 36), *, clusters: tuple[str, ...] = ("duo",)
) -> AsyncIterator[Sight]:
    """The doctor, opened from the Cluster page."""
    sparks[HEAD].presets.catalogue = PresetCatalogue((preset(),))
    kit = sparks.controller()
    named = tuple(replace(HEALTHY.cluster, name=name) for name in clusters)
    kit.context.settings = replace(kit.context.settings, clusters=named)
    async with seen(kit, size, "1", key_of("open_cluster"), key_of("open_cluster_doctor")) as sight:
        sight.on(ClusterDoctorScreen)
        yield sight


def verdicts(sight: Sight) -> dict[tuple[str, str], Severity]:
    return {(each.id, each.subject): each.severity for each in sight.on(ClusterDoctorScreen).findings}


async def checked(sight: Sight) -> None:
    await sight.until(lambda: bool(sight.on(ClusterDoctorScreen).findings))


def offered(sight: Sight) -> set[str]:
    return {action.id for action in sight.app.screen.query_one(KeyBar).actions}


def page(sight: Sight) -> str:
    """The finding under the cursor, as one line."""
    return " ".join(sight.app.screen.query_one("#node-check", Page).say(200).plain.split())


async def test_the_worst_check_is_first_with_its_fix_and_evidence_and_escape_goes_back(sparks: ExaminedSparks) -> None:
    links = sparks.pair.fabrics[1].found
    assert links
    sparks.pair.fabrics[1].found = (links[0], replace(links[1], mtu=1500), *links[2:])
    async with shown(sparks, SIZES[0]) as sight:
        await checked(sight)
        rows = sight.app.screen.query_one(RowList)
        assert rows.key == "mtu"
        assert verdicts(sight)["mtu", "spark-1"] is Severity.OK
        assert verdicts(sight)["mtu", "spark-2"] is Severity.ERROR
        for word in ("FAIL spark-2", "mtu 9000", "enP2p1s0f0np0: 1500", "/etc/netplan/40-cx7.yaml on spark-2"):
            assert word in page(sight)
        assert page(sight).index("FAIL spark-2") < page(sight).index("PASS spark-1")
        assert sight.app.world.events[-1].subject == "duo"
        assert sight.app.world.events[-1].severity is Severity.ERROR
        await sight.press("escape")
        sight.on(ClusterScreen)


async def test_checks_stand_under_headings_and_every_node_has_a_column(sparks: ExaminedSparks) -> None:
    sparks.pair.fabrics[0].refused = {29501}
    async with shown(sparks, (160, 50)) as sight:
        await checked(sight)
        await sight.until_seen(*WORDS["headings"])
        head = next(line for line in sight.text.splitlines() if "result" in line)
        assert head.index("spark-1") < head.index("spark-2") < head.index("result")


async def test_what_was_not_asked_names_the_key_and_not_an_option(sparks: ExaminedSparks) -> None:
    async with shown(sparks) as sight:
        await checked(sight)
        sight.app.screen.query_one(RowList).select("image")
        await sight.until_seen(*WORDS["preset"])
        sight.app.screen.query_one(RowList).select("tcp_bandwidth")
        await sight.until_seen(*WORDS["not measured"])
        assert "--" not in page(sight)


async def test_a_chosen_preset_has_its_image_and_model_compared(sparks: ExaminedSparks) -> None:
    sparks.pair.kits[0].docker.add_image("org/vllm:1")
    async with shown(sparks) as sight:
        await checked(sight)
        assert verdicts(sight)["image", "spark-2"] is Severity.UNKNOWN
        await sight.press("C")
        sight.on(ChoiceDialog)
        await sight.press("down", "enter")
        await sight.until(lambda: verdicts(sight)["image", "spark-2"] is Severity.ERROR)
        assert verdicts(sight)["model", "spark-2"] is Severity.OK
        await sight.press("C", "enter")
        await sight.until(lambda: verdicts(sight)["image", "spark-2"] is Severity.UNKNOWN)


async def test_bandwidth_is_measured_only_after_a_yes(sparks: ExaminedSparks) -> None:
    for fabric in sparks.pair.fabrics:
        fabric.gbits = {"ib_write_bw": 95.0}
    async with shown(sparks) as sight:
        await checked(sight)
        await sight.press("b")
        sight.on(ConfirmScreen)
        await sight.until_seen(*WORDS["question"])
        await sight.press("n")
        assert all(not each.transfers for fabric in sparks.pair.fabrics for each in fabric.requests)
        await sight.press("b", "y")
        await sight.until(lambda: ("rdma_bandwidth", "spark-2") in verdicts(sight))
        await sight.until_seen(*WORDS["measured"])
        assert verdicts(sight)["rdma_bandwidth", "spark-2"] is Severity.OK
        assert sight.app.screen.query_one(RowList).key == "rdma_bandwidth"


async def test_progress_is_shown_one_run_at_a_time_and_a_run_is_cancelled(sparks: ExaminedSparks) -> None:
    sparks.held = asyncio.Event()
    async with shown(sparks) as sight:
        await sight.until_seen(*WORDS["running"])
        assert "cancel_checks" in offered(sight)
        assert "check_cluster" not in offered(sight)
        await sight.press("ctrl+r")
        await sight.until_seen(*WORDS["refused"])
        await sight.press("c")
        await sight.until(lambda: "check_cluster" in offered(sight))
        assert verdicts(sight) == {}
        sparks.held.set()
        await sight.press("ctrl+r")
        await checked(sight)


async def test_checks_continue_while_another_screen_is_shown(sparks: ExaminedSparks) -> None:
    sparks.held = asyncio.Event()
    async with shown(sparks) as sight:
        await sight.press("1")
        sparks.held.set()
        await sight.until(lambda: any(event.subject == "duo" for event in sight.app.world.events))
        await sight.press(key_of("open_cluster"), key_of("open_cluster_doctor"))
        assert verdicts(sight)


async def test_a_node_that_does_not_answer_fails_and_the_other_is_checked(sparks: ExaminedSparks) -> None:
    sparks.cut["nv@spark-2"] = UnreachableError("spark-2 does not answer: No route to host.", "Check it: ssh spark-2")
    async with shown(sparks) as sight:
        await checked(sight)
        assert sight.app.screen.query_one(RowList).key == "reach"
        assert verdicts(sight)["reach", "spark-2"] is Severity.ERROR
        assert verdicts(sight)["carrier", "spark-1"] is Severity.OK
        assert verdicts(sight)["carrier", "spark-2"] is Severity.UNKNOWN
        await sight.until_seen(*WORDS["silent"])


async def test_the_next_cluster_has_its_own_results(sparks: ExaminedSparks) -> None:
    async with shown(sparks, clusters=("duo", "other")) as sight:
        await checked(sight)
        sparks.pair.fabrics[1].refused = {8000}
        await sight.press("n")
        await checked(sight)
        assert verdicts(sight)["firewall", "spark-1"] is Severity.ERROR
        await sight.press("n")
        assert verdicts(sight)["firewall", "spark-1"] is Severity.OK


async def test_without_a_cluster_there_is_the_command_that_adds_one(sparks: ExaminedSparks) -> None:
    async with seen(sparks[HEAD], (120, 36), "1") as sight:
        sight.app.switch_mode("cluster_doctor")
        await sight.until_seen("spark-tui cluster add")
        assert {"check_cluster", "measure_bandwidth", "compare_preset", "next_cluster"}.isdisjoint(offered(sight))
        await sight.press("ctrl+r", "b", "n", "escape")
        sight.on(ClusterScreen)


async def test_with_one_cluster_there_is_no_next_and_read_only_measures_nothing(sparks: ExaminedSparks) -> None:
    async with shown(sparks) as sight:
        await checked(sight)
        assert "next_cluster" not in offered(sight)
        sight.app.context.settings = replace(sight.app.context.settings, read_only=True)
        await sight.press("b")
        sight.on(ClusterDoctorScreen)
