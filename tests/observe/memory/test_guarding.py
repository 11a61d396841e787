"""guard on the command line: in the foreground, its state, and its unit."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.context import Context, GuardPorts
from spark_tui.base.engine.units import Unit, unit_texts
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import SystemClock
from spark_tui.base.finding import Ok
from spark_tui.base.host.guard import GuardEntry
from spark_tui.base.quantities import GIB
from spark_tui.base.settings import Settings
from spark_tui.cli.session import Options
from tests.cli.world import World
from tests.fakes_host import IDLE_MEMORY
from tests.observe.memory.test_guard_use import FOREIGN, OLD, FakeActuator, FakeJournal

UNIT = "spark-tui-guard.service"


@dataclass
class FakeUnits:
    """The files of units in memory."""

    folder: Path
    installed: dict[str, str] = field(default_factory=dict)
    error: SparkError | None = None

    def path(self, name: str) -> Path:
        return self.folder / name

    def files(self, unit: Unit, *, system: bool = False) -> Mapping[str, str]:
        return unit_texts(unit, ("python", "-m", "spark_tui", *unit.words), ())

    def install(self, unit: Unit, *, system: bool = False) -> None:
        if self.error is not None:
            raise self.error
        self.installed |= self.files(unit)

    def remove(self, name: str, *, machine: bool = True) -> bool:
        return self.installed.pop(name, None) is not None


class Post(World):
    """A box that is short of memory, on the system's clock: the guard is a loop in real time."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.actuator, self.journal, self.units = FakeActuator(running=(OLD,)), FakeJournal(), FakeUnits(folder)
        self.host.memory_value = Ok(replace(IDLE_MEMORY, free=GIB, available=int(1.8 * GIB)))

    def context(self, options: Options, environment: Mapping[str, str]) -> Context:
        context = super().context(options, environment)
        guarding = GuardPorts(self.actuator, self.journal, self.units)  # type: ignore[arg-type]
        vars(context.ports).update(clock=SystemClock(), guarding=guarding)
        return context

    def end_by(self, number: signal.Signals) -> None:
        """Sends that signal as soon as the guard has acted."""
        before = self.actuator.stop

        def stop(engine: object, grace_seconds: int) -> str:
            signal.raise_signal(number)
            return before(engine, grace_seconds)  # type: ignore[arg-type]

        self.actuator.stop = stop  # type: ignore[method-assign]


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(tmp_path)


# --- in the foreground ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_guards_until_it_is_ended_and_writes_what_it_did(post: Post, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    post.end_by(number)
    result = post.run("guard")
    assert (result.code, post.actuator.done) == (0, [("stop", "old")])
    assert "stop the engine: old: 1.8 GiB usable" in result.out
    assert result.out.endswith("(docker stop, 10 s grace)\n")
    assert result.err.startswith("Guarding: stops an engine of spark-tui below 2.0 GiB of available memory")
    assert signal.getsignal(number) is before
    assert (post.journal.claimed, post.actuator.closed) == (False, True)


def test_what_it_did_as_data(post: Post) -> None:
    post.end_by(signal.SIGTERM)
    [act] = post.run("guard", "--json").json_lines
    assert (act["act"], act["engine"], act["at"][-1]) == ("stop the engine", "old", "Z")
    assert "below the floor of 2.0 GiB" in act["reason"]


def test_the_floors_are_the_settings_and_foreign_engines_count_only_where_asked_for(post: Post) -> None:
    post.settings = Settings(guard_serving_gib=1.0, guard_loading_gib=5.0)
    post.actuator.running = (replace(FOREIGN, loading=True),)
    post.end_by(signal.SIGTERM)
    result = post.run("guard", "--every-engine")
    assert ("stop", "foreign") in post.actuator.done
    assert "stops any engine below 1.0 GiB of available memory (5.0 while one loads)" in result.err
    assert "below the floor of 5.0 GiB while an engine loads" in result.out


def test_a_second_guard_is_refused(post: Post) -> None:
    post.journal.claimed = True
    result = post.run("guard")
    assert result.code == 4
    assert "A guard is already running" in result.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--read-only",), 4),
        (("--install", "--yes", "--read-only"), 4),
        (("--uninstall", "--yes", "--read-only"), 4),
        (("--install", "--status"), 2),
    ],
    ids=str,
)
def test_what_is_refused_changes_nothing(post: Post, words: tuple[str, ...], code: int) -> None:
    assert post.run("guard", *words).code == code
    assert (post.journal.claimed, post.units.installed) == (False, {})


def test_the_demo_has_nothing_to_guard() -> None:
    assert World().run("guard").code == 4


# --- its state ------------------------------------------------------------------------------------------


def test_its_state_in_words_and_as_data(post: Post) -> None:
    post.journal.kept = [GuardEntry(1_800_000_000.0, "stop the engine", "qwen", "memory fell", "docker stop")]
    result = post.run("guard", "--status")
    assert "guard  not running; start it: spark-tui guard" in result.out
    assert "stop the engine: qwen: memory fell (docker stop)" in result.out
    post.journal.claimed = True
    assert "guard  running\n" in post.run("guard", "--status").out
    told = post.run("guard", "--status", "--json").json
    assert told["running"] is True
    assert told["unit_installed"] is False
    assert told["serving_floor_bytes"] == 2 * GIB
    assert told["entries"][0]["engine"] == "qwen"


# --- its unit -------------------------------------------------------------------------------------------


def test_the_unit_is_shown_before_it_is_written(post: Post) -> None:
    refused = post.run("guard", "--install", "--json")
    assert refused.code == 4
    assert "--yes" in refused.error["remedy"]
    assert post.units.installed == {}
    result = post.run("guard", "--install", "--yes", environment={"DOCKER_HOST": "unix:///run/d.sock"})
    assert result.code == 0
    text = post.units.installed[UNIT]
    assert text in "\n".join(line.removeprefix("    ") for line in result.err.splitlines()) + "\n"
    assert "-m spark_tui guard\n" in text
    assert "Environment=DOCKER_HOST=unix:///run/d.sock\n" in text
    assert "Restart=always" in text


def test_the_unit_keeps_which_engines_it_may_stop_and_is_removed(post: Post) -> None:
    post.run("guard", "--install", "--yes", "--every-engine")
    assert "guard --every-engine\n" in post.units.installed[UNIT]
    removed = post.run("guard", "--uninstall", "--json").json
    assert (removed["installed"], removed["was_installed"]) == (False, True)
    assert "No guard unit" in post.run("guard", "--uninstall").err


def test_a_systemd_that_refuses_is_an_error(post: Post) -> None:
    post.units.error = SparkError("systemctl --user enable failed.", "Run it in a login session.", detail="No medium")
    result = post.run("guard", "--install", "--yes")
    assert result.code == 1
    assert "No medium" in result.err
