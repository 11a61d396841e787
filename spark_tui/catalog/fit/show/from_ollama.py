"""What is shown of presets in place of Ollama's models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.base.page import Cell, Column, Object, Page, Row, Section, Table, Tone, cells, maybe
from spark_tui.base.quantities import human_bytes
from spark_tui.catalog.fit.show.presets import BASIS_MARKS, fits_cell
from spark_tui.catalog.fit.use.from_ollama import Replacement
from spark_tui.catalog.fit.use.recommend import Disk, Pick, Speed, SpeedSource
from spark_tui.catalog.models.model.ollama import OllamaModels

_COLUMNS: Final = (
    Column("OLLAMA"), Column("DISK", right=True, keep=3), Column("NOW", right=True, keep=5), Column("PRESET"),
    Column("FITS", least=11), Column("TOK/S", right=True), Column("GAIN", right=True), Column("DOWNLOAD", keep=2),
)  # fmt: skip
_UNKNOWN: Final = "-"


def replacements_page(store: OllamaModels, found: Sequence[Replacement]) -> Page:
    """A row for each preset that serves a model of Ollama's, then the models that none serves."""
    rows = []
    for each in (one for one in found if one.picks):
        for at, pick in enumerate(each.picks):
            gain = each.gain(pick)
            rows.append(
                cells(
                    each.model.name if at == 0 else "",
                    (human_bytes(each.model.size) if each.model.size else _UNKNOWN) if at == 0 else "",
                    _rate(each.now) if at == 0 else "",
                    Cell(pick.candidate.preset.name, Tone.STRONG),
                    fits_cell(pick.candidate),
                    _rate(pick.speed),
                    _UNKNOWN if gain is None else f"{gain:.1f}x",
                    _download(pick),
                )
            )
    marks = Row("* measured here   ~ estimated, at most for Ollama   otherwise published", tone=Tone.QUIET)
    none = f"Ollama at {store.address} has no models." if not found else "No preset serves a model of Ollama's."
    without = tuple(Row(f"{one.model.name}: {one.reason}", tone=Tone.QUIET) for one in found if not one.picks)
    return (
        *((Section(table=Table(_COLUMNS, tuple(rows))), Section("", (marks,))) if rows else (Section(none),)),
        *((Section(f"Without a preset: {len(without)}", without),) if without else ()),
    )


def _rate(speed: Speed | None) -> str:
    return _UNKNOWN if speed is None else f"{speed.rate:.0f}{BASIS_MARKS[speed.basis]}"


def _download(pick: Pick) -> str:
    """What fetching the model takes on disk."""
    size = pick.candidate.preset.facts.weights_bytes
    if pick.candidate.disk is Disk.YES:
        return "no"
    return human_bytes(size) if size else "unknown size"


def replacements_object(store: OllamaModels, found: Sequence[Replacement]) -> Object:
    return {
        "address": store.address,
        "left_out": store.left_out,
        "models": [
            {
                "id": each.model.name,
                **maybe("size_bytes", each.model.size or None, "Ollama does not say"),
                **maybe("parameters", each.model.parameters, "Ollama does not say"),
                "quantization": each.model.quantization or None,
                **maybe("speed", _speed_object(each.now) if each.now else None, "neither published nor estimated"),
                "presets": [
                    {
                        "id": pick.candidate.preset.name,
                        "speed": _speed_object(pick.speed),
                        **maybe("gain", each.gain(pick), "the speed with Ollama is unknown"),
                        **maybe("weights_bytes", pick.candidate.preset.facts.weights_bytes, "the recipe does not say"),
                        "model_on_disk": pick.candidate.disk is Disk.YES,
                    }
                    for pick in each.picks
                ],
                **maybe("reason", each.reason or None, "a preset serves it"),
            }
            for each in found
        ],
    }


def _speed_object(speed: Speed) -> Object:
    return {
        "tokens_per_second": speed.rate,
        "basis": speed.basis.value,
        "source": speed.source,
        "is_bound": speed.basis is SpeedSource.ESTIMATED,
    }
