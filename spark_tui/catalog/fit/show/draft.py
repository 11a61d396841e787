"""A preset draft: every value with its source, what is uncertain, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping

from spark_tui.base.engine.invocation import OPTIONS
from spark_tui.base.page import Cell, Column, Object, Page, Row, Section, Table, Tone, cells, maybe
from spark_tui.catalog.fit.model.draft import Draft, DraftValue
from spark_tui.catalog.fit.model.fit import FitWord
from spark_tui.catalog.fit.model.verdict import LaunchVerdict

FIT_TONES = {FitWord.FITS: Tone.GOOD, FitWord.FITS_WITH: Tone.GOOD, FitWord.UNKNOWN: Tone.QUIET}
UNKNOWN_FIT = "unknown: the memory or the model could not be read"


def draft_page(
    draft: Draft,
    verdict: LaunchVerdict | None,
    command: str = "",
    fetch: str = "",
    changes: Mapping[str, str] | None = None,
) -> Page:
    """`fetch` is what a launch downloads first, `changes` its settings other than the draft's, `command` the docker
    run."""
    changed = ", ".join(
        f"{OPTIONS[key].label if key in OPTIONS else key} {text}" for key, text in (changes or {}).items()
    )
    rows = [Row(f"{changed} (by the log, and the memory now)", "changed", Tone.STRONG)] if changed else []
    if verdict is not None:
        why = verdict.fit.reasons[0] if verdict.word is FitWord.DOES_NOT_FIT and verdict.fit.reasons else ""
        rows.append(Row(": ".join(filter(None, (verdict.text, why))), "fit", FIT_TONES.get(verdict.word, Tone.WARNING)))
    rows += [Row(fetch, "download")] if fetch else []
    columns = (Column("SETTING"), Column("VALUE", least=12), Column("SOURCE", least=16))
    table = Table(columns, tuple(map(_value_row, draft.values)))
    doubts = [Row(f"{each.label}: {each.doubt}", "?", Tone.WARNING) for each in draft.doubts]
    notes = [Row(note, "-", Tone.QUIET) for note in draft.notes]
    sections = (
        Section(rows=tuple(rows)),
        Section(table=table),
        Section("Uncertain", tuple(doubts)) if doubts else Section(),
        Section("Notes", tuple(notes)) if notes else Section(),
        Section("Command", command=command) if command else Section(),
    )
    return tuple(each for each in sections if each != Section())


def _value_row(value: DraftValue) -> tuple[Cell, ...]:
    tone = Tone.WARNING if value.doubt else Tone.PLAIN
    source = f"{value.basis}: {value.source}" if value.source else str(value.basis)
    return cells(Cell(value.label, Tone.QUIET), Cell(f"{'? ' * bool(value.doubt)}{value.text}", tone), source)


def draft_object(draft: Draft, verdict: LaunchVerdict | None, file: str = "") -> Object:
    preset = draft.preset
    return {
        "id": draft.name,
        "model": preset.model,
        "runtime": preset.runtime,
        "image": preset.image,
        "values": [
            {
                "id": each.key,
                "label": each.label,
                "value": each.text,
                "basis": each.basis.value,
                "source": each.source,
                "uncertain": bool(each.doubt),
                "doubt": each.doubt,
            }
            for each in draft.values
        ],
        "notes": list(draft.notes),
        **maybe("fit", verdict.word.value if verdict is not None else None, UNKNOWN_FIT),
        **maybe("saved", file or None, "not saved"),
        "recipe": draft.text,
    }
