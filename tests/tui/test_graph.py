"""Graphs: extremes are seen, holes are holes, nothing leaves the box, and a new sample touches few cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.geometry import Region

from spark_tui.base.graph import WINDOWS, Bucket, Curve, Scale
from spark_tui.base.host.series import Gap, MetricId, SeriesView
from spark_tui.tui.format import ASCII, CONSOLE, UNICODE, Glyphs
from spark_tui.tui.themes import SPARK_DARK, SPARK_LIGHT
from spark_tui.tui.widgets.graph import Graph, carried_pens, sparkline
from spark_tui.tui.widgets.graph_picture import (
    MARGIN,
    MARKS,
    Canvas,
    CellKind,
    GraphKind,
    GraphView,
    PenRow,
    Picture,
    Subject,
    draw_curves,
    kind_for,
    picture_of,
    row_of,
)

NOW = 1_763_733_000.0
NAN = math.nan
DECODE = Subject("decode", "tok/s")
SCALE = Scale(0.0, 100.0, 25.0)

kinds = st.sampled_from(GraphKind)
extremes_of_columns = st.lists(st.none() | st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=20)
anything = st.floats(allow_nan=True, allow_infinity=True)


def steady(value: float, *, metric: MetricId = MetricId.DECODE_RATE, seconds: int = 400) -> SeriesView:
    return series([value] * seconds, metric=metric)


def series(
    values: Sequence[float], *, metric: MetricId = MetricId.DECODE_RATE, end: float = NOW, gaps: tuple[Gap, ...] = ()
) -> SeriesView:
    """One value a second, the last one at `end`."""
    return SeriesView(metric, tuple(end - len(values) + 1 + n for n in range(len(values))), tuple(values), gaps)


def picture(*curves: Curve, kind: GraphKind = GraphKind.FILLED, view: GraphView | None = None,
            subject: Subject = DECODE, width: int = 80, height: int = 8) -> Picture:  # fmt: skip
    return picture_of(subject, curves, view or GraphView(NOW, 60), kind, width, height, Picture())


def plot(shown: Picture) -> list[str]:
    """The curves alone."""
    return [row.text[MARGIN:] for row in shown.rows[1:-1]]


def bar(low: float, high: float | None = None) -> Bucket:
    top = low if high is None else high
    return Bucket(low, top, top, top, 1, True)


# --- curves -----------------------------------------------------------------------------------------------


@given(kinds, st.integers(1, 12), extremes_of_columns, st.booleans())
def test_least_and_greatest_are_seen_and_a_hole_is_empty(
    kind: GraphKind, rows: int, extremes: list[tuple[float, float] | None], second: bool
) -> None:
    parts = [None if pair is None else bar(min(pair), max(pair)) for pair in extremes for _ in range(2)]
    canvas = Canvas(len(extremes), rows)
    draw_curves(canvas, kind, [[None] * len(parts), parts] if second else [parts], SCALE)
    for x, pair in enumerate(extremes):
        drawn = [y for y in range(rows) if canvas.get(x, y)[0] != " "]
        assert bool(drawn) == (pair is not None)
        if pair is not None:
            top, foot = row_of(SCALE, max(pair), rows), row_of(SCALE, min(pair), rows)
            if second:  # a jump is joined to the column before
                assert all(any(abs(y - end) <= 1 for y in drawn) for end in (top, foot))
            else:
                assert {top, foot} <= set(drawn)
                assert top == drawn[0]


@pytest.mark.parametrize("kind", list(GraphKind))
def test_zero_is_drawn_and_unknown_is_not(kind: GraphKind) -> None:
    shown = plot(picture(Curve("", series([0.0] * 30 + [NAN] * 30)), kind=kind, height=8))
    foot = shown[-1]
    assert foot[10:36].strip(" ") == foot[10:36]
    assert not foot[40:].strip()


@pytest.mark.parametrize("kind", list(GraphKind))
def test_a_short_gap_is_marked_on_the_time_axis_even_where_it_is_too_narrow_to_be_seen(kind: GraphKind) -> None:
    values = [40.0] * 3600
    values[1800] = NAN
    gap = Gap(NOW - 1800, NOW - 1799, "connection refused")
    shown = picture(Curve("", series(values, gaps=(gap,))), kind=kind, view=GraphView(NOW, 3600))
    assert shown.rows[-1].text.count(MARKS[kind].gap) == 1


@pytest.mark.parametrize("kind", list(GraphKind))
def test_two_curves_differ_without_colour(kind: GraphKind) -> None:
    shown = picture(Curve("p50", steady(20.0)), Curve("p95", steady(60.0)), kind=kind, height=12)
    per_pen = {
        pen: {
            char
            for row in shown.rows[1:-1]
            for char, own in zip(row.text[MARGIN:], row.pens[MARGIN:], strict=True)
            if own == pen
        }
        for pen in (CellKind.FIRST, CellKind.SECOND)
    }
    assert per_pen[CellKind.FIRST] and per_pen[CellKind.SECOND]
    assert per_pen[CellKind.FIRST].isdisjoint(per_pen[CellKind.SECOND])
    assert len(set(MARKS[kind].swatches)) == 2


def test_a_smaller_curve_within_a_larger_one_hides_none_of_its_height() -> None:
    def tops(second: float) -> list[str]:
        canvas = Canvas(10, 3)
        draw_curves(canvas, GraphKind.FILLED, [[bar(69)] * 20, [bar(second)] * 20], SCALE)
        return [row.text for row in canvas.lines()]

    alone = Canvas(10, 3)
    draw_curves(alone, GraphKind.FILLED, [[bar(69)] * 20], SCALE)
    [top, *_] = [row.text for row in alone.lines() if row.text.strip()]
    assert top in tops(30), "the row of its top is as it would be alone"
    assert tops(30) != [row.text for row in alone.lines()], "and the smaller one is seen without colour"
    assert tops(0) == [row.text for row in alone.lines()]


def test_the_second_curve_above_the_first_has_a_band_below_it() -> None:
    shown = picture(Curve("p50", steady(20.0)), Curve("p95", steady(60.0)), kind=GraphKind.FILLED, height=12)
    column = [row.pens[MARGIN + 30] for row in shown.rows[1:-1]]
    pens = [pen for pen in column if pen != CellKind.NOTHING]
    assert pens == sorted(pens, reverse=True), "the second one above, the first one below"
    assert pens.count(CellKind.SECOND) > 1
    below = picture(Curve("used", steady(60.0)), Curve("engines", steady(20.0)), kind=GraphKind.FILLED, height=12)
    assert [row.pens[MARGIN + 30] for row in below.rows[1:-1]].count(CellKind.SECOND) == 1


@given(
    kinds,
    st.integers(0, 90),
    st.integers(0, 20),
    st.sampled_from(WINDOWS),
    st.lists(st.tuples(st.floats(0.1, 500), anything), max_size=40),
    st.lists(st.tuples(st.floats(0.1, 500), anything), max_size=40),
    st.sampled_from([DECODE, Subject("KV", "%", (0.0, 100.0), alarm=90.0), Subject("TTFT", "s"), Subject("q", "req")]),
    st.none() | st.floats(-4e5, 100),
)
def test_whatever_the_numbers_the_picture_is_a_full_box(
    kind: GraphKind,
    width: int,
    height: int,
    window: int,
    one: list[tuple[float, float]],
    other: list[tuple[float, float]],
    subject: Subject,
    cursor: float | None,
) -> None:
    curves = []
    for name, samples in (("a", one), ("b", other)):
        times, time = [], NOW - sum(step for step, _ in samples)
        for step, _ in samples:
            time += step
            times.append(time)
        values = tuple(value for _, value in samples)
        curves.append(Curve(name, SeriesView(MetricId.DECODE_RATE, tuple(times), values, (Gap(NOW - 9, NOW, "x"),))))
    view = GraphView(NOW, window, None if cursor is None else NOW + cursor)
    shown = picture(*curves, kind=kind, view=view, subject=subject, width=width, height=height)
    assert len(shown.rows) in (0, height)
    for row in shown.rows:
        assert len(row.text) == len(row.pens) == width
        assert set(row.pens) <= {pen.value for pen in CellKind}
        assert len(carried_pens(row)) == width
    assert shown.cursor_at is None or MARGIN <= shown.cursor_at < width


def test_a_console_gets_only_what_every_font_has() -> None:
    allowed = {chr(code) for code in range(32, 127)}
    curves = (Curve("a", series([math.sin(n) * 40 + 50 for n in range(60)])), Curve("b", steady(70)))
    gap = (Gap(NOW - 20, NOW - 15, "x"),)
    for curve in (curves, (Curve("", series([1.0, NAN] * 30, gaps=gap)),)):
        shown = picture(
            *curve,
            kind=kind_for(CONSOLE),
            view=GraphView(NOW, 60, NOW - 30),
            subject=Subject("x", "%", (0.0, 100.0), alarm=90.0),
        )
        assert shown.cursor_at is not None
        assert set("".join(row.text for row in shown.rows)) <= allowed


def test_every_terminal_gets_the_best_that_it_can_show() -> None:
    kinds = [kind_for(glyphs) for glyphs in (UNICODE, CONSOLE, ASCII)]
    assert kinds == [GraphKind.FILLED, GraphKind.ASCII, GraphKind.ASCII]


# --- words ------------------------------------------------------------------------------------------------


def test_the_headline_tells_now_and_the_range() -> None:
    head = picture(Curve("", series([10.0] * 30 + [40.0] * 30))).rows[0].text
    assert head.startswith("decode  40.0 tok/s")
    assert head.rstrip().endswith("max 40.0")
    assert "min 10.0  avg " in head


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (90, "╌╌ warns at 90 %   min 10.0  avg"),
        (56, "╌╌ warns at 90 %   10.0 / "),
        (48, "╌╌ 90   10.0 / "),
        (36, "╌╌ warns at 90 %"),
    ],
)
def test_a_line_across_the_picture_has_a_word(width: int, told: str) -> None:
    subject = Subject("KV cache", "%", (0.0, 100.0), alarm=90.0)
    curve = Curve("", series([10.0] * 60))
    head = picture_of(subject, (curve,), GraphView(NOW, 60), GraphKind.FILLED, width, 8, Picture()).rows[0]
    assert told in head.text
    assert len(head.text) == len(head.pens) == width


def test_the_cursor_leaves_the_time_on_which_it_stands_readable() -> None:
    curve = Curve("", series([10.0] * 60))
    plain = picture(curve).rows[-1].text
    seen = 0
    for back in range(60):
        found = picture(curve, view=GraphView(NOW, 60, NOW - back))
        if found.cursor_at is not None:
            below = plain[found.cursor_at]
            assert found.rows[-1].text[found.cursor_at] == (below if below.isdigit() or below == ":" else "▲")
            seen += below.isdigit()
    assert seen, "some time was under the cursor"


def test_a_line_that_is_not_drawn_has_no_word() -> None:
    subject = Subject("memory", "GiB", alarm=90.0)
    head = picture_of(subject, (Curve("", series([1.0] * 60)),), GraphView(NOW, 60), GraphKind.FILLED, 90, 8, Picture())
    assert "warns" not in head.rows[0].text


def test_the_headline_tells_the_values_under_the_cursor() -> None:
    curve = Curve("", series([10.0] * 30 + [40.0] * 30))
    assert "10.0 tok/s" in picture(curve, view=GraphView(NOW, 60, NOW - 45)).rows[0].text
    assert picture(curve, view=GraphView(NOW, 60, NOW - 3000)).rows[0].text.startswith("decode  40.0 tok/s")


def test_what_is_not_known_now_is_not_the_last_value() -> None:
    head = picture(Curve("", series([40.0] * 30 + [NAN] * 5))).rows[0].text
    assert head.startswith("decode  - ")


def test_an_alarming_value_has_a_mark_and_not_only_a_colour() -> None:
    subject = Subject("KV cache", "%", (0.0, 100.0), alarm=90.0)
    assert "95.0 %!" in picture(Curve("", steady(95.0)), subject=subject).rows[0].text
    assert "!" not in picture(Curve("", steady(50.0)), subject=subject).rows[0].text
    low = Subject("available", "GiB", alarm=3.0, alarm_below=True)
    assert "2.0 GiB!" in picture(Curve("", steady(2.0)), subject=low).rows[0].text


def test_the_axis_labels_tell_foot_and_top() -> None:
    rows = [row.text[:MARGIN] for row in picture(Curve("", steady(46.0)), height=9).rows]
    assert [row.strip("┤ ") for row in rows if row.endswith("┤")] == ["60", "40", "20", "0"]


def test_an_axis_is_the_same_whatever_was_drawn_before() -> None:
    """Taller, or before the top was known."""
    curve, view = Curve("used", steady(69.2)), GraphView(NOW, 60)
    memory = Subject("memory", "GiB", (0.0, 121.6))
    for before in (picture(curve, subject=memory, height=16), picture(curve, subject=Subject("memory", "GiB"))):
        shown = picture_of(memory, (curve,), view, GraphKind.FILLED, 80, 8, before)
        assert shown == picture(curve, subject=memory, view=view)


def test_too_small_a_box_stays_empty_and_a_low_one_has_no_time_axis() -> None:
    curve = Curve("", steady(40.0))
    assert picture(curve, width=10).rows == ()
    assert picture(curve, height=2).rows == ()
    assert "└" not in "".join(row.text for row in picture(curve, height=4).rows)


# --- repaint ----------------------------------------------------------------------------------------------


class GraphApp(App[None]):
    """One graph."""

    def __init__(self, glyphs: Glyphs = UNICODE) -> None:
        super().__init__()
        for theme in (SPARK_DARK, SPARK_LIGHT):
            self.register_theme(theme)
        self.theme = SPARK_DARK.name
        self._glyphs = glyphs
        self.read: dict[MetricId, SeriesView] = {}

    def compose(self) -> ComposeResult:
        yield Graph(self._glyphs)


def watched(graph: Graph) -> list[Region]:
    """The regions that are repainted from now on."""
    seen: list[Region] = []
    refresh = graph.refresh

    def record(*regions: Region, **more):
        seen.extend(regions or (Region(0, 0, *graph.size),))
        return refresh(*regions, **more)

    graph.refresh = record  # type: ignore[method-assign]
    return seen


async def test_a_new_sample_repaints_the_edge_and_the_value_and_nothing_else() -> None:
    app = GraphApp()
    async with app.run_test(size=(80, 20)) as pilot:
        graph = app.query_one(Graph)
        values = [40.0 + n % 3 for n in range(100)]
        graph.draw(DECODE, [Curve("", series(values, end=NOW + 0.5))], GraphView(NOW + 0.5, 60))
        await pilot.pause()
        seen = watched(graph)
        graph.draw(DECODE, [Curve("", series([*values, 42.0], end=NOW + 1.5))], GraphView(NOW + 1.5, 60))
        await pilot.pause()
        assert seen
        assert sum(region.area for region in seen) < 60, seen
        before = len(seen)
        graph.draw(DECODE, [Curve("", series([*values, 42.0], end=NOW + 1.5))], GraphView(NOW + 1.6, 60))
        assert len(seen) == before, "nothing new, nothing repainted"
        graph.draw(DECODE, [Curve("", series([*values, 42.0, 51.0], end=NOW + 2.5))], GraphView(NOW + 2.5, 60))
        await pilot.pause()
        assert "max 51" in graph.render_line(0).text, "the greatest value is never below the one beside it"


@pytest.mark.parametrize("glyphs", [UNICODE, CONSOLE, ASCII], ids=lambda glyphs: glyphs.name)
async def test_what_is_painted_is_the_picture_after_any_number_of_steps(glyphs: Glyphs) -> None:
    app = GraphApp(glyphs)
    async with app.run_test(size=(60, 20)) as pilot:
        graph = app.query_one(Graph)
        values: list[float] = []
        for second in range(40):
            values.append(NAN if 15 < second < 20 else 30.0 + 20 * math.sin(second / 3))
            cursor = NOW + 12 if 20 < second < 30 else None
            graph.draw(DECODE, [Curve("", series(values, end=NOW + second))], GraphView(NOW + second, 60, cursor))
            await pilot.pause()
            strips = app.screen._compositor.render_strips(app.size)
            painted = ["".join(part.text for part in strip) for strip in strips[: graph.size.height]]
            assert painted == [row.text for row in graph.picture.rows]


async def test_another_size_and_other_colours_are_taken_up() -> None:
    app = GraphApp()
    async with app.run_test(size=(60, 20)) as pilot:
        graph = app.query_one(Graph)
        graph.draw(DECODE, [Curve("", steady(40.0))], GraphView(NOW, 60))
        await pilot.pause()
        dark = graph.render_line(0)
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert len(graph.rows[0].text) == 100
        app.theme = SPARK_LIGHT.name
        await pilot.pause()
        assert {part.style for part in graph.render_line(0)} != {part.style for part in dark}


def test_blanks_do_not_part_a_run() -> None:
    assert carried_pens(PenRow("ab  c d", "pp  p s")) == "pppppps"


# --- small graphs -----------------------------------------------------------------------------------------


def test_a_sparkline_shows_peaks_zero_and_holes() -> None:
    values = [0.0] * 100 + [NAN] * 100 + [40.0] * 100
    line = sparkline(Curve("", series(values)), NOW, 15, UNICODE)
    assert len(line) == 15
    assert set(line[1:4]) == {"▁"}
    assert set(line[6:8]) == {" "}
    assert set(line[11:14]) == {"█"}


@given(st.lists(anything, max_size=50), st.integers(1, 40), st.sampled_from([UNICODE, CONSOLE, ASCII]))
def test_a_sparkline_is_always_as_wide_as_asked(values: list[float], cells: int, glyphs: Glyphs) -> None:
    assert len(sparkline(Curve("", series(values)), NOW, cells, glyphs)) == cells
