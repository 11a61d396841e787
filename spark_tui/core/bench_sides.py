"""What an engine is compared with when both cannot live at once: itself with a change, or another preset."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_tui.core.launch import LaunchRequest
from spark_tui.core.launched import launched_with
from spark_tui.core.preflight import Preflight
from spark_tui.domain.engine.state import Exposure
from spark_tui.domain.engine.view import EngineView
from spark_tui.domain.errors import RefusedError, UsageError
from spark_tui.domain.presets.catalogue import PresetCatalogue
from spark_tui.domain.presets.plan import Overrides, Reach, overrides_from_pairs, pairs_from
from spark_tui.domain.presets.preset import Preset


@dataclass(frozen=True, slots=True)
class Side:
    """One of two. `name` is its container's, `request` brings it up, `what` tells it apart in a few words."""

    name: str
    request: LaunchRequest
    what: str


class Sides:
    """Plans such comparisons; changes nothing."""

    def __init__(self, catalogue: Callable[[], PresetCatalogue], preflight: Preflight) -> None:
        self._catalogue = catalogue
        self._preflight = preflight

    def plan(self, view: EngineView, other: str) -> tuple[Side, Side]:
        """A running engine as it is, and `other`: changes of its launch (`max_num_seqs=8 kv_cache_dtype=fp8`), or the
        name of a preset. Raises RefusedError or UsageError, with the way out, for what cannot be launched."""
        preset, now = self._launched(view)
        first = Side(view.name, LaunchRequest(preset, now, replace_running=True), "as it runs now")
        second = self._changed(view, preset, other) if "=" in other else self._preset(other)
        before = self._preflight.dry_plan(preset, now)
        after = self._preflight.dry_plan(second.request.preset, second.request.overrides)
        if replace(before.spec, labels=()) == replace(after.spec, labels=()):
            raise UsageError(f"{other} changes nothing: {view.name} runs so.", "Give another value, or another preset.")
        return first, second

    def _launched(self, view: EngineView) -> tuple[Preset, Overrides]:
        container = view.container
        if not container.ours:
            raise RefusedError(
                f"spark-tui did not start {view.name}, and cannot start it anew.",
                "Compare it with another engine that serves, or launch it from a preset.",
            )
        preset = self._catalogue().get(container.preset)
        if preset is None:
            raise RefusedError(
                f"The preset {container.preset}, from which {view.name} was launched, is not here.",
                "Launch it from a preset that is: spark-tui presets list",
            )
        pairs = launched_with(container)
        return preset, self._where_it_is(view, overrides_from_pairs(pairs))

    def _where_it_is(self, view: EngineView, overrides: Overrides) -> Overrides:
        lan = view.exposure in (Exposure.LAN, Exposure.LAN_NO_KEY)
        return replace(
            overrides, name=view.name, port=view.port, exposure=Reach.LAN if lan else Reach.LOCAL,
            api_key=bool(view.container.api_key_file),
        )  # fmt: skip

    def _changed(self, view: EngineView, preset: Preset, text: str) -> Side:
        try:
            words = shlex.split(text)
        except ValueError:
            raise UsageError(f"A quote in {text} is not closed.", "Write for example: max_num_seqs=8") from None
        changes = pairs_from(words)
        for key in ("name", "port", "exposure", "api_key"):
            if key in changes:
                raise UsageError(f"`{key}` changes no figure.", "Compare a setting of the engine: max_num_seqs=8")
        overrides = overrides_from_pairs({**launched_with(view.container), **changes})
        request = LaunchRequest(preset, self._where_it_is(view, overrides), replace_running=True)
        return Side(view.name, request, " ".join(words))

    def _preset(self, name: str) -> Side:
        preset = self._catalogue().get(name)
        if preset is None:
            raise UsageError(
                f"{name} is no engine that serves, and no preset.",
                "Name one of them, or a change of this engine's launch: max_num_seqs=8",
            )
        return Side(preset.name, LaunchRequest(preset, Overrides(), replace_running=True), f"preset {preset.name}")
