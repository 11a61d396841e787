"""Keys to a goal: what a person does ten times a day takes few keys, counted as they are pressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from textual.screen import Screen

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.engine.state import Exposure
from spark_tui.catalog.fit.screen.presets import PresetsScreen
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.run.launch.screen import LaunchForm
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.run.service.use import BootUnits
from spark_tui.tui.format import UNICODE
from spark_tui.tui.modals import ConfirmScreen, YankMenu
from spark_tui.tui.widgets.row_list import RowList
from tests.tui import quiet


def edited(app: SparkApp) -> bool:
    """The running engine starts again with the new context."""
    views = app.context[EngineSupervisor].views()
    view = next((each for each in views if each.name == "qwen3.6-35b"), None)
    return view is not None and '"65536"' in view.container.overrides


def launched(app: SparkApp) -> bool:
    return any(job.title == "gpt-oss-20b" for job in app.world.jobs)


def fixed(app: SparkApp) -> bool:
    """The failed engine is launched again."""
    return bool(app.world.jobs) and not isinstance(app.screen, LaunchForm)


def found(app: SparkApp) -> bool:
    """Coding presets by their speed, the fastest first."""
    return isinstance(app.screen, PresetsScreen) and app.screen.rows.key.startswith("qwen3.6-35b")


def started(app: SparkApp) -> bool:
    """A launch for the context and users that were typed; nobody named a memory share."""
    return bool(app.world.jobs) and not isinstance(app.screen, LaunchForm)


def judged(app: SparkApp) -> bool:
    """The launch of every preset is worked out."""
    screen = app.screen
    return (
        isinstance(screen, PresetsScreen)
        and bool(screen._candidates)
        and all(each.judged is not None for each in screen._candidates.values())
    )


Condition: TypeAlias = Callable[[SparkApp], bool]


def shows(*screens: type[Screen[Any]]) -> Condition:
    return lambda app: isinstance(app.screen, screens)


def worked_out(app: SparkApp) -> bool:
    """The form has a fit for what was typed."""
    return isinstance(app.screen, LaunchForm) and app.screen.judgement is not None and not app.screen.blamed


def context_typed(app: SparkApp) -> bool:
    return isinstance(app.screen, LaunchForm) and app.screen.overrides.max_model_len == 65_536


def users_typed(app: SparkApp) -> bool:
    return worked_out(app) and isinstance(app.screen, LaunchForm) and app.screen.overrides.max_num_seqs == 2


def failed_selected(app: SparkApp) -> bool:
    return app.selected_engine is not None and app.explain(app.selected_engine).proposal is not None


Goal: TypeAlias = tuple[str, tuple[str | Condition, ...], tuple[str | Condition, ...], int, Condition]
GOALS: tuple[Goal, ...] = (
    (
        "change the context of a running engine",
        (),
        ("e", worked_out, *"64k", context_typed, worked_out, "ctrl+l", shows(ConfirmScreen), "y"),
        6,
        edited,
    ),
    (
        "launch for 64k context and 2 users",
        (),
        ("3", judged, "enter", worked_out, *"64k", context_typed, "down", "2", users_typed, "ctrl+l"),
        8,
        started,
    ),
    (
        "apply the fix to a failed launch",
        ("down", failed_selected),
        ("a", worked_out, "ctrl+l"),
        2,
        fixed,
    ),
    ("copy the URL", (), ("y", shows(YankMenu), "u"), 2, lambda app: app.clipboard == "http://127.0.0.1:8001/v1"),
    (
        "copy a client's settings",
        (),
        ("y", shows(YankMenu), "s"),
        2,
        lambda app: "OPENAI_BASE_URL=http://127.0.0.1:8001/v1" in app.clipboard,
    ),
    ("copy the model", (), ("y", shows(YankMenu), "m"), 2, lambda app: app.clipboard == "qwen3.6-35b"),
    (
        "do not start at boot any more",
        (),
        ("B", shows(ConfirmScreen), "y"),
        2,
        lambda app: not app.context[BootUnits].known,
    ),
    ("find a preset by use, sorted by speed", (), ("3", judged, "U", "s"), 5, found),
)
"""Its name, what was prepared, the keys with what each waits for, the most keys, and what is reached."""


async def until(app: SparkApp, condition: Callable[[SparkApp], bool]) -> None:
    await quiet.until(app, lambda: condition(app), (type(app.screen).__name__, app.clipboard, app.world.jobs))


@pytest.mark.parametrize("goals", [*([goal] for goal in GOALS[:3]), GOALS[3:]], ids=lambda goals: goals[0][0])
async def test_a_goal_takes_few_keys(goals: Sequence[Goal]) -> None:
    """What changes an engine has an app of its own; what only copies or looks follows in one."""
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(app, lambda app: bool(app.screen.query_one(RowList).key) and len(app.context[BootUnits].known) > 0)
        for name, prepare, keys, most, reached in goals:
            assert sum(isinstance(key, str) for key in keys) <= most, name
            assert not reached(app), name
            for step in (*prepare, *keys):
                await (pilot.press(step) if isinstance(step, str) else until(app, step))
            await until(app, reached)


async def test_an_engine_is_reached_from_a_laptop_with_a_key_in_four_keys() -> None:
    app = SparkApp(build_demo(), UNICODE)

    def open_to_the_network(app: SparkApp) -> bool:
        view = app.selected_engine  # as the screen has it, which is later than the supervisor
        return view is not None and view.exposure is Exposure.LAN and bool(view.container.api_key_file)

    async with app.run_test(size=(120, 36)) as pilot:
        await until(app, lambda app: bool(app.screen.query_one(RowList).key))
        await pilot.press("K")
        await until(app, lambda app: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(app, open_to_the_network)
        await pilot.press("y")
        await until(app, lambda app: isinstance(app.screen, YankMenu))
        await pilot.press("n")
        network = f"http://{app.world.identity.lan_address}:8001/v1"
        await until(app, lambda app: app.clipboard == network)
        await pilot.press("y")
        await until(app, lambda app: isinstance(app.screen, YankMenu))
        await pilot.press("s")
        await until(app, lambda app: f"OPENAI_BASE_URL={network}" in app.clipboard)


async def test_the_last_preset_is_launched_again_with_its_values_in_three_keys() -> None:
    app = SparkApp(build_demo(), UNICODE)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(app, lambda app: bool(app.screen.query_one(RowList).key))
        await pilot.press("3", "slash", *"oss-20", "enter", "enter")
        await until(app, lambda app: isinstance(app.screen, LaunchForm))
        await pilot.press(*"64k")
        await until(app, context_typed)
        await pilot.press("ctrl+l")
        await until(app, launched)
        await app.context[JobRunner].cancel("gpt-oss-20b")
        await pilot.press("1")
        before = app.world.jobs
        await pilot.press("l", "enter")
        await until(app, lambda app: isinstance(app.screen, LaunchForm))
        assert isinstance(app.screen, LaunchForm) and app.screen.overrides.max_model_len == 65_536
        await pilot.press("ctrl+l")
        await until(app, lambda app: app.world.jobs != before)
