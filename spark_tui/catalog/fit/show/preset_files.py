"""What is shown of a preset's file: how a container differs from it, imports, pins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_tui.base.engine.image import mod_words, short_digest
from spark_tui.base.page import (
    Object,
    Page,
    Row,
    Section,
    Tone,
    finding_section,
    labelled,
    maybe,
)
from spark_tui.base.quantities import human_duration
from spark_tui.base.secret import mask_secrets
from spark_tui.catalog.presets.model.diff import Diff, DiffRow
from spark_tui.catalog.presets.model.recipe import LAUNCHERS
from spark_tui.catalog.presets.model.registry import review_of
from spark_tui.catalog.presets.use.imports import ImportedRecipe, ImportOutcome, ImportReport
from spark_tui.catalog.presets.use.pins import ImageMatch, LastGood, PinPlan
from spark_tui.observe.metrics.show.history import start_object, when


def diff_page(found: Diff, rows: Sequence[DiffRow], *, launch: bool = False) -> Page:
    """Preset and container side by side; with `launch` also what a launch with changes would use."""
    count = len(found.differing)
    differ = {0: "no setting differs", 1: "one setting differs"}.get(count, f"{count} settings differ")
    where = f"container {found.container}" if found.container else "not running"
    sections = [Section(f"preset {found.preset}, {where}: {differ}")]
    for row in rows:
        values = [Row(row.preset or "absent", "preset")]
        values += [Row(row.launch or "absent", "launch")] if launch else []
        values += [Row(row.running or "absent", "running", Tone.WARNING)] if found.container else []
        sections.append(Section(row.setting, tuple(values)))
    return tuple(sections)


def running_page(found: Diff) -> Page:
    """Where the container of a preset is not what the preset says."""
    if not found.container:
        return (Section(rows=(Row("Not running. Launch it to compare settings.", tone=Tone.QUIET),)),)
    if not found.differing:
        return (Section(rows=(Row(f"{found.container} runs exactly what this preset says.", tone=Tone.GOOD),)),)
    return diff_page(found, found.differing)


OUTCOMES: Final = {
    ImportOutcome.IMPORTED: Tone.GOOD,
    ImportOutcome.UNCHANGED: Tone.QUIET,
    ImportOutcome.REFUSED: Tone.BAD,
}


def import_page(report: ImportReport, *, refused: bool = True) -> Page:
    """How many of each outcome, then every recipe with what a person should know of it. `refused`: those that were
    refused, and files that were skipped, too."""
    recipes = [each for each in report.recipes if refused or each.problem is None]
    skipped = tuple(Row(str(problem), tone=Tone.WARNING) for problem in report.passed_over if refused)
    return (
        Section(import_counts(report)),
        *(_imported(each) for each in recipes),
        *((Section("Skipped", skipped),) if skipped else ()),
    )


def import_counts(report: ImportReport) -> str:
    """`2 imported, 1 refused`."""
    return ", ".join(f"{count} {outcome.value}" for outcome in ImportOutcome if (count := report.count(outcome)))


def _imported(imported: ImportedRecipe) -> Section:
    recipe = imported.recipe
    if imported.problem is not None:
        more = (("cause", imported.problem.summary), ("fix", imported.problem.remedy))
        return Section(rows=(Row(recipe.name, imported.outcome.value, Tone.BAD), *labelled(more)))
    kind = f"the {recipe.dialect} " if recipe.dialect in LAUNCHERS else ""
    where = f"{recipe.name} from {kind}{recipe.path}{f' -> {imported.file}' if imported.file else ''}"
    rows = [Row(where, imported.outcome.value, OUTCOMES[imported.outcome])]
    lists = (
        ("changed", recipe.changes),
        ("note", recipe.notes),
        ("not used", tuple(mask_secrets(f"{key} = {value}") for key, value in recipe.kept)),
        ("never run", recipe.hooks),
        ("needs", tuple(f"a value for {key}" for key in recipe.needs)),
    )
    rows += [row for finding in review_of(recipe) for row in finding_section(finding).rows]
    rows += [Row(text, label) for label, texts in lists for text in texts]
    image = recipe.preset.reference if recipe.preset is not None else ""
    for mod in recipe.mods:
        does = mod_words(mod.name, image).removeprefix(mod.name).replace(": ", ". It ", 1)
        rows.append(Row(f"{mod.name}, not applied: {mod.script or 'not in the registry'}{does}", "mod"))
        rows += [Row(line, "|", Tone.QUIET) for line in mod.lines]
        rows += [Row(f"({mod.more_lines} more lines)", "|", Tone.QUIET)] if mod.more_lines else []
    return Section(rows=tuple(rows))


def last_good_rows(last: LastGood, back: str) -> tuple[tuple[str, str], ...]:
    """Labels and texts: the last good start, and how the image of a launch now compares with it. `back` is the key or
    command that goes back to it."""
    start = last.start
    if start is None:
        return (("last served", last.why),)
    took = "" if start.seconds is None else f"ready after {human_duration(start.seconds)}"
    version = f"{start.runtime} {start.version}" if start.version else ""
    image = short_digest(start.image_digest) or f"image id {short_digest(start.image_id)}"
    now = _MATCHES[last.match]
    if last.match is ImageMatch.UNKNOWN:
        now = f"{now} ({last.why})"
    if last.match is ImageMatch.DIFFERS:
        now += f"; go back: {back}"
    return (
        ("last served", ", ".join(filter(None, (when(start.at), took, version, image)))),
        ("image now", now),
    )


_MATCHES: Final = {
    ImageMatch.SAME: "unchanged",
    ImageMatch.DIFFERS: "changed",
    ImageMatch.ABSENT: "not downloaded",
    ImageMatch.UNKNOWN: "unknown",
}


def pin_page(plan: PinPlan, file: str = "") -> Page:
    """What a pin changes in the preset's file; `file` is the one that was written."""
    name = plan.preset.name
    start = plan.start
    served = f"{when(start.at)}, {start.runtime} {start.version}".strip() if start is not None else ""
    rows = labelled(
        (
            ("image", plan.reference),
            ("last served", served),
            ("written", file),
            ("copy", f"{name} is yours from now on, in place of the {plan.preset.origin.value} preset" * plan.copy),
        )
    )
    change = tuple(Row(line, tone=_DIFF_TONES.get(line[:1], Tone.QUIET)) for line in plan.diff)
    return (Section(name, rows), Section("Change", change))


_DIFF_TONES: Final = {"+": Tone.GOOD, "-": Tone.BAD}


def pin_object(plan: PinPlan, file: str = "") -> Object:
    good_start = start_object(plan.start) if plan.start is not None else None
    return {
        "id": plan.preset.name,
        "image": plan.reference,
        "image_before": plan.preset.reference,
        "copy": plan.copy,
        "diff": list(plan.diff),
        **maybe("good_start", good_start, "the digest is not of a known good start"),
        **maybe("file", file, "nothing was written"),
    }


def last_good_object(last: LastGood) -> Object:
    """`last_good_start`, and `image_match`: same, differs, absent, or null where it is unknown."""
    match = last.match.value if last.start is not None and last.match is not ImageMatch.UNKNOWN else None
    start = start_object(last.start) if last.start is not None else None
    return {**maybe("last_good_start", start, last.why), **maybe("image_match", match, last.why)}
