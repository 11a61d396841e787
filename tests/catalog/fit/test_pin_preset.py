"""The pin key on Presets: the last good start on the page, the change in a dialog, written on consent only."""

from __future__ import annotations

from pathlib import Path

from spark_tui.observe.metrics.use.history import History
from spark_tui.tui.modals import ConfirmScreen
from tests.catalog.presets.test_pins_use import GOOD, IMAGE, RECIPE, START, Place
from tests.tui.kit import SIZES, seen


async def test_pin_shows_the_change_and_writes_on_consent_and_again_goes_back(tmp_path: Path) -> None:
    kit = Place(tmp_path, START, own=RECIPE)
    file = kit.own / "qwen.yaml"
    async with seen(kit, SIZES[0]) as sight:
        await sight.until(lambda: kit.context[History].loaded)
        await sight.press("X")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        for size in SIZES:
            await sight.resized(size)
            assert f"@{GOOD[:12]}" in sight.text, size
        await sight.press("n")
        assert file.read_text() == RECIPE
        await sight.press("X")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        await sight.press("y")
        await sight.until(lambda: f"{IMAGE}@{GOOD}" in file.read_text())
        await sight.until(lambda: not isinstance(sight.app.screen, ConfirmScreen))
        await sight.press("X")
        await sight.until(lambda: isinstance(sight.app.screen, ConfirmScreen))
        await sight.press("y")
        await sight.until(lambda: file.read_text() == RECIPE)


async def test_the_page_names_the_last_good_start_and_that_the_image_has_changed(tmp_path: Path) -> None:
    kit = Place(tmp_path, START)
    async with seen(kit, (120, 50)) as sight:
        await sight.until_seen("last served", GOOD[:19], "changed; go back: X")


async def test_a_preset_that_never_served_is_not_pinned_and_the_reason_is_shown(tmp_path: Path) -> None:
    async with seen(Place(tmp_path), (120, 36), "X") as sight:
        await sight.until_seen("No good start of qwen")
