"""What is shown of presets: the list, a preset's pages, findings of the rules, differences, imports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from spark_tui.core.preset_imports import ImportedRecipe, ImportOutcome, ImportReport
from spark_tui.domain.engine.container import ImageFacts
from spark_tui.domain.errors import PresetError, SparkError
from spark_tui.domain.finding import Finding, Severity
from spark_tui.domain.presets.command import missing_values
from spark_tui.domain.presets.diff import Diff, DiffRow
from spark_tui.domain.presets.fit import Fit
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.domain.presets.preset import Origin, Preset, PresetCatalogue, PresetFacts
from spark_tui.domain.quantities import human_bytes, human_count, short_tokens
from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean_line, truncate
from spark_tui.present.json import Object, maybe
from spark_tui.present.launch import ABOUT_NOW, finding_section, fit_word
from spark_tui.present.page import Cell, Column, Page, Row, Section, Table, Tone, cells, labelled

MAX_CELL: Final = 200
PROBLEM: Final = "problem:"
"""Before the number of an unreadable file: its row's id. No preset is named so: names become container names."""
Checked: TypeAlias = tuple[Finding, ...] | SparkError
"""What the rules find in a preset, or why it cannot be planned at all."""


@dataclass(frozen=True, slots=True)
class ImageStatus:
    """Whether a preset's image is downloaded. `known` False: Docker did not answer, `why` has the reason."""

    known: bool = False
    image: ImageFacts | None = None
    why: str = "not checked yet"

    @property
    def text(self) -> str:
        if not self.known:
            return f"download state unknown: {self.why}"
        return "downloaded" if self.image else "not downloaded (pulled at launch)"


@dataclass(frozen=True, slots=True)
class PresetEntry:
    """A preset with what is known about launching it here. None: not worked out yet."""

    preset: Preset
    image: ImageStatus = ImageStatus()
    checked: Checked | None = None
    fit: Fit | None = None


# --- lists ------------------------------------------------------------------------------------------------

COLUMNS: Final = (
    Column("preset", least=28),  # distinguishes each preset from its variants
    Column("size", keep=6),
    Column("quant", keep=4),
    Column("ctx", right=True, keep=3),
    Column("tok/s", right=True, keep=5),
    Column("checks", keep=8),
    Column("fit", keep=7),
    Column("image", keep=2),
    Column("", keep=1),
)


def matches(preset: Preset, words: Iterable[str]) -> bool:
    """Whether every word of the filter (in lower case) occurs in what identifies the preset."""
    facts = preset.facts
    texts = (preset.name, facts.title, facts.family, facts.quantization, facts.publisher, preset.model, preset.runtime)
    text = " ".join((*texts, preset.image, facts.category, preset.origin.value)).lower()
    return all(word in text for word in words)


def order(preset: Preset) -> tuple[bool, str, str]:
    """By family; what needs no GPU comes last."""
    return (_on_cpu(preset), preset.facts.family.lower() or "~", preset.name)


def _on_cpu(preset: Preset) -> bool:
    return preset.facts.category == "cpu" or preset.cpu_only


def list_table(entries: Sequence[PresetEntry], problems: Sequence[PresetError] = (), empty: str = "") -> Table:
    """A row for each preset, under its family, and for each unreadable file."""
    rows, groups, ids = [], [], []
    for entry in entries:
        preset, facts = entry.preset, entry.preset.facts
        quantization = facts.quantization[:MAX_CELL].partition(" ")[0].strip(",;")
        title = facts.title[:MAX_CELL].replace(f" {quantization}", "") if quantization else facts.title
        best, image = best_speed(facts), entry.image
        state = ("here" if image.image else "no") if image.known else "?"
        rows.append(
            cells(
                title or preset.name,
                Cell(_size(facts), Tone.QUIET),
                quantization,
                Cell(short_tokens(facts.context_tokens) if facts.context_tokens else "", Tone.QUIET),
                f"{best:.0f}" if best else "",
                verdict(entry.checked),
                fit_word(entry.fit),
                Cell(state, Tone.GOOD if image.image else Tone.QUIET),
                "yours" if preset.origin is Origin.USER else "",
            )
        )
        family = truncate(clean_line(facts.family), MAX_CELL) or "Others"
        groups.append("On the CPU" if _on_cpu(preset) else family)
        ids.append(preset.name)
    for number, problem in enumerate(problems):
        file = problem.file.rpartition("/")[2]
        place = f"{file}:{problem.line}" if problem.line else file
        rows.append(cells(Cell(f"unreadable {place}  {problem.summary}", Tone.BAD), *[""] * (len(COLUMNS) - 1)))
        groups.append("Unreadable files")
        ids.append(f"{PROBLEM}{number}")
    return Table(COLUMNS, tuple(rows), tuple(ids), empty, tuple(groups))


def names_table(catalogue: PresetCatalogue) -> Table:
    """A row for each preset, with the name that commands take."""
    columns = (
        Column("NAME"),
        Column("WEIGHTS", right=True),
        Column("CONTEXT", right=True, keep=1),
        Column("PUBLISHED", right=True, keep=2),
        Column("MODEL", keep=0, least=24),
    )
    rows = []
    for preset in catalogue.presets:
        facts, best = preset.facts, best_speed(preset.facts)
        weights = "-" if facts.weights_bytes is None else human_bytes(facts.weights_bytes)
        context = "-" if facts.context_tokens is None else short_tokens(facts.context_tokens)
        speed = "-" if best is None else f"{best:.0f} tok/s"
        rows.append(cells(Cell(preset.name, Tone.STRONG), weights, context, speed, preset.model))
    return Table(columns, tuple(rows), tuple(preset.name for preset in catalogue.presets))


def best_speed(facts: PresetFacts) -> float | None:
    """The highest published speed in tokens per second."""
    return max((speed.tokens_per_second for speed in facts.published), default=None)


def _size(facts: PresetFacts) -> str:
    """`35/3B`: all parameters and the active ones."""
    counts = [count for count in (facts.total_parameters, facts.active_parameters) if count is not None]
    texts = [f"{count / 1e9:.0f}B" if count >= 20e9 else _billions(count) for count in counts]
    if facts.total_parameters is None:
        return ""
    return texts[0] if counts[-1] == counts[0] else f"{texts[0].removesuffix('B')}/{texts[-1]}"


def _billions(count: float) -> str:
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


# --- a preset ---------------------------------------------------------------------------------------------


def overview(preset: Preset, image: ImageStatus | None = None) -> Page:
    """Everything that the recipe says of its model. `image`: whether it is downloaded, where that is looked up."""
    facts = preset.facts
    gate = {True: "gated: accept the licence on the model's page first", False: "not gated", None: ""}[facts.gated]
    sparks = "one Spark" if preset.min_nodes == 1 else f"{preset.min_nodes} Sparks"
    values = (
        ("name", "" if image else preset.name),
        ("model", f"{preset.model} @ {preset.model_revision}" if preset.model_revision else preset.model),
        ("publisher", facts.publisher),
        ("family", facts.family),
        ("kind", facts.architecture),
        ("size", _sizes(facts)),
        ("quantization", facts.quantization),
        ("context", f"{human_count(facts.context_tokens)} tokens" if facts.context_tokens else ""),
        ("input", ", ".join(facts.modalities)),
        ("licence", ", ".join(filter(None, (facts.licence, gate)))),
        ("image", f"{preset.image}, {image.text}" if image else preset.image),
        ("runtime", f"{preset.runtime} on {sparks}{', no GPU needed' if preset.cpu_only else ''}"),
        ("sampling", ", ".join(f"{key} {value}" for key, value in facts.sampling if value is not None)),
        ("includes", ", ".join(preset.includes)),
        ("source", facts.source),
        ("file", f"{preset.file} ({preset.origin.value})"),
        ("needs", ", ".join(missing_values(preset))),
    )
    about = (Row(facts.description, tone=Tone.QUIET),) if facts.description else ()
    speeds = [f"{each.tokens_per_second:g} tok/s: {each.conditions} [{each.source}]" for each in facts.published]
    return (
        Section(facts.title or preset.name, about),
        Section(rows=labelled(values)),
        *_listed("Published speeds", speeds),
        *_listed("Cautions", facts.cautions, Tone.WARNING),
        *_listed("Notes", facts.notes),
        *_listed("Hooks, never run by spark-tui", preset.hooks),
        *_listed("Mods, not applied by spark-tui", preset.mods),
        *_listed("Kept, not used", [mask_secrets(f"{key}: {value}") for key, value in preset.unknown]),
    )


def recipe(preset: Preset) -> Page:
    facts = preset.facts
    if facts.runs_as_is:
        command = Section("Command", (Row("(the image runs as it is, with the environment above)"),))
    else:
        text = preset.command.strip() or f"(made from the defaults) serve {preset.model}"
        command = Section("Command", command=mask_secrets(text))
    return (
        *_listed("Defaults", [f"{key} = {value}" for key, value in preset.defaults if value is not None]),
        *_listed("Environment", [mask_secrets(f"{key}={value}") for key, value in preset.env]),
        *_listed("Needed in the model store", [file.target for file in facts.required_files]),
        *_listed("Done at each start", [f"{step.command}: {step.summary}" for step in facts.required_steps]),
        command,
    )


def _listed(title: str, texts: Sequence[str], tone: Tone = Tone.PLAIN) -> Page:
    return (Section(title, tuple(Row(text, "-", tone) for text in texts)),) if texts else ()


def _sizes(facts: PresetFacts) -> str:
    words = []
    if facts.total_parameters:
        words.append(f"{_billions(facts.total_parameters)} parameters")
    if facts.active_parameters and facts.active_parameters != facts.total_parameters:
        words.append(f"{_billions(facts.active_parameters)} active")
    if facts.weights_bytes:
        words.append(f"{human_bytes(facts.weights_bytes)} of weights")
    return ", ".join(words)


def problem_page(problem: PresetError) -> Page:
    """What is wrong with a file, where, and what to do."""
    rows = (Row(problem.summary, tone=Tone.BAD), Row(problem.remedy))
    detail = tuple(Row(line, tone=Tone.QUIET) for line in problem.detail.split("\n")[:40] if problem.detail)
    return (Section(problem.where, rows), *((Section(rows=detail),) if detail else ()))


def refusal(error: SparkError) -> Page:
    rows = (
        Row("This preset cannot be launched.", tone=Tone.BAD),
        Row(error.summary, tone=Tone.BAD),
        Row(error.remedy),
    )
    return (Section(rows=rows),)


def plan_notes(plan: LaunchPlan, image: ImageStatus) -> Page:
    """What a person should know before this launch, above the command."""
    notes = [*([] if image.known else [f"Image: {image.text}"]), *plan.notes]
    return (Section(rows=tuple(Row(note, "!", Tone.WARNING) for note in notes)),) if notes else ()


# --- findings of the rules --------------------------------------------------------------------------------


def verdict(checked: Checked | None) -> Cell:
    """The worst that the rules found, in a word."""
    if checked is None:
        return Cell("...", Tone.QUIET)
    if isinstance(checked, SparkError):
        return Cell("error", Tone.BAD)
    found = {finding.severity for finding in checked if finding.id not in ABOUT_NOW}
    if Severity.ERROR in found:
        return Cell("error", Tone.BAD)
    return Cell("warn", Tone.WARNING) if Severity.WARNING in found else Cell("ok", Tone.GOOD)


def changes_of(findings: Iterable[Finding]) -> dict[str, str]:
    """What ends the findings: of two that change the same setting, the worse one's, which come first."""
    chosen: dict[str, str] = {}
    for finding in findings:
        for key, value in finding.change:
            chosen.setdefault(key, value)
    return chosen


def checks_page(checked: Checked | None) -> Page:
    if isinstance(checked, SparkError):
        return refusal(checked)
    if checked:
        return tuple(finding_section(finding) for finding in checked)
    row = Row("Not checked yet.", tone=Tone.QUIET) if checked is None else Row("No findings.", tone=Tone.GOOD)
    return (Section(rows=(row,)),)


# --- what runs --------------------------------------------------------------------------------------------


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


# --- imports ----------------------------------------------------------------------------------------------

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
    where = f"{recipe.name} from {recipe.path}{f' -> {imported.file}' if imported.file else ''}"
    rows = [Row(where, imported.outcome.value, OUTCOMES[imported.outcome])]
    lists = (
        ("changed", recipe.changes),
        ("note", recipe.notes),
        ("not used", tuple(mask_secrets(f"{key} = {value}") for key, value in recipe.kept)),
        ("never run", recipe.hooks),
        ("needs", tuple(f"a value for {key}" for key in recipe.needs)),
    )
    rows += [Row(text, label) for label, texts in lists for text in texts]
    for mod in recipe.mods:
        rows.append(Row(f"{mod.name}, not applied: {mod.script or 'not in the registry'}", "mod"))
        rows += [Row(line, "|", Tone.QUIET) for line in mod.lines]
        rows += [Row(f"({mod.more_lines} more lines)", "|", Tone.QUIET)] if mod.more_lines else []
    return Section(rows=tuple(rows))


# --- data -------------------------------------------------------------------------------------------------

NOT_STATED: Final = "the recipe does not say"
_NO_COMMAND: Final = {True: "the image runs as it is", False: "the command is made from the defaults"}


def preset_object(found: Preset) -> Object:
    return {
        "id": found.name,
        **_stated(found.facts, "title"),
        "origin": found.origin.value,
        "file": found.file,
        "model": found.model,
        "image": found.image,
        "runtime": found.runtime,
        **_stated(
            found.facts, "family", "category", "quantization", "context_tokens", "weights_bytes", "total_parameters",
            "active_parameters",
        ),
        "minimum_sparks": found.min_nodes,
        "published": [asdict(speed) for speed in found.facts.published],
    }  # fmt: skip


def _stated(facts: PresetFacts, *keys: str) -> Object:
    return {name: value for key in keys for name, value in maybe(key, getattr(facts, key), NOT_STATED).items()}


def preset_detail(found: Preset) -> Object:
    """One preset with everything that its recipe holds."""
    facts = found.facts
    return {
        **preset_object(found),
        **_stated(facts, "description", "publisher", "licence", "gated", "architecture"),
        "modalities": list(facts.modalities),
        **_stated(facts, "source"),
        **maybe("revision", found.model_revision, NOT_STATED),
        **maybe("command", found.command, _NO_COMMAND[facts.runs_as_is]),
        "defaults": {key: value for key, value in found.defaults if value is not None},
        "environment": {name: mask_secrets(f"{name}={value}").partition("=")[2] for name, value in found.env},
        "values_needed": list(missing_values(found)),
        "sampling": {key: value for key, value in facts.sampling if value is not None},
        "notes": list(facts.notes),
        "cautions": list(facts.cautions),
        "required_files": [
            {"id": f.target, "repo": f.repo, "file": f.file, "url": f.url, "for_chat": f.for_chat}
            for f in facts.required_files
        ],
        "required_steps": [{"id": step.command, "summary": step.summary} for step in facts.required_steps],
        **maybe("image_digest", facts.image_digest, "the image is named by its tag alone"),
        "runs_as_is": facts.runs_as_is,
        "wants_key": facts.wants_key,
        "hooks": list(found.hooks),
        "mods": list(found.mods),
        "unused": dict(found.unknown),
    }
