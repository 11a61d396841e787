"""What the control centre costs: first frame, idle bytes, CPU and memory, as ratios in one run where they can be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.perf.live_engine import NAME, live_engine
from tests.perf.raw_terminal import RawTerminal
from tests.pty_app import REPOSITORY, PtyApp, spark_tui

BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("bare frame")
Bare().run()
"""
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
ROUNDS = 9
FRAME = ("DEMO", "MEM", "1 Home", "╭", "Finding engines", "Serve a model", "No events yet", "╰", "Palette")
"""Words and corners of the whole frame, from its first line to its last."""
OPENED = """
import sys
from spark_tui.app.wiring import build_demo
from spark_tui.app.control_centre import SparkApp
class Opened(SparkApp):
    def _start(self):  # what comes after the first frame
        ours = [name for name in sys.modules if name.startswith(("spark_tui.", "textual.widgets._text"))]
        print(*ours, file=sys.__stdout__)
        self.exit()
Opened(build_demo()).run(headless=True)
"""
LATER = (
    "observe.engines.use.engines", "run.launch.use.launch", "observe.metrics.use.metrics",
    "catalog.presets.use.library", "base.host.detectors", "observe.explain.model.timeline",
    "observe.explain.model.explain",
    "catalog.presets.model.plan", "catalog.fit.show.launch", "observe.explain.show", "simulator.world",
    "tui.widgets.graph", "textual.widgets._text_area",
)  # fmt: skip
"""Each brings many others along; the first frame shows nothing of them."""
QUIET_BOX = [sys.executable, "-m", "tests.perf.quiet_box_app"]
SCREENS = {
    "1": ("Engines", 0), "2": ("Models", 0), "3": ("Presets", 0), "4": ("following", 0), "7": ("Runs", 0),
    "8": ("Checks", 0), "5": ("last look", 2_000), "m": ("Memory by owner", 2_000), "6": ("to qwen", 0),
}  # fmt: skip
"""Screens by key: a word of each, and the bytes a second that it may send while nothing happens. Graphs move on with
the time. Chat comes last: its prompt takes the keys."""


LIVE = {"1": (1_000, 0.1), "5": (1_500, 0.2)}
"""Home and Metrics with an engine under load: bytes a second, and processor time a second in starts of a bare app."""
SETTLED = 20.0
"""Seconds after which a screen has drawn what history and the first looks brought: budgets are of the hours after."""
ENTRIES = 500


def _first_frame(argv: list[str], texts: tuple[str, ...], env: dict[str, str]) -> tuple[float, float]:
    """Seconds, and seconds of the processor: on a busy machine only the latter are the program's own."""
    started = time.monotonic()
    with RawTerminal(argv, env, columns=120, rows=36) as app:
        app.wait_for(*texts)
        return time.monotonic() - started, app.cpu_seconds()


def _quiet_environment(tmp_path: Path) -> dict[str, str]:
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TEXTUAL_ANIMATIONS": "none",
    }


def test_the_first_frame_comes_within_a_small_factor_of_a_bare_textual_app(tmp_path: Path) -> None:
    compiled = {"PYTHONDONTWRITEBYTECODE": ""}  # as where it is installed, and as Textual is; the first round compiles
    env = {**os.environ, **TERMINAL, **_quiet_environment(tmp_path), **compiled}
    ours, bare = [], []
    for _ in range(ROUNDS):
        bare.append(_first_frame([sys.executable, "-c", BARE], ("bare frame",), env))
        ours.append(_first_frame(spark_tui("--demo"), FRAME, env))
    (mine, my_work), (theirs, their_work) = (map(min, zip(*seconds, strict=True)) for seconds in (ours, bare))
    print(f"\nfirst frame: ours {mine:.2f} s, bare Textual {theirs:.2f} s: {mine / theirs:.2f}x", end="")
    print(f"; processor {my_work:.2f} s and {their_work:.2f} s: {my_work / their_work:.2f}x")
    assert my_work / their_work < 1.6


def test_the_first_frame_loads_nothing_that_it_does_not_show(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPENED], env={**os.environ, **_quiet_environment(tmp_path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    loaded = {name.removeprefix("spark_tui.") for name in done.stdout.split()}
    print(f"\n{len(loaded)} modules before the first frame")
    assert "app.home.screen" in loaded
    assert all(find_spec(name if name.startswith("textual") else f"spark_tui.{name}") for name in LATER)
    assert loaded & set(LATER) == set()


def test_idle_is_silent_and_light(tmp_path: Path) -> None:
    with PtyApp(spark_tui(), columns=160, rows=50, env=_quiet_environment(tmp_path)) as app:
        app.wait_for("1 Home", "MEM")
        time.sleep(5)
        before_bytes, before_cpu, seconds = app.bytes_read, app.cpu_seconds(), 10.0
        time.sleep(seconds)
        sent = (app.bytes_read - before_bytes) / seconds
        share = (app.cpu_seconds() - before_cpu) / seconds
        print(f"\nidle: {sent:.0f} B/s, {share:.2%} of a core, RSS {app.rss() / 2**20:.0f} MiB")
        assert sent < 300, "a shared machine's memory moves; a quiet one's strip is not repainted"
        assert share < 0.03
        assert app.rss() < 90 * 2**20


@pytest.mark.timeout(300)
def test_a_quiet_screen_sends_nothing_and_a_graph_little(tmp_path: Path) -> None:
    seconds = 5.0
    sent: dict[str, float] = {}
    with PtyApp(QUIET_BOX, columns=160, rows=50, env=_quiet_environment(tmp_path)) as app:
        app.wait_for("1 Home", "qwen", timeout=60)
        for key, (word, _) in SCREENS.items():
            app.send(key)
            app.wait_for(word, timeout=60)
            time.sleep(4)
            before = app.bytes_read
            time.sleep(seconds)
            sent[key] = (app.bytes_read - before) / seconds
    print(f"\nquiet box, bytes a second by screen: { {key: round(rate) for key, rate in sent.items()} }")
    assert [key for key, (_, most) in SCREENS.items() if sent[key] > most] == []


def test_a_dashboard_under_live_load_stays_below_two_kilobytes_a_second(tmp_path: Path) -> None:
    seconds = 15.0
    with PtyApp(spark_tui("--demo"), columns=160, rows=50, env=_quiet_environment(tmp_path)) as app:
        app.wait_for("tok/s", timeout=60)
        time.sleep(5)
        before = app.bytes_read
        time.sleep(seconds)
        sent = (app.bytes_read - before) / seconds
    print(f"\nHome under live load at 1 Hz: {sent:.0f} B/s")
    assert 0 < sent < 2_000


@pytest.mark.timeout(300)
def test_home_and_metrics_of_an_engine_under_load_are_cheap(tmp_path: Path) -> None:
    seconds = 30.0
    env = {**os.environ, **TERMINAL, **_quiet_environment(tmp_path)}
    unit = min(_first_frame([sys.executable, "-c", BARE], ("bare frame",), env)[1] for _ in range(5))
    sent: dict[str, float] = {}
    spent: dict[str, float] = {}
    with (
        live_engine(tmp_path) as leads,
        PtyApp([*QUIET_BOX, "live"], columns=160, rows=50, env={**_quiet_environment(tmp_path), **leads}) as app,
    ):
        app.wait_for(f"{NAME} ready", timeout=60)
        for key in LIVE:
            app.send(key)
            time.sleep(SETTLED)
            began, before, cpu = time.monotonic(), app.bytes_read, app.cpu_seconds()
            time.sleep(seconds)
            took = time.monotonic() - began
            sent[key], spent[key] = (app.bytes_read - before) / took, (app.cpu_seconds() - cpu) / took
    for key, name in (("1", "Home"), ("5", "Metrics")):
        print(f"\n{name} of a live engine: {sent[key]:.0f} B/s, {spent[key]:.2%} of a core", end="")
        print(f" ({spent[key] / unit:.3f} starts of a bare app a second)", end="")
    assert [key for key, (most, _) in LIVE.items() if sent[key] > most] == []
    assert [key for key, (_, most) in LIVE.items() if spent[key] / unit > most] == []


@pytest.mark.timeout(300)
def test_a_key_in_a_palette_of_five_hundred_entries_costs_a_fraction_of_a_start(tmp_path: Path) -> None:
    env = {**os.environ, **TERMINAL, **_quiet_environment(tmp_path)}
    unit = min(_first_frame([sys.executable, "-c", BARE], ("bare frame",), env)[1] for _ in range(5))
    folder, recipes = tmp_path / "config" / "spark-tui" / "presets", sorted((REPOSITORY / "presets").glob("*.yaml"))
    folder.mkdir(parents=True)
    for number in range((ENTRIES - 2 * len(recipes)) // 2):  # of each preset two: launch and open
        recipe = recipes[number % len(recipes)]
        (folder / f"mine-{number:03}.yaml").write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    with PtyApp(spark_tui(), columns=160, rows=50, env=_quiet_environment(tmp_path)) as app:
        app.wait_for("1 Home")
        app.send("3")
        app.wait_for(f" {len(recipes) + len(list(folder.iterdir()))} ", timeout=60)
        app.send("ctrl+p")
        app.wait_for("Enter run")
        app.wait_quiet(1.0)
        cpu, keys = app.cpu_seconds(), ""
        for word in ("mine-0", "launch", "gemma", "o"):
            keys += word + "\x7f" * len(word)
        for key in keys:
            app.send(key)
            app.wait_quiet(0.1)
        spent = (app.cpu_seconds() - cpu) / len(keys)
    print(f"\npalette of {ENTRIES} entries: {spent * 1000:.0f} ms a key, {spent / unit:.2f} starts of a bare app")
    assert spent / unit < 0.25
