"""The Bench screen on a whole core of fakes: measuring, stopping, comparing, exporting, and every wrong key."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input, TabbedContent

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.context import Context
from spark_tui.base.engine.container import PublishedPort
from spark_tui.base.errors import EngineUnreachable
from spark_tui.base.finding import EventKind, Severity
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.base.settings import Settings
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.results.model.run import BenchRun, HostFigures, Result, RunOutcome, Status, result_of
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.run.launch.use.launch import Launcher, LaunchRequest
from spark_tui.tui.format import ASCII, UNICODE, Glyphs
from spark_tui.tui.modals import ConfirmScreen
from spark_tui.tui.widgets.row_list import RowList
from spark_tui.use.bench.show.bench import serving
from spark_tui.use.prove.screen.bench import BenchScreen
from spark_tui.use.prove.screen.curve import BenchCurve
from spark_tui.use.prove.screen.form import BenchForm
from spark_tui.use.prove.screen.level_bars import LevelBars
from tests.bench_kit import SPARK, FakeLoad, a_run
from tests.fakes_files import MemoryResults
from tests.fakes_host import EPOCH
from tests.fakes_ports import Ports
from tests.kit import PRESET, Kit
from tests.tui.chat_kit import MemoryFiles
from tests.tui.kit import ESCAPE, MARKUP, SIZES, Sight, opened_on
from tests.tui.quiet import until

PORTS = {"qwen": 8000, "other": 8001}
SWEEP = ((1, (40.0, 41.0, 40.5)), (2, (74.0, 75.0, 74.4)), (4, (120.0, 121.0, 122.0)), (8, (130.0, 131.0, 129.0)))


class BenchKit(Kit):
    """A core whose load is scripted, with results and files in memory."""

    def __init__(self, *engines: str, results: Sequence[Result] = (), settings: Settings | None = None) -> None:
        self.results = MemoryResults()
        self.files = MemoryFiles()
        self.names = engines
        self.settings = settings or Settings()
        super().__init__()
        for result in results:
            self.results.add(result)
        for name in engines:
            port = PORTS[name]
            argv = ("vllm", "serve", "org/model", "--max-num-seqs", "4", "--port", str(port))
            self.docker.add_container(name, ports=(PublishedPort(8000, port),), argv=argv)
        self.api.serve()

    def opened(self) -> Context:
        self.load = FakeLoad(self.clock)
        ports = Ports(
            self.clock, self.docker, self.api, self.host, self.gpu, self.presets, self.secrets, self.archive,
            load=self.load, results=self.results, user_files=self.files, state=self.state,
        )  # fmt: skip
        return Context(self.settings, ports, HostPaths("/store", "/caches", "/home/test"))


@asynccontextmanager
async def looking(
    kit: BenchKit, size: tuple[int, int] = (120, 36), glyphs: Glyphs = UNICODE
) -> AsyncIterator[tuple[Sight, BenchScreen]]:
    """The app, opened on the Bench screen."""
    app = opened_on("bench")(kit.context, glyphs)
    async with app.run_test(size=size, notifications=True) as pilot:
        sight = Sight(kit, app, pilot)
        await sight.until(lambda: bool(app.selected) or not kit.names)
        await sight.until(lambda: isinstance(app.screen, BenchScreen) and bool(app.screen.query(RowList)))
        yield sight, sight.on(BenchScreen)


def run_of(id_: str = "first00001", at: float = EPOCH - 7200, **changes: Any) -> BenchRun:
    given = {
        "host": HostFigures(60, 61 * GIB, 44 * GIB, 63.0, 71.0, 66, 2390.0, 2250, 96.0, 0.41),
        "seconds": 92.0,
    } | changes
    conditions = replace(SPARK, driver="580.142", flags=("--max-num-seqs 4",), image_digest="sha256:abc")
    return a_run(id_, *SWEEP, at=at, **{"conditions": conditions, **given})


def notices(sight: Sight) -> str:
    """All notices."""
    return "\n".join(notice.message for notice in sight.app._notifications)


async def quick(sight: Sight, **values: str) -> BenchForm:
    """The form, opened and filled."""
    await sight.until(lambda: bool(serving(sight.on(BenchScreen).world.known(ENGINES))))
    await sight.press("b")
    await sight.until(lambda: isinstance(sight.app.screen, BenchForm) and bool(sight.app.screen.query("#preview")))
    form: BenchForm = sight.on(BenchForm)
    for row in form.fields:
        row.input.value = values.get(row.field.key, row.input.value)
    await sight.pilot.pause()
    return form


OTHER = replace(PRESET, name="other", defaults=(("port", 8005), ("max_model_len", 2048)))
QUICK = {"input_tokens": "32", "output_tokens": "8", "concurrency": "1,2", "passes": "2", "rounds": "1"}


# --- nothing there ------------------------------------------------------------------------------------


async def test_an_empty_list_says_what_to_do() -> None:
    async with looking(BenchKit("qwen")) as (sight, screen):
        await sight.until_seen("No runs yet", "benchmark of qwen", "[7 Bench]")
        for key, words in (
            ("c", "No measurement is under way"),
            ("space", "Choose a run first"),
            ("y", "Nothing to copy here"),
            ("W", "nothing to export"),
        ):
            await sight.press(key)
            assert words in notices(sight)
        await sight.press("delete", "right", "left", "x", "G", "pagedown")
        assert sight.app.screen is screen
        await sight.press("enter")
        await sight.until(lambda: isinstance(sight.app.screen, BenchForm))
        await sight.press("escape", "escape")
        await sight.until_seen("[1 Home]")


async def test_without_an_engine_it_says_so_and_how_to_get_one() -> None:
    async with looking(BenchKit()) as (sight, _):
        await sight.until_seen("No runs yet", "No engine is serving")
        await sight.press("b")
        assert not isinstance(sight.app.screen, BenchForm)
        assert "No engine is serving" in notices(sight)


async def test_read_only_measures_and_deletes_nothing() -> None:
    kit = BenchKit("qwen", results=(result_of(run_of()),), settings=Settings(read_only=True))
    async with looking(kit) as (sight, screen):
        await sight.until(lambda: bool(screen.rows.key))
        assert "Measure" not in sight.text.splitlines()[-1]
        await sight.press("b", "delete", "y")
        assert not isinstance(sight.app.screen, BenchForm)
        assert len(kit.results.all()) == 1


# --- the form -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES[:2], ids=["80x24", "120x36"])
async def test_the_form_shows_the_load_and_how_long_it_takes(size: tuple[int, int]) -> None:
    kit = BenchKit("qwen")
    async with looking(kit, size) as (sight, _):
        await quick(sight, input_tokens="512", output_tokens="64", concurrency="1,2,8")
        await sight.until_seen("66 requests", "unknown until first run", "576 tokens of the context's 4,096")
        assert sight.on(BenchForm).problem is None
        await sight.press("escape")
        kit.results.add(result_of(run_of(conditions=replace(SPARK, model="org/model"))))
        await sight.press("1", "7")
        await quick(sight, concurrency="1,2,4,8", rounds="1", passes="1")
        await sight.until_seen("about", "judged by the run of 2h")


REFUSED = (
    ("engine", "nobody", "No engine of that name serves"),
    ("other", "qwen", "That is the engine itself"),
    ("other", "no-such-preset", "cannot be restarted"),
    ("input_tokens", "many", "Not a whole number"),
    ("input_tokens", "²", "Not a whole number"),
    ("input_tokens", "5,000", "context 4,096"),
    ("output_tokens", "1", "at least 2 tokens"),
    ("concurrency", "1;2", "Not a list of whole numbers"),
    ("concurrency", "2 2", "given twice"),
    ("concurrency", "none", "nothing to measure"),
    ("concurrency", "4096", "1 to 1,024"),
    ("passes", "0", "1 to 100"),
    ("content", "poems", "random or prose"),
)


async def test_what_would_be_refused_is_shown_in_the_form() -> None:
    kit = BenchKit("qwen")
    async with looking(kit) as (sight, _):
        form = await quick(sight)
        for key, text, words in REFUSED:
            row = next(row for row in form.fields if row.field.key == key)
            before, row.input.value = row.input.value, text
            await sight.pilot.pause()
            assert words in str(form.problem), (key, text)
            assert "--" not in str(form.problem)
            shown = " ".join(sight.text.split())
            assert all(word in shown for word in words.split()), sight.text
            await sight.press("ctrl+l")
            assert sight.app.screen is form
            row.input.value = before
        assert not kit.load.loads


# --- measure ------------------------------------------------------------------------------------------


async def test_a_measurement_is_followed_and_kept_also_behind_another_screen() -> None:
    kit = BenchKit("qwen")
    async with looking(kit) as (sight, screen):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK)
        await sight.press("ctrl+l")
        await sight.until_seen("measuring", "pass 1", "of 4")
        await sight.press("b")
        assert "under way" in notices(sight)
        await sight.press("1")
        await sight.until(lambda: bool(kit.results.all()))
        await sight.until(lambda: "qwen: 1 stream decodes 50.0 tok/s" in notices(sight))
        await sight.press("7")
        await sight.until_seen("done", "1 stream decodes 50.0 tok/s", "streams", "TTFT")
        (kept,) = kit.results.all()
        assert screen.rows.key == kept.id
        assert not screen.measuring
        assert kept.run is not None
        assert kept.run.plan.concurrency == (1, 2)


async def test_cancel_keeps_what_was_measured() -> None:
    kit = BenchKit("qwen")
    async with looking(kit) as (sight, _):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK)
        await sight.press("ctrl+l")
        await sight.until_seen("1 of 4")
        await sight.press("c")
        assert "Stopping" in sight.text
        await sight.until_seen("cancelled", "stopped before its end")
        (kept,) = kit.results.all()
        assert kept.run is not None
        assert kept.run.ending is RunOutcome.CANCELLED
        assert kept.status is Status.BENCHMARKED


async def test_a_stop_of_an_engine_that_is_measured_asks_and_ends_the_measurement_first() -> None:
    kit = BenchKit("qwen")
    async with looking(kit) as (sight, _):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK)
        await sight.press("ctrl+l")
        await sight.until_seen("1 of 4")
        await sight.press("1", "x")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        await sight.press(*"qwen", "enter")  # spark-tui did not start it
        await sight.until_seen("during the benchmark of qwen, ")
        await sight.press("y")
        await sight.until(lambda: bool(kit.docker.asked("stop")))
        (kept,) = kit.results.all()
        assert kept.run is not None
        assert kept.run.ending is RunOutcome.CANCELLED


async def test_leaving_the_program_by_its_key_asks_and_awaits_the_end_of_a_measurement() -> None:
    kit = BenchKit("qwen")
    async with looking(kit) as (sight, screen):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK)
        await sight.press("ctrl+l")
        await sight.until_seen("1 of 4")
        await sight.press("q")
        await sight.until_seen("Quit during the benchmark of qwen, ", "Results so far are kept.")
        await sight.press("n")
        assert screen.measuring
        await sight.press("q")
        await sight.until_seen("Quit during the benchmark of qwen, ")
        await sight.press("y")
        await sight.until(lambda: not sight.app.is_running)
    (kept,) = kit.results.all()
    assert kept.run is not None
    assert kept.run.ending is RunOutcome.CANCELLED


async def test_leaving_the_program_in_an_ab_brings_the_engine_back_first() -> None:
    kit = BenchKit()
    async with looking(kit) as (sight, _):
        await launched(kit, sight)
        await quick(sight, **QUICK, other="max_model_len=8192")
        await sight.press("ctrl+l", "y")
        await sight.until(lambda: "8192" in " ".join(kit.docker.named("qwen").argv))  # type: ignore[union-attr]
        await sight.press("q")
        await sight.until_seen("Quit during the A/B of qwen", "qwen is started again")
        await sight.press("y")
        await sight.until(lambda: not sight.app.is_running)
        facts = kit.docker.named("qwen")
        assert facts is not None
        assert "4096" in " ".join(facts.argv)
        assert facts.running


async def test_a_launch_beside_a_measurement_asks_and_ends_it_first() -> None:
    kit = BenchKit("qwen")
    async with looking(kit) as (sight, screen):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK)
        await sight.press("ctrl+l")
        await sight.until_seen("1 of 4")
        form = LaunchForm(kit.context, OTHER)
        sight.app.push_screen(form)
        for answer, jobs in (("n", 0), ("y", 1)):
            await sight.until(lambda: sight.app.screen is form and bool(form.query("#preview")))
            await sight.press("ctrl+l")
            await sight.until_seen("Launch other during the benchmark of qwen, ")
            assert not sight.app.world.jobs
            await sight.press(answer)
            await sight.until(lambda wanted=jobs: len(sight.app.world.jobs) == wanted)  # type: ignore[misc]
        assert not screen.measuring
        (kept,) = kit.results.all()
        assert kept.run is not None
        assert kept.run.ending is RunOutcome.CANCELLED


async def test_a_restart_beside_a_measurement_of_another_program_asks() -> None:
    kit = BenchKit("qwen")
    assert kit.state.claim("bench-gemma")
    async with looking(kit) as (sight, _):
        await sight.press("1", "r")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        await sight.press(*"qwen", "enter")  # spark-tui did not start it
        await sight.until_seen("Restart qwen during the measurement of gemma?")
        await sight.press("n")
        assert not kit.docker.asked("restart")


async def test_leaving_the_program_keeps_what_was_measured() -> None:
    kit = BenchKit("qwen")
    async with looking(kit) as (sight, _):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK)
        await sight.press("ctrl+l")
        await sight.until_seen("1 of 4")
        kit.clock.sleep = _at_once  # type: ignore[method-assign]
        sight.app.exit()
        await kit.clock.advance(2.0)
    (kept,) = kit.results.all()
    assert kept.run is not None
    assert kept.run.ending is RunOutcome.CANCELLED


async def _at_once(seconds: float) -> None:
    """Time does not pass while the program ends."""


async def test_short_and_failed_requests_stand_in_the_table() -> None:
    kit = BenchKit("qwen")
    kit.load.spoil = {2: {"completion_tokens": 3}, 1: {"error": f"HTTP 500: {MARKUP} {ESCAPE}"}}
    async with looking(kit, (200, 50)) as (sight, _):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK, depths="64")
        await sight.press("ctrl+l")
        await sight.until(lambda: "no request completed" in notices(sight))  # a notice goes after some seconds
        await sight.until(lambda: bool(kit.results.all()))
        await sight.until_seen("failed", "short", "not markup", "broke off", "ended early")
        assert "\x1b" not in sight.text


async def test_an_engine_that_cannot_be_asked_is_told_and_nothing_is_kept() -> None:
    kit = BenchKit("qwen")
    kit.load.broken = EngineUnreachable("Nothing answers at 8000.", "Is it running?")
    async with looking(kit) as (sight, screen):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK)
        await sight.press("ctrl+l")
        await sight.until(lambda: "Nothing answers at 8000." in notices(sight))
        assert not screen.measuring
        assert not kit.results.all()
        await sight.until_seen("No runs yet")


async def test_an_engine_that_ends_voids_its_measurement_and_runs_again() -> None:
    kit = BenchKit("qwen")
    async with looking(kit) as (sight, bench):
        await sight.until_seen("benchmark of qwen")
        await quick(sight, **QUICK)
        await sight.press("ctrl+l")
        await sight.until_seen("1 of 4")
        kit.docker.end("qwen", 137)
        await sight.until(lambda: not bench.measuring)
        assert kit.results.all() == ()
        [event] = [each for each in sight.kit.context.store.world.events if each.kind is EventKind.BENCH]
        assert (event.severity, "void" in event.text.lower()) == (Severity.ERROR, True)
        assert event.text in notices(sight)
        now = kit.docker.named("qwen")
        assert now is not None and now.running


async def test_two_engines_are_measured_in_turn_and_stand_side_by_side() -> None:
    kit = BenchKit("qwen", "other")
    async with looking(kit) as (sight, screen):
        await sight.until(lambda: len(screen.world.known(ENGINES)) == 2)
        await quick(sight, **QUICK, engine="qwen", other="other")
        await sight.press("ctrl+l")
        await sight.until_seen("measuring", "waits")
        await sight.until(lambda: len(kit.results.all()) == 2)
        await sight.until_seen("done")
        await sight.until_seen("Alternated pass by pass", "1 stream", "B/A")


async def launched(kit: BenchKit, sight: Sight) -> None:
    """An engine that was launched from a preset, and can be again."""
    task = asyncio.create_task(kit.context[Launcher].launch(LaunchRequest(PRESET, Overrides()), kit.report))
    await sight.until(task.done)
    task.result()


async def test_a_change_is_measured_in_turn_with_the_engine_as_it_is() -> None:
    kit = BenchKit()
    async with looking(kit) as (sight, screen):
        await launched(kit, sight)
        await quick(sight, **QUICK, other="max_model_len=8192")
        await sight.until_seen("max_model_len=8192", "current settings", "2; qwen is unavailable")
        await sight.press("ctrl+l")
        await sight.until_seen("Run an A/B?")
        await sight.press("escape")
        assert not screen.measuring, "nothing is stopped before a person has said yes"
        await quick(sight, **QUICK, other="max_model_len=8192")
        await sight.press("ctrl+l", "y")
        await sight.until(lambda: screen.measuring)
        await sight.until(lambda: len(kit.results.all()) == 2 and not screen.measuring)
        await sight.until_seen(
            "Alternated pass by pass", "--max-model-len: 4096 -> 8192", "none shown", "No significant difference"
        )
        facts = kit.docker.named("qwen")
        assert facts is not None
        assert "4096" in " ".join(facts.argv), "as it was before"


# --- look ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
async def test_a_run_shows_levels_and_curve_with_its_knee(glyphs: Glyphs) -> None:
    async with looking(BenchKit("qwen", results=[result_of(run_of())]), SIZES[0], glyphs) as (sight, screen):
        for size in SIZES:
            await sight.resized(size)
            await sight.until_seen("decode", "TTFT ms", "failed", "Qwen3.6-35B")
            bars = screen.query_one(LevelBars)
            assert bars.display and all(line.cell_length <= bars.size.width for line in bars.render().split("\n"))
            curves = screen.query("#run-page BenchCurve, #list-curve").results(BenchCurve)
            [curve] = [each for each in curves if each.rows and each.size]
            assert all(len(row.text) == curve.size.width for row in curve.rows)
            assert "knee 4" in curve.rows[0].text
            assert re.findall(r"\d+", curve.rows[-1].text) == ["1", "2", "4", "8"]
            assert glyphs is UNICODE or "".join(row.text for row in curve.rows).isascii()
        for _ in range(3):
            await sight.press("right")
        assert sight.on(BenchScreen).query_one(TabbedContent).active == "pair-page"


async def test_pages_show_conditions_and_compare_like_with_like() -> None:
    old = run_of("old0000001", EPOCH - 90000)
    unlike = run_of("unlike0001", EPOCH - 80000, plan=replace(old.plan, output_tokens=999))
    results = [result_of(old), result_of(unlike), result_of(run_of())]
    async with looking(BenchKit("qwen", results=results), (200, 50)) as (sight, _):
        await sight.until_seen("decode")
        await sight.press("right")
        await sight.until_seen("580.142", "--max-num-seqs 4", "sha256:abc", "revision", "unknown", "cold")
        await sight.press("right")
        await sight.until_seen("old0000001", "none shown", "another load", "output tokens: 999", "Published")


async def test_marks_put_two_runs_side_by_side() -> None:
    slower = tuple((streams, tuple(rate / 2 for rate in rates)) for streams, rates in SWEEP)
    runs = [a_run("slow000001", *slower, at=EPOCH - 9000), run_of()]
    async with looking(BenchKit("qwen", results=[result_of(run) for run in runs]), (120, 36)) as (sight, screen):
        await sight.until_seen("decode")
        await sight.press("end", "space", "home", "space")
        await sight.until_seen("B/A", "2.000", "faster", "Not alternated", "driver")
        await sight.press("y", "b")
        assert "slow000001" in sight.app.clipboard
        assert "first00001" in sight.app.clipboard
        await sight.press("space", "space", "space")
        assert screen.marked[-1:] != ()


async def test_a_run_is_deleted_once_that_was_confirmed() -> None:
    older, newer = result_of(run_of("first00001")), result_of(run_of("second0002", at=EPOCH - 60))
    kit = BenchKit("qwen", results=(older, newer))
    async with looking(kit) as (sight, screen):
        await sight.until(lambda: len(screen._results) == 2)
        await sight.press("delete")
        assert "Delete run second0002?" in sight.text
        await sight.press("enter")
        assert len(kit.results.all()) == 2, "Enter alone deletes nothing"
        await sight.press("delete", "y")
        await sight.until(lambda: [each.id for each in screen._results] == ["first00001"])
        assert "Deleted: 1 run." in notices(sight)
        await sight.press("delete", "y")
        await sight.until(lambda: not screen._results)
        await sight.press("delete")
        assert "Choose a run first." in notices(sight)


async def test_verdicts_without_a_measurement_have_their_reason() -> None:
    verdict = Result("bad0000001", EPOCH - 60, Status.FAILED, f"org/{MARKUP}", reason=f"out of memory {ESCAPE}")
    async with looking(BenchKit("qwen", results=[verdict])) as (sight, _):
        await sight.until_seen("failed", "out of memory", "[/red][bold]")
        await sight.press("space")
        assert "Only what was measured" in notices(sight)
        await sight.press("y")
        assert "out of memory" in sight.app.clipboard


async def test_the_filter_takes_several_words() -> None:
    results = [result_of(run_of()), Result("bad0000001", EPOCH - 60, Status.FAILED, "org/gemma", reason="no room")]
    async with looking(BenchKit("qwen", results=results)) as (sight, screen):
        await sight.until_seen("gemma", "Qwen3.6")
        await sight.press("slash")
        await sight.type("gemma fail")
        await sight.until_seen("1 of 2")
        await sight.type("x")
        await sight.until_seen("No matching runs")
        await sight.press("escape")
        assert screen.query_one("#filter", Input).value == ""
        await sight.until_seen("Qwen3.6")


async def test_nothing_is_repainted_when_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with looking(BenchKit("qwen", results=[result_of(run_of())])) as (sight, screen):
        await sight.until_seen("decode")
        painted: list[object] = []
        for widget in screen.query("#detail-pane *"):
            monkeypatch.setattr(widget, "refresh", lambda *args, **_: painted.append(args))
        screen.show_rows()
        screen.show_rows()
        assert not painted


# --- give away ----------------------------------------------------------------------------------------


async def test_a_run_is_written_to_a_file() -> None:
    kit = BenchKit("qwen", results=[result_of(run_of()), result_of(run_of("second0001", EPOCH - 9000))])
    async with looking(kit) as (sight, _):
        await sight.until_seen("decode")
        for name, begins in (("a.md", "# Benchmarks"), ("A.JSON", "[\n")):
            await sight.press("W", "enter")
            await sight.type(name)
            await sight.press("enter")
            await sight.until(lambda name=name: name in kit.files.files)
            text = kit.files.files[name].decode()
            assert text.startswith(begins)
            assert "first00001" in text and "second0001" not in text
            assert f"Written: {name}" in notices(sight)
        await sight.press("W", "enter")
        await sight.type("a.exe")
        await sight.press("enter")
        await sight.until(lambda: ".md or .json" in notices(sight))
        assert len(kit.files.files) == 2


# --- the demo and the picture -------------------------------------------------------------------------


async def test_the_demo_measures_and_says_that_it_is_simulated() -> None:
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        sight = Sight(None, app, pilot)  # type: ignore[arg-type]

        await until(app, lambda: "ready" in sight.text or "busy" in sight.text)
        await pilot.press("7")
        await until(app, lambda: isinstance(app.screen, BenchScreen) and "No runs yet" in sight.text)
        await sight.press("b")
        await until(app, lambda: isinstance(app.screen, BenchForm) and bool(app.screen.query("#preview")))
        for row in sight.on(BenchForm).fields:
            row.input.value = QUICK.get(row.field.key, "")
        await sight.press("ctrl+l")
        await until(app, lambda: "simulated" in sight.text and "done" in sight.text)


@pytest.mark.parametrize("size", SIZES[:2], ids=["80x24", "120x36"])
async def test_layout(size: tuple[int, int], snapshot: Any) -> None:
    from pytest_textual_snapshot import SVGImageExtension

    results = [result_of(run_of("old0000001", EPOCH - 90000)), result_of(run_of())]
    async with looking(BenchKit("qwen", results=results), size) as (sight, _):
        await sight.until_seen("decode", "TTFT", "docker OK", "MEM", "GPU")
        for _ in range(5):  # what is read last
            await sight.kit.clock.advance(1.0)
            await sight.pilot.pause()
        picture = sight.app.export_screenshot(title="bench", simplify=True)
    assert picture == snapshot.use_extension(SVGImageExtension)
