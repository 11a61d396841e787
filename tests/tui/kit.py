"""The whole app on fakes, at a size: what is on screen, and waiting for what shall be there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache
from typing import TypeVar

from msgspec.structs import replace
from textual.pilot import Pilot
from textual.screen import Screen

from spark_tui.app.control_centre import SparkApp
from spark_tui.base.errors import PresetError
from spark_tui.catalog.presets.model.preset import PRESETS, Origin, Preset, PresetCatalogue, PresetFacts, PublishedSpeed
from spark_tui.catalog.presets.use.rights import PresetSource
from spark_tui.tui.format import UNICODE
from tests.kit import IMAGE, PRESET, FixedPresets, Kit
from tests.tui.quiet import text_of, until

SIZES = ((80, 24), (120, 36), (200, 50))
MARKUP = "[/red][bold]not markup"
ESCAPE = "\x1b[31mred\x1b[0m\x07 text"

QWEN = replace(
    PRESET,
    facts=PresetFacts(
        title="Qwen3.6-35B-A3B NVFP4",
        description="Multimodal agent model with few active parameters; the first choice for one Spark.",
        family="Qwen",
        publisher="NVIDIA (Qwen)",
        licence="Apache-2.0",
        architecture="MoE with hybrid attention",
        total_parameters=35e9,
        active_parameters=3e9,
        weights_bytes=19_000_000_000,
        context_tokens=262_144,
        quantization="NVFP4 (ModelOpt)",
        published=(PublishedSpeed(42.62, "one stream", "somebody's benchmark"),),
        cautions=("A context of 262144 with a memory share of 0.4 is not what the makers recommend.",),
    ),
)
GEMMA = replace(
    PRESET,
    name="gemma",
    model="org/gemma",
    image="vllm/vllm-openai:gemma",
    facts=PresetFacts(title="Gemma 31B", family="Gemma", quantization="BF16", total_parameters=31e9),
)
SMOL = replace(PRESET, name="aaa-smol", model="org/smol", facts=PresetFacts(title="Smol", family="Aaa", category="cpu"))
MINE = replace(
    PRESET, name="mine", origin=Origin.USER, file="/presets/mine.yaml", facts=PresetFacts(title="Mine", family="Qwen")
)
BROKEN = PresetError("`defaults` must be a mapping.", "Write key: value lines.", file="/presets/bad.yaml", line=7)

Found = TypeVar("Found", bound="Screen[object]")


class Sight:
    """A running app: what a person sees, and what they do."""

    def __init__(self, kit: Kit, app: SparkApp, pilot: Pilot[None]) -> None:
        self.kit, self.app, self.pilot = kit, app, pilot

    @property
    def text(self) -> str:
        """The terminal as it is now."""
        return text_of(self.app)

    async def press(self, *keys: str) -> None:
        """Presses keys and lets the screen follow."""
        await self.pilot.press(*keys)

    async def resized(self, size: tuple[int, int]) -> None:
        """Makes the terminal that large."""
        await self.pilot.resize_terminal(*size)

    async def type(self, text: str) -> None:
        """Types text as keys."""
        await self.press(*(_KEYS.get(char, char) for char in text))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Moves the clock until it is so."""
        await until(self.app, condition, passes=lambda: self.kit.clock.advance(1.0))

    async def until_seen(self, *words: str) -> None:
        """Waits until all of these are on screen."""

        def seen() -> bool:
            text = self.text
            return all(word in text for word in words)

        await self.until(seen)

    def on(self, kind: type[Found]) -> Found:
        """The current screen, which must be of that kind."""
        assert isinstance(self.app.screen, kind), self.app.screen
        return self.app.screen


_KEYS = {
    " ": "space",
    "?": "question_mark",
    "/": "slash",
    "-": "minus",
    "_": "underscore",
    ".": "full_stop",
    "=": "equals_sign",
    '"': "quotation_mark",
    "'": "apostrophe",
    ";": "semicolon",
    "&": "ampersand",
}


def kit_of(*presets: Preset, problems: Iterable[PresetError] = ()) -> Kit:
    """A core on fakes with these presets and unreadable files."""
    kit = Kit(*presets)
    source = kit.context[PresetSource]
    assert isinstance(source, FixedPresets)
    source.catalogue = PresetCatalogue(tuple(presets), tuple(problems))
    return kit


@cache
def opened_on(mode: str) -> type[SparkApp]:
    """The app as it is after the key of that screen, which is shown at once instead of Home."""
    return type("SparkApp", (SparkApp,), {"DEFAULT_MODE": mode})


MODES = dict(zip("12345678", ("home", "models", "presets", "logs", "metrics", "chat", "bench", "doctor"), strict=True))


@asynccontextmanager
async def seen(kit: Kit, size: tuple[int, int] = (120, 36), *keys: str) -> AsyncIterator[Sight]:
    """The app, opened on the Presets screen or on that of the first key, after these keys."""
    mode = MODES.get(keys[0]) if keys else None
    app = opened_on(mode or "presets")(kit.context, UNICODE)
    async with app.run_test(size=size, notifications=True) as pilot:
        sight = Sight(kit, app, pilot)
        await sight.until(lambda: bool(app.world[PRESETS].presets or app.world[PRESETS].problems))
        for key in keys if mode is None else keys[1:]:
            await sight.press(key)
        yield sight


__all__ = (
    "BROKEN",
    "ESCAPE",
    "GEMMA",
    "IMAGE",
    "MARKUP",
    "MINE",
    "PRESET",
    "QWEN",
    "SIZES",
    "SMOL",
    "Sight",
    "kit_of",
    "seen",
)
