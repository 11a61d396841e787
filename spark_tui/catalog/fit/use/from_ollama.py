"""Presets in place of Ollama's models: the same model served by another engine, with the speed to expect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from spark_tui.base.engine.runtimes import OLLAMA, family, published_facts
from spark_tui.base.ports import port_named
from spark_tui.catalog.fit.use.recommend import Candidate, Pick, Purpose, Speed, SpeedSource, recommend
from spark_tui.catalog.models.model.ollama import OllamaModel, OllamaModels, same_model
from spark_tui.catalog.models.model.weights import PAPER_BANDWIDTH
from spark_tui.catalog.presets.model.preset import Preset

MOST: Final = 3
"""Presets for one model."""


@port_named("ollama")
class OllamaApi(Protocol):
    """Ollama on this or another machine, read only."""

    async def models(self, address: str = "") -> OllamaModels:
        """What it has, MAX_MODELS at most. `address` as OLLAMA_HOST has it; empty: what that variable says, else this
        machine. Raises OllamaUnreachable, UsageError."""


class Replacement(Struct, frozen=True):
    """What serves a model in place of Ollama, the best first; `reason` says why nothing does. `now` is the speed that
    Ollama reaches with it: published, else what the memory's bandwidth allows at most; None where unknown."""

    model: OllamaModel
    picks: tuple[Pick, ...] = ()
    now: Speed | None = None
    reason: str = ""

    def gain(self, pick: Pick) -> float | None:
        """How many times as fast a preset is expected to be."""
        return pick.speed.rate / self.now.rate if self.now is not None else None


def replacements(
    models: Sequence[OllamaModel], candidates: Iterable[Candidate], purpose: Purpose
) -> tuple[Replacement, ...]:
    """One for each model, in their order. The candidates were judged with the purpose's context and users."""
    picks, others = recommend((each for each in candidates if each.preset.engine != OLLAMA.id), purpose)
    found = []
    for model in models:
        fitting = tuple(pick for pick in picks if _serves(pick.candidate.preset, model))
        refused = [each for each in others if _serves(each.candidate.preset, model)]
        example = fitting[0].candidate.preset if fitting else refused[0].candidate.preset if refused else None
        reason = "no preset has this model"
        if refused:
            reason = "; ".join(f"{each.candidate.preset.name}: {each.reason}" for each in refused[:MOST])
        found.append(Replacement(model, fitting[:MOST], _speed(model, example), "" if fitting else reason))
    return tuple(found)


def _serves(preset: Preset, model: OllamaModel) -> bool:
    return same_model(model, preset.model, preset.facts.total_parameters)


def _speed(model: OllamaModel, preset: Preset | None) -> Speed | None:
    """Ollama's own with one stream on one Spark."""
    words = family(model.name.replace(":", "-"))
    for each in published_facts().figure:
        if each.alone and each.runtime == OLLAMA.id and family(each.model) == words:
            return Speed(each.decode_rate, SpeedSource.PUBLISHED, f"{each.source}, {each.date}")
    total = preset.facts.total_parameters if preset is not None else None
    if preset is None or not total or not model.size:
        return None
    share = min(1.0, (preset.facts.active_parameters or total) / total)
    return Speed(PAPER_BANDWIDTH / (model.size * share), SpeedSource.ESTIMATED, "at most, by bytes read per token")
