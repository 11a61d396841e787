"""Whatever keys are pressed, wherever: the program goes on, and none of its workers fails."""

from __future__ import annotations

import random
import string

import pytest
from textual.events import Paste

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.settings import Settings

LEAVES = {"q", "ctrl+q", "ctrl+c", "ctrl+z"}
MOVES = ("up", "down", "left", "right", "pageup", "pagedown", "home", "end", "tab", "shift+tab", "space", "backspace")
ACTS = ("enter", "enter", "enter", "escape", "escape", "delete", "f1", "f12")
CONTROLS = tuple(f"ctrl+{letter}" for letter in "aefgjklnoprstuwxy")
SIZES = ((80, 24), (120, 36), (200, 50), (60, 15), (20, 5))
PASTED = ("docker run --gpus all vllm/vllm-openai --model x", "[/]", "\x1b[31mred", "a\nb", "9" * 400, "é漢字🙂")
GROUPS = (*[string.ascii_letters, MOVES] * 2, string.punctuation + string.digits, ACTS, CONTROLS, ["resize"], ["paste"])
COUNT = 100


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(4))
async def test_no_keys_end_the_program(seed: int) -> None:
    chance, pressed = random.Random(seed), []
    app = SparkApp(build_demo(Settings()))
    async with app.run_test(size=chance.choice(SIZES), notifications=True) as pilot:
        await pilot.pause()
        for _ in range(COUNT):
            key = chance.choice(chance.choice(GROUPS))
            if key in LEAVES:
                continue
            pressed.append(key)
            if key == "resize":
                await pilot.resize_terminal(*chance.choice(SIZES))
            elif key == "paste":
                app.post_message(Paste(chance.choice(PASTED)))
                await pilot.pause()
            else:
                await pilot.press(key)
            faults = [notice.message for notice in app._notifications if "Restart spark-tui" in notice.message]
            assert faults == [], pressed[-10:]
            if app._exit:  # chosen from the palette; of a crash `run_test` raises the error
                break
