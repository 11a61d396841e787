"""What an A/B compares: a running engine with another one, with a change of its launch, or with a preset."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.catalog.presets.model.overrides import SHARE, Overrides, overrides_from_pairs, pairs_from
from spark_tui.catalog.presets.model.preset import PresetCatalogue
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.catalog.presets.use.rights import catalogue
from spark_tui.observe.explain.model.view import EngineView
from spark_tui.observe.results.model.plan import BenchPlan
from spark_tui.run.launch.use.launch import LaunchRequest, launched_with, request_of, same_place

_CONTAINER: Final = "container="


class Variant(Struct, frozen=True):
    """What is measured: an engine, by its container's `name` or id. With `request` it is launched for its turns, and
    `what` describes it in a few words."""

    name: str
    what: str = ""
    request: LaunchRequest | None = None


def running_engine(other: str) -> str:
    """The container of an A/B with `container=NAME`, which runs already; empty for any other comparison."""
    return other.removeprefix(_CONTAINER).strip() if other.startswith(_CONTAINER) else ""


def starts_of(plan: BenchPlan) -> int:
    """How often an A/B of launches starts an engine: once in each pass, and once more where the last one to be measured
    is not the one that ran before."""
    return plan.passes + plan.passes % 2


class ABPlanner(Struct, eq=False):
    """Plans comparisons of launches; changes nothing."""

    _catalogue: Callable[[], PresetCatalogue]
    _preflight: Preflight

    @classmethod
    def from_context(cls, context: Context) -> ABPlanner:
        return cls(partial(catalogue, context), context[Preflight])

    def plan(self, view: EngineView, other: str) -> tuple[Variant, Variant]:
        """A running engine as it is, and `other`: changes of its launch (`max_num_seqs=8 image=vllm:nightly`), or the
        name of a preset. Raises RefusedError or UsageError for what cannot be launched."""
        if not view.container.ours:
            raise RefusedError(
                f"Not started by spark-tui: {view.name}. It cannot be restarted for an A/B.",
                "Compare it with another serving engine, or launch it from a preset.",
            )
        now = request_of(view, self._catalogue())
        preset, settings = now.preset, launched_with(view.container)
        if "=" in other:
            changes = _changes(other)
            changed = replace(preset, image=changes.pop("image", "") or preset.image)
            overrides = same_place(view, overrides_from_pairs({**settings, **changes}))
            if overrides.auto_share and SHARE not in changes:  # one setting differs, and not the cache with it
                overrides = replace(overrides, gpu_memory_utilization=now.overrides.gpu_memory_utilization)
            request = LaunchRequest(changed, overrides, replace_running=True)
            second = Variant(view.name, " ".join(shlex.split(other)), request)
        else:
            another = self._catalogue().get(other)
            if another is None:
                raise UsageError(
                    f"{other} is neither a serving engine nor a preset.",
                    "Give a preset, container=NAME, image=IMAGE, or a setting: max_num_seqs=8",
                )
            request = LaunchRequest(another, Overrides(), replace_running=True)
            second = Variant(another.name, f"preset {another.name}", request)
        before, after = (self._preflight.dry_plan(each.preset, each.overrides).spec for each in (now, request))
        if replace(before, labels=()) == replace(after, labels=()):
            raise UsageError(f"{view.name} already uses {other}.", "Give another value, or another preset.")
        return Variant(view.name, "current settings", now), second


def _changes(text: str) -> dict[str, str]:
    try:
        changes = dict(pairs_from(shlex.split(text)))
    except ValueError:
        raise UsageError(f"A quote in {text} is not closed.", "Write for example: max_num_seqs=8") from None
    for key in ("name", "port", "exposure", "api_key"):
        if key in changes:
            raise UsageError(f"{key} does not affect performance.", "Compare a setting of the engine: max_num_seqs=8")
    return changes
