"""The Metrics screen on a whole core of fakes: what a person sees of an engine over time, and what keys do."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from spark_tui.base.actions import key_of
from spark_tui.base.engine.container import PublishedPort
from spark_tui.base.engine.metrics_page import MetricPage, Quantile
from spark_tui.base.engine.state import Endpoint
from spark_tui.base.errors import EngineUnreachable
from spark_tui.base.finding import Missing, value_of
from spark_tui.base.gateway import ClientCosts, GatewayStatus
from spark_tui.base.host.series import Gap, MetricId, SeriesKey, SeriesSlice
from spark_tui.base.untrusted import encode
from spark_tui.observe.explain.feature import ENGINES
from spark_tui.observe.metrics.screen.metrics import Figures, MetricsScreen, SlowPage, big
from spark_tui.observe.metrics.show import metrics as present
from spark_tui.tui.format import ASCII, UNICODE, Glyphs
from spark_tui.tui.widgets.graph import Graph, GraphGrid
from tests.fakes_history import FakeHistory
from tests.fakes_host import EPOCH
from tests.fakes_metrics import FakeMetrics
from tests.kit import Kit
from tests.metric_fixtures import page_of_text
from tests.tui.kit import ESCAPE, MARKUP, SIZES, Sight, opened_on

PORT = (PublishedPort(8000, 8000),)
DEAD = EngineUnreachable("Nothing answers at http://127.0.0.1:8000.", "Is the engine running?")


class BusyServer:
    """A vLLM that answers one request a second, counted by the clock."""

    def __init__(self, kit: Kit) -> None:
        self._clock = kit.clock

    def __call__(self, endpoint: Endpoint) -> MetricPage:
        passed = int(self._clock.monotonic())
        lines = [
            f"generation_tokens_total{{}} {42 * passed}",
            f"prompt_tokens_total{{}} {900 * passed}",
            f"num_requests_running{{}} {passed % 3}",
            "num_requests_waiting{} 0",
            "kv_cache_usage_perc{} 0.95",
            *(
                f'{name}_seconds_bucket{{le="{le}"}} {count}'
                for name in ("time_to_first_token", "inter_token_latency")
                for le, count in (("0.1", 0), ("0.5", passed // 2), ("1.0", passed), ("+Inf", passed))
            ),
            f"time_to_first_token_seconds_sum{{}} {passed * 0.4}",
            f"time_to_first_token_seconds_count{{}} {passed}",
            f"inter_token_latency_seconds_count{{}} {passed}",
        ]
        labels = 'engine="0",model_name="m"'
        text = (line.replace("{}", f"{{{labels}}}").replace("{le", f"{{{labels},le") for line in lines)
        return page_of_text("".join(f"vllm:{line}\n" for line in text))


def busy_kit(name: str = "qwen") -> tuple[Kit, FakeMetrics]:
    kit = Kit()
    source = FakeMetrics(kit.clock, page=BusyServer(kit))
    kit.metrics = source
    kit.context = kit.opened()
    kit.docker.add_container(name, ports=PORT)
    kit.api.serve()
    return kit, source


@asynccontextmanager
async def looking(
    kit: Kit, size: tuple[int, int] = (120, 36), glyphs: Glyphs = UNICODE
) -> AsyncIterator[tuple[Sight, MetricsScreen]]:
    """The app, opened on the Metrics screen."""
    app = opened_on("metrics")(kit.context, glyphs)
    async with app.run_test(size=size, notifications=True) as pilot:
        sight = Sight(kit, app, pilot)
        await sight.until(lambda: bool(app.selected) or value_of(app.world[ENGINES]) == ())
        await sight.until(lambda: isinstance(app.screen, MetricsScreen) and bool(app.screen.query(GraphGrid)))
        yield sight, sight.on(MetricsScreen)


async def drawn(sight: Sight, screen: MetricsScreen) -> list[Graph]:
    """The graphs on this page, each in the room that its layout gave it."""
    await sight.until(lambda: all(graph.rows for graph in screen.query(Graph) if graph.display))
    return [graph for graph in screen.query(Graph) if graph.display]


async def seconds(sight: Sight, count: int) -> None:
    for _ in range(count):
        await sight.kit.clock.advance(1.0)
        await sight.pilot.pause()


# --- what is there ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "graphs"), [((80, 24), 4), ((120, 36), 6), ((200, 50), 7)])
async def test_as_many_graphs_as_fit_and_only_of_what_there_is(size: tuple[int, int], graphs: int) -> None:
    kit, _ = busy_kit()
    async with looking(kit, size) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        shown = await drawn(sight, screen)
        assert len(shown) >= graphs
        for graph in shown:
            assert all(len(row.text) == graph.size.width for row in graph.rows)
        assert len({graph.size.width for graph in shown}) == 1, "one time axis for all"
        for word in ("decode", "TTFT", "requests", "KV cache"):
            assert word in sight.text
        assert "acceptance rate" not in sight.text, "this server does not speculate"


async def test_a_page_of_graphs_follows_the_other() -> None:
    kit, _ = busy_kit()
    async with looking(kit, (80, 24)) as (sight, _):
        await sight.until_seen("TTFT", "page 1/")
        assert "inter-token" not in sight.text
        await sight.press("pagedown")
        assert "page 2/" in sight.text
        assert "inter-token" in sight.text
        await sight.press("up")
        assert "page 1/" in sight.text


async def test_the_last_page_is_as_full_as_the_others() -> None:
    kit, _ = busy_kit()
    async with looking(kit, (80, 24)) as (sight, screen):
        await sight.until_seen("TTFT", "page 1/")
        await sight.press("up")
        assert len([graph for graph in screen.query(Graph) if graph.display]) == 4


@pytest.mark.parametrize(
    ("size", "glyphs", "seen"), [((120, 36), UNICODE, True), ((120, 36), ASCII, False), ((80, 24), UNICODE, False)]
)
async def test_the_main_values_stand_in_large_digits_where_they_can(
    size: tuple[int, int], glyphs: Glyphs, seen: bool
) -> None:
    kit, _ = busy_kit()
    async with looking(kit, size, glyphs) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        row = screen.query_one(Figures)
        assert row.display == seen
        if seen:
            assert [each.number for each in row.figures if each.title == "decode"] == ["42.0"]
            assert [each.note.split()[0] for each in row.figures if each.title == "TTFT"] == ["p95"]
            assert "".join(big("42.0")).split() and sight.text.count(big("42.0")[0]) == 1


async def test_what_another_page_draws_is_beside_the_graphs_in_short() -> None:
    kit, _ = busy_kit()
    async with looking(kit, (140, 36)) as (sight, screen):
        await sight.until_seen("TTFT", "Other graphs")
        heads = [graph.rows[0].text for graph in await drawn(sight, screen)]
        listed = [each.title for each in screen.query_one(SlowPage).others]
        assert listed and listed[0] in sight.text
        assert not any(head.startswith(title) for head in heads for title in listed)


async def test_on_a_low_terminal_the_table_takes_the_place_of_the_graphs_and_tells_what_is_not_drawn() -> None:
    kit, _ = busy_kit()
    async with looking(kit, (80, 24)) as (sight, _):
        await sight.until_seen("TTFT")
        assert "p99" not in sight.text
        await sight.press("t")
        assert "p99" in sight.text
        assert "since start" in sight.text
        assert "not drawn" in sight.text
        assert "page" not in sight.text.splitlines()[4]
        await sight.press("t")
        assert "p99" not in sight.text


@pytest.mark.parametrize(("size", "keys"), [((160, 50), ""), ((80, 24), "t")])
async def test_clients_of_the_gateway_are_shown_with_why_their_prompts_are_read_again(
    size: tuple[int, int], keys: str
) -> None:
    kit, _ = busy_kit()
    hers = ClientCosts("claude-cli", "qwen", "/v1/messages", 9, 9, 90_000, 90_000, 900, 9, 18.0, 8, changed=8)
    status = GatewayStatus("http://x", 0.0, True, clients=(hers, ClientCosts("aider", "another", "", 3)))
    kit.state.claim("gateway")
    kit.state.write("gateway", encode(status).encode())
    async with looking(kit, size) as (sight, _):
        await sight.press(*keys)
        await sight.until(lambda: "claude-cli" in sight.text and "ATTRIBUTION" in sight.text)
        assert "aider" not in sight.text


async def test_ascii_means_ascii() -> None:
    kit, source = busy_kit()
    async with looking(kit, (120, 36), ASCII) as (sight, _):
        await sight.until_seen("TTFT", "p99")
        source.error = DEAD
        await seconds(sight, 5)
        await sight.press("left")
        body = sight.text.splitlines()[4:-1]
        assert all(char < "\x7f" or char in "─" for line in body for char in line), "but for the frame's own rules"


# --- time ---------------------------------------------------------------------------------------------


async def test_a_page_number_is_whole_or_not_there() -> None:
    kit, _ = busy_kit("an-engine-with-a-long-name-of-its-own")
    async with looking(kit, (80, 24)) as (sight, _):
        await sight.until_seen("TTFT", "42.0 tok/s")
        for width in range(80, 120, 5):
            await sight.resized((width, 24))
            await sight.until(lambda: "live" in sight.text)
            assert "…" not in sight.text.splitlines()[3].partition("6 h")[2]


async def test_keys_change_the_window() -> None:
    kit, _ = busy_kit()
    async with looking(kit) as (sight, _):
        await sight.until_seen("[5 m]")
        await sight.press("minus")
        assert "[15 m]" in sight.text
        await sight.press("plus", "plus", "plus", "plus")
        assert "[1 m]" in sight.text


async def test_a_pause_holds_the_picture_and_loses_nothing() -> None:
    kit, source = busy_kit()
    async with looking(kit) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        await drawn(sight, screen)
        assert "p Pause" in sight.text
        await sight.press("p")
        await sight.until_seen("p Resume")
        held = [row.text for graph in screen.query(Graph) for row in graph.rows]
        asked = len(source.asked)
        await seconds(sight, 30)
        assert [row.text for graph in screen.query(Graph) for row in graph.rows] == held
        assert "PAUSED" in sight.text
        assert len(source.asked) > asked, "measuring goes on"
        await sight.press("p")
        assert [row.text for graph in screen.query(Graph) for row in graph.rows] != held
        assert "live" in sight.text and "p Pause" in sight.text


async def test_the_cursor_reads_all_graphs_at_one_time_and_goes_back_to_now() -> None:
    kit, _ = busy_kit()
    async with looking(kit) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        await seconds(sight, 30)
        await sight.press("left", "left", "left")
        assert " at " in sight.text
        assert "ago" in sight.text
        shown = [graph for graph in screen.query(Graph) if graph.display]
        assert len(shown) >= 6
        assert all(graph.picture.cursor_at is not None for graph in shown)
        assert len({graph.picture.cursor_at for graph in shown}) == 1, "one cursor through all of them"
        await sight.press("right", "right", "right", "right")
        assert all(graph.picture.cursor_at is None for graph in shown)
        await sight.press("shift+left", "escape")
        assert all(graph.picture.cursor_at is None for graph in shown)
        assert isinstance(sight.app.screen, MetricsScreen)
        await sight.press("escape")
        await sight.until(lambda: not isinstance(sight.app.screen, MetricsScreen))


async def test_y_copies_every_value_by_its_name() -> None:
    kit, _ = busy_kit()
    async with looking(kit) as (sight, _):
        await sight.until_seen("TTFT", "42.0 tok/s")
        await sight.press("y")
        first, *lines = sight.app.clipboard.splitlines()
        assert first.startswith("# qwen 20")
        values = dict(line.split("\t") for line in lines)
        assert float(values[MetricId.DECODE_RATE]) == pytest.approx(42.0)
        assert "kv_usage_percent" in values
        assert MetricId.ACCEPTANCE not in values


# --- what goes wrong ----------------------------------------------------------------------------------


async def test_a_gap_is_a_gap_with_its_reason_in_words() -> None:
    kit, source = busy_kit()
    async with looking(kit) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        await seconds(sight, 10)
        source.error = DEAD
        await seconds(sight, 8)
        assert "No response: Nothing answers at http://127.0.0.1:8000." in sight.text
        graph = screen.query(Graph).first()
        assert graph.rows[0].text.startswith("decode  - "), "unknown is not the last value"
        source.error = None
        await sight.until(lambda: "no values at" in sight.text)
        lowest = [each for each in screen.query(Graph) if each.display][-1]
        assert "×" in lowest.rows[-1].text, "one time axis for all"
        assert "Nothing answers" in sight.text


async def test_the_table_is_whole_after_the_window_has_grown() -> None:
    kit, _ = busy_kit()
    async with looking(kit, (80, 24)) as (sight, _):
        await sight.until_seen("TTFT", "42.0 tok/s")
        for size in ((300, 80), (80, 24), (200, 50), (120, 36)):
            await sight.pilot.resize_terminal(*size)
            await sight.pilot.pause()
            if size[1] > 30:
                await sight.until(lambda: all(f"\n {word}" in sight.text for word in ("inter-token", "end to end")))


async def test_without_an_engine_the_box_is_drawn_and_words_say_what_to_do() -> None:
    async with looking(Kit()) as (sight, screen):
        await sight.until_seen("memory", "No engine selected", "3 presets")
        assert "decode" not in sight.text
        await sight.until(lambda: screen.query(Graph).first().size.width > 100)  # the only graph has all the room


async def test_engines_that_cannot_be_listed_are_not_said_to_be_none() -> None:
    kit = Kit()
    kit.docker.go_down()
    app = opened_on("metrics")(kit.context, UNICODE)
    async with app.run_test(size=SIZES[0], notifications=True) as pilot:
        sight = Sight(kit, app, pilot)
        await sight.until_seen("Cannot list engines.", f"{key_of('show_home')} Home: cause and fix")
        assert "No engine" not in sight.text and "no engine" not in sight.text


async def test_the_footer_names_no_key_of_graphs_that_are_not_there() -> None:
    acts = {"cursor_back", "pause_metrics", "next_graphs", "yank"}
    kit, _ = busy_kit()
    async with looking(kit, (80, 24)) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        assert all(map(screen.offers, acts))
        await sight.resized((300, 80))
        await sight.until(lambda: not screen.offers("next_graphs"))  # all of them on one page
    kit = Kit()
    kit.host.memory_value = kit.host.pressure_value = Missing("no such file")
    async with looking(kit) as (sight, screen):
        await sight.until_seen("No values yet.", "No engine selected.")
        assert not any(map(screen.offers, acts))
        assert sight.text.count("running engines") == 1


async def test_an_engine_without_metrics_says_why() -> None:
    kit, source = busy_kit()
    source.error = DEAD
    async with looking(kit) as (sight, _):
        await sight.until_seen("qwen has no metrics: Nothing answers")


async def test_names_from_outside_are_text() -> None:
    kit, source = busy_kit(MARKUP)
    source.error = EngineUnreachable(f"{ESCAPE} {MARKUP}", "")
    async with looking(kit, (200, 50)) as (sight, _):
        await sight.until_seen("has no metrics")
        assert "not markup" in sight.text
        assert "\x1b" not in sight.text


# --- history ------------------------------------------------------------------------------------------


async def test_what_was_measured_before_the_program_was_opened_is_drawn_too() -> None:
    kit, _ = busy_kit()
    history = FakeHistory()
    key = SeriesKey("qwen", MetricId.DECODE_RATE.value)
    times = tuple(EPOCH - 3000 + 10 * n for n in range(290))
    half = [30.0] * 290
    history.stretches[key] = SeriesSlice(
        key, 10.0, times, [10.0] * 290, half, [50.0] * 290, (Gap(EPOCH - 1500, EPOCH - 1400, "it was restarted"),)
    )
    kit.history = history
    kit.context = kit.opened()
    async with looking(kit) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        await sight.press("minus", "minus")
        assert "[1 h]" in sight.text

        def drawn_from_the_history() -> bool:
            rows = screen.query(Graph).first().rows
            return any(row.text.endswith("50.0") for row in rows) and any(row.text[20:40].strip() for row in rows[1:-1])

        await sight.until(drawn_from_the_history)
        head = screen.query(Graph).first().rows[0].text
        least, *_, most = (float(word) for word in head.split("tok/s")[1].split() if word[0].isdigit())
        assert (least, most) == (10.0, 50.0), f"extremes come from the history: {head}"
        assert "it was restarted" in sight.text


# --- cost ---------------------------------------------------------------------------------------------


async def test_a_hidden_screen_neither_looks_nor_draws() -> None:
    kit, source = busy_kit()
    async with looking(kit) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        await sight.press("1")
        await sight.until(lambda: not isinstance(sight.app.screen, MetricsScreen))
        await seconds(sight, 2)
        before, asked = [graph.picture for graph in screen.query(Graph)], len(source.asked)
        await seconds(sight, 20)
        assert all(now is was for now, was in zip((g.picture for g in screen.query(Graph)), before, strict=True))
        assert len(source.asked) - asked <= 6
        await sight.press("5")
        await seconds(sight, 10)
        assert len(source.asked) - asked >= 10


async def test_it_can_be_resized_at_any_time() -> None:
    kit, _ = busy_kit()
    async with looking(kit) as (sight, screen):
        await sight.until_seen("TTFT", "42.0 tok/s")
        await sight.press("left")
        for size in SIZES:
            await sight.resized(size)
            await seconds(sight, 2)
            shown = [graph for graph in screen.query(Graph) if graph.display]
            assert all(len(row.text) == graph.size.width for graph in shown for row in graph.rows)
            assert "decode" in sight.text


# --- words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantile", "text"),
    [
        (Quantile(0.320, 0.25, 0.5), "320 ±180 ms"),
        (Quantile(1.83, 1.0, 2.5), "1.83 s ±830 ms"),
        (Quantile(80.0, 80.0, math.inf), "over 80 s"),
    ],
)
def test_a_quantile_tells_how_far_off_it_can_be(quantile: Quantile, text: str) -> None:
    assert present.quantile_text(quantile) == text


def test_memory_is_drawn_to_the_whole_pool_with_an_alarm_at_the_guards_floor() -> None:
    panels = present.panels_with(121 * 2**30, 3 * 2**30)
    memory = next(panel for panel in panels if panel.title == "memory")
    assert memory.domain == (0.0, 121.0)
    assert memory.alarm == 118.0


def test_every_series_has_its_graph() -> None:
    drawn = {metric for panel in present.PANELS for metric in panel.metrics}
    in_the_table = {metric for metric in MetricId if metric.value.rpartition("_")[0].endswith("p99")}
    of_nodes = {MetricId.LINK_RATE}
    assert set(MetricId) - drawn - in_the_table - of_nodes == {MetricId.MEMORY_AVAILABLE}
