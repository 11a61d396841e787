"""Keys to a goal as in test_goals, typed in a real terminal by somebody who sees nothing but the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.pty_app import PtyApp, spark_tui

pytestmark = pytest.mark.timeout(400)

PATIENCE = 90.0

Wait: TypeAlias = tuple[str, ...]
"""Texts that are on the screen before the next key."""

READY: Wait = ("1 Home", "ready", "docker OK", "failed (exit 1)")
FORM: Wait = ("Basics", "docker run")
MENU: Wait = ("letter or Enter copy",)
Condition: TypeAlias = Callable[[PtyApp], bool]
Steps: TypeAlias = tuple[str | Wait | Condition, ...]
LAUNCHED: Steps = (
    "3", ("gpt-oss-20b", "fits 0."), "/", *"oss-20b", "enter", ("1 of",), "enter", FORM, "ctrl+l",
    ("gpt-oss-20b",), "1",
)  # fmt: skip


def copied(*texts: str) -> Condition:
    """The terminal was asked to copy something with these texts: a notice about it is gone after seconds."""
    return lambda app: all(text in app.clipboard for text in texts)


def starts_at_boot(app: PtyApp) -> bool:
    """The badge of the running engine in the list."""
    return any("LOCAL  boot" in line.partition("││")[0] for line in app.text().splitlines())


def starts_by_hand(app: PtyApp) -> bool:
    return "qwen3.6-35b ready" in app.text() and "(y)" not in app.text() and not starts_at_boot(app)


GOALS: dict[str, tuple[Steps, Steps, int, Wait | Condition]] = {
    "launch the last preset again with its values": (
        (*LAUNCHED, ("[1 Home]", "gpt-oss-20b"), "c", ("cancelled",)),
        ("l", ("[3 Presets]", "gpt-oss-20b", "Overview"), "enter", FORM, "ctrl+l"),
        3,
        ("[1 Home]", "gpt-oss-20b"),
    ),
    "launch for 64k context and 2 users": (
        (),
        ("3", ("fits 0.",), "enter", FORM, *"64k", ("of 65k",), "down", "2", ("for 2 users",), "ctrl+l"),
        8,
        ("[1 Home]", "diffusiongemma"),
    ),
    "apply the fix to a failed launch": (("down", ("a Fix",)), ("a", FORM, "ctrl+l"), 2, ("[1 Home]", "1 failed")),
    "change the context of a running engine": (
        (),
        ("e", FORM, *"64k", ("of 65k",), "ctrl+l", ("(y)",), "y"),
        6,
        ("[1 Home]", "starting"),
    ),
    "copy the URL": ((), ("y", MENU, "u"), 2, copied("http://127.0.0.1:8001/v1")),
    "copy the model": ((), ("y", MENU, "m"), 2, copied("qwen3.6-35b")),
    "copy a client's settings": ((), ("y", MENU, "s"), 2, copied("OPENAI_BASE_URL=", "OPENAI_MODEL=qwen3.6-35b")),
    "find a preset by use, sorted by speed": ((), ("3", ("fits 0.",), "U", ("coding",), "s"), 5, ("tok/s v",)),
    "start at boot": (
        (starts_at_boot, "B", ("Remove",), "y", starts_by_hand),
        ("B", ("Enable",), "y"),
        2,
        starts_at_boot,
    ),
    "reach it from a laptop with a key": (
        (),
        ("K", ("(y)",), "y", ("network http",), "y", MENU, "s"),
        4,
        copied("OPENAI_API_KEY=", ":8001/v1"),
    ),
    "copy the URL after keys that mean nothing there": ((), ("Z", "esc", "b", "y", MENU, "u"), 5, copied("/v1")),
    "launch for 64k context after a wrong letter": (
        (),
        ("3", ("fits 0.",), "enter", FORM, *"64x", ("got '64x'",), "backspace", "k", ("of 65k",), "ctrl+l"),
        8,
        ("[1 Home]", "diffusiongemma"),
    ),
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A new user's home, and no tmux around it."""
    folders = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    return {"HOME": str(tmp_path), **folders, "TMUX": ""}


@pytest.mark.parametrize("goal", GOALS)
def test_a_goal_takes_few_keys_in_a_terminal(environ: dict[str, str], goal: str) -> None:
    prepare, keys, most, reached = GOALS[goal]
    assert sum(isinstance(key, str) for key in keys) <= most
    with PtyApp(spark_tui("--demo"), env=environ) as app:
        app.wait_for(*READY, timeout=PATIENCE)
        for step in (*prepare, *keys):
            if isinstance(step, str):
                app.send(step)
            else:
                wait(app, step)
        wait(app, reached)


def wait(app: PtyApp, step: Wait | Condition) -> None:
    if isinstance(step, tuple):
        app.wait_for(*step, timeout=PATIENCE)
    else:
        app.wait_until(step, timeout=PATIENCE)
