"""What is shown of registries: the list, and what changed between two commits."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from typing import Final

from spark_tui.base.page import (
    Cell,
    Column,
    Object,
    Page,
    Row,
    Section,
    Table,
    Tone,
    cells,
    finding_object,
    finding_section,
)
from spark_tui.catalog.presets.model.registry import KNOWN, ChangedPart, ChangeKind, PinnedRegistry, RecipeChange
from spark_tui.catalog.presets.use.registries import RegistryUpdate

_TONES: Final = {ChangeKind.ADDED: Tone.GOOD, ChangeKind.REMOVED: Tone.BAD, ChangeKind.CHANGED: Tone.WARNING}
_MARKS: Final = {"+": Tone.GOOD, "-": Tone.BAD}


def registries_table(pins: Sequence[PinnedRegistry]) -> Table:
    """A row for each registry; without any, which ones can be added."""
    columns = (
        Column("NAME"),
        Column("COMMIT"),
        Column("FETCHED", keep=3),
        Column("RECIPES", right=True),
        Column("REFUSED", right=True, keep=2),
        Column("ADDRESS", keep=1, least=20),
    )
    rows = [
        cells(
            Cell(pin.name, Tone.STRONG),
            pin.commit[:12],
            time.strftime("%Y-%m-%d", time.localtime(pin.fetched)),
            str(sum(not each.problem for each in pin.recipes)),
            str(sum(bool(each.problem) for each in pin.recipes)),
            pin.address,
        )
        for pin in pins
    ]
    known = ", ".join(f"{name} ({each.content})" for name, each in KNOWN.items())
    empty = f"No registry is used. Add one: spark-tui registries add NAME [ADDRESS]. Known: {known}."
    return Table(columns, tuple(rows), tuple(pin.name for pin in pins), empty)


def update_page(update: RegistryUpdate, *, whole: bool = True) -> Page:
    """Each recipe that changed: what it takes of the machine, then command, image, environment and hooks first, by
    lines. Not `whole`: of added recipes a line, and what they take."""
    pin = update.pinned
    copies = [finding_section(each) for each in update.drifted]
    if update.unapproved:
        rows = [Row(f"spark-tui registries approve {name}", name, Tone.WARNING) for name in update.unapproved]
        copies.append(Section("No longer approved", tuple(rows)))
    if update.skipped:
        copies.append(Section("Skipped", tuple(Row(each, tone=Tone.WARNING) for each in update.skipped)))
    if not update.changes:
        same = "no recipe changed" if pin.commit != update.commit else "unchanged"
        return (Section(f"{pin.name}: {same} ({update.commit[:12]})"), *copies)
    counts = {kind: sum(each.kind is kind for each in update.changes) for kind in ChangeKind}
    summary = ", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count)
    changes = [
        section
        for each in update.changes
        for section in (_change(each, whole=whole), *(finding_section(found) for found in each.findings))
    ]
    commits = update.commit[:12] if update.moved else f"{pin.commit[:12] or 'nothing'} -> {update.commit[:12]}"
    return (Section(f"{pin.name}: {summary} ({commits})"), *changes, *copies)


def _change(change: RecipeChange, *, whole: bool) -> Section:
    if change.kind is ChangeKind.CHANGED:
        rows = [row for part in change.parts for row in _lines(part)]
        return Section(change.name, tuple(rows) or (Row("Only what is not used changed.", tone=Tone.QUIET),))
    shown = {part.part: part.after or part.before for part in change.parts}
    text = shown.get("problem") or "  ".join(filter(None, (shown.get("model"), shown.get("image"))))
    parts = (*(("command", "env", "mounts") if whole and change.kind is ChangeKind.ADDED else ()), "hooks", "mods")
    code = [Row(shown[name], name, Tone.WARNING) for name in parts if name in shown]
    return Section(change.name, (Row(f"{change.kind.value}: {text}", tone=_TONES[change.kind]), *code))


def _lines(part: ChangedPart) -> list[Row]:
    compared = difflib.ndiff(part.before.splitlines(), part.after.splitlines())
    changed = [line for line in compared if line[:1] in _MARKS]
    return [Row(line, part.part if at == 0 else " ", _MARKS[line[0]]) for at, line in enumerate(changed)]


def registry_object(pin: PinnedRegistry) -> Object:
    return {
        "id": pin.name,
        "address": pin.address,
        "commit": pin.commit,
        "fetched_unix_seconds": pin.fetched,
        "recipes": [
            {
                "id": each.name,
                "path": each.path,
                "sha256": each.digest,
                "approved": each.digest in pin.trusted,
                "problem": each.problem or None,
            }
            for each in pin.recipes
        ],
    }


def update_object(update: RegistryUpdate) -> Object:
    return {
        "id": update.pinned.name,
        "pinned_commit": update.pinned.commit,
        "commit": update.commit,
        "moved": update.moved,
        "changes": [
            {
                "id": each.name,
                "change": each.kind.value,
                "parts": [{"part": part.part, "before": part.before, "after": part.after} for part in each.parts],
                "findings": [finding_object(finding) for finding in each.findings],
            }
            for each in update.changes
        ],
        "approvals_dropped": list(update.unapproved),
        "skipped": list(update.skipped),
        "outdated_copies": [{"preset": each.subject, **finding_object(each)} for each in update.drifted],
    }
