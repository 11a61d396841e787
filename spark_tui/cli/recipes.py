"""presets list, presets show."""

from __future__ import annotations

from typing import Final

from spark_tui.cli import shapes
from spark_tui.cli.engines import suggestion
from spark_tui.cli.session import Session
from spark_tui.cli.tables import Cell, Column, Table, bulleted, labelled
from spark_tui.core.context import Context
from spark_tui.domain.engine.secrets import mask_secrets
from spark_tui.domain.errors import UnreachableError, UsageError
from spark_tui.domain.presets.catalogue import PresetCatalogue
from spark_tui.domain.presets.plan import LaunchPlan, Overrides, missing_values
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.quantities import human_bytes, short_tokens
from spark_tui.domain.text import clean_line, truncate

_COLUMNS: Final = (
    Column("NAME"),
    Column("WEIGHTS", right=True),
    Column("CONTEXT", right=True, spare=2),
    Column("PUBLISHED", right=True, spare=1),
    Column("MODEL", flexible=True, spare=3, least=24),
)


def find_preset(context: Context, name: str) -> Preset:
    """The preset of that name. Raises UsageError with near names, or the PresetError of a file that would be it."""
    catalogue = context.presets.load()
    found = catalogue.get(name)
    if found is not None:
        return found
    for problem in catalogue.problems:
        if problem.file.rpartition("/")[2].rpartition(".")[0] == name:
            raise problem
    raise UsageError(
        f"There is no preset named {truncate(clean_line(name), 60)}.",
        suggestion(name, [preset.name for preset in catalogue.presets], "presets"),
    )


async def planned(context: Context, preset: Preset, overrides: Overrides) -> LaunchPlan:
    """With the image's own entrypoint where Docker answers, else by its name."""
    try:
        return await context.preflight.plan(preset, overrides)
    except UnreachableError:
        return context.preflight.dry_plan(preset, overrides)


def list_presets(session: Session) -> None:
    """Every preset that can be read; what cannot goes to standard error."""

    async def load(context: Context) -> PresetCatalogue:
        return context.presets.load()

    catalogue = session.run(load)
    if session.as_json:
        session.out.json([shapes.preset(preset) for preset in catalogue.presets])
    else:
        session.out.table(Table(_COLUMNS, tuple(_row(preset) for preset in catalogue.presets)))
    for problem in catalogue.problems:
        session.err.problem(problem)


def _row(preset: Preset) -> tuple[Cell | str, ...]:
    facts = preset.facts
    best = max((speed.tokens_per_second for speed in facts.published), default=None)
    return (
        Cell(preset.name, "bold"),
        "-" if facts.weights_bytes is None else human_bytes(facts.weights_bytes),
        "-" if facts.context_tokens is None else short_tokens(facts.context_tokens),
        "-" if best is None else f"{best:.0f} tok/s",
        preset.model,
    )


def show_preset(session: Session, name: str) -> None:
    """One preset, with everything that is known about it."""

    async def load(context: Context) -> Preset:
        return find_preset(context, name)

    preset = session.run(load)
    if session.as_json:
        session.out.json(shapes.preset_detail(preset))
        return
    width = session.out.terminal.width
    lines = labelled(_facts(preset), width)
    for title, items in _lists(preset):
        lines += ["", title, *bulleted(items, width)]
    lines += ["", "command", *(f"  {line}" for line in _command(preset))]
    session.out.lines(clean_line(line) for line in lines)
    session.err.say(f"The exact docker run: spark-tui up {preset.name} --dry-run")


def _facts(preset: Preset) -> tuple[tuple[str, str], ...]:
    facts = preset.facts
    sparks = "one Spark" if preset.min_nodes == 1 else f"{preset.min_nodes} Sparks"
    return (
        ("name", preset.name),
        ("title", facts.title),
        ("about", facts.description),
        ("model", f"{preset.model} @ {preset.model_revision}" if preset.model_revision else preset.model),
        ("image", preset.image),
        ("runtime", f"{preset.runtime} on {sparks}{', no GPU needed' if preset.cpu_only else ''}"),
        ("size", _size(preset)),
        ("quantization", facts.quantization),
        ("context", "" if facts.context_tokens is None else f"{facts.context_tokens:,} tokens"),
        ("input", ", ".join(facts.modalities)),
        ("publisher", facts.publisher),
        ("licence", facts.licence + (" (gated)" if facts.gated else "")),
        ("source", facts.source),
        ("file", f"{preset.file} ({preset.origin.value})"),
        ("needs", ", ".join(f"--set {key}=..." for key in missing_values(preset))),
    )


def _size(preset: Preset) -> str:
    facts = preset.facts
    parts = []
    if facts.total_parameters:
        active = f", {facts.active_parameters / 1e9:.3g} B active" if facts.active_parameters else ""
        parts.append(f"{facts.total_parameters / 1e9:.3g} B parameters{active}")
    if facts.weights_bytes is not None:
        parts.append(f"{human_bytes(facts.weights_bytes)} on disk")
    return "; ".join([*parts, facts.architecture] if facts.architecture else parts)


def _lists(preset: Preset) -> list[tuple[str, list[str]]]:
    facts = preset.facts
    published = [f"{s.tokens_per_second:g} tok/s: {s.conditions} [{s.source}]" for s in facts.published]
    found = [
        ("defaults", [f"{key} = {value}" for key, value in preset.defaults if value is not None]),
        ("environment", [mask_secrets(f"{key}={value}") for key, value in preset.env]),
        ("needed in the model store", [file.target for file in facts.required_files]),
        ("done at each start", [f"{step.command}: {step.summary}" for step in facts.required_steps]),
        ("notes", list(facts.notes)),
        ("cautions", list(facts.cautions)),
        ("published speeds", published),
        ("sampling that its makers recommend", [f"{key} = {value}" for key, value in facts.sampling]),
    ]
    return [(title, items) for title, items in found if items]


def _command(preset: Preset) -> list[str]:
    if preset.facts.runs_as_is:
        return ["(the image runs as it is, with the environment above)"]
    return preset.command.strip().splitlines() or [f"(made from the defaults) serve {preset.model}"]
