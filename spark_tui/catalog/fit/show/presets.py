"""What is shown of presets: the list, a preset's pages, findings of the rules, differences, imports."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from spark_tui.base.engine.container import ImageFacts
from spark_tui.base.engine.image import mod_words, patches_for, start_script
from spark_tui.base.engine.invocation import OFF
from spark_tui.base.engine.runtimes import published_words
from spark_tui.base.errors import PresetError, SparkError
from spark_tui.base.finding import Finding, Severity
from spark_tui.base.page import (
    TONES,
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
    labelled,
    maybe,
    titled,
)
from spark_tui.base.quantities import GIB, human_bytes, human_count, short_tokens
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line, truncate
from spark_tui.catalog.fit.model.fit import FitWord
from spark_tui.catalog.fit.show.launch import fit_word, verdict_object
from spark_tui.catalog.fit.use.finder import Search
from spark_tui.catalog.fit.use.recommend import RULE, Candidate, Disk, LeftOut, Pick, SpeedSource, crowded, on_cpu
from spark_tui.catalog.presets.model.command import ToolCalls, missing_values, tool_calls_of
from spark_tui.catalog.presets.model.plan import LaunchPlan
from spark_tui.catalog.presets.model.preset import Origin, Preset, PresetFacts, Tag
from spark_tui.observe.results.model.proof import Badge, Verdict

MAX_CELL: Final = 200
PROBLEM: Final = "problem:"
"""Before the number of an unreadable file: its row's id. No preset is named so: names become container names."""
Checked: TypeAlias = tuple[Finding, ...] | SparkError
"""What the rules find in a preset, or why it cannot be planned at all."""


class ImageStatus(Struct, frozen=True):
    """Whether a preset's image is downloaded. `known` False: Docker did not answer, `why` has the reason."""

    known: bool = False
    image: ImageFacts | None = None
    why: str = "not checked yet"

    @property
    def text(self) -> str:
        if not self.known:
            return f"download state unknown: {self.why}"
        return "downloaded" if self.image else "not downloaded (pulled at launch)"


# --- lists ------------------------------------------------------------------------------------------------

COLUMNS: Final[Mapping[str, Column]] = {
    "preset": Column("preset", least=28),  # distinguishes each preset from its variants
    "for": Column("for", keep=2, least=14),
    "ctx": Column("ctx", right=True, keep=5),
    "needs": Column("GiB", right=True, keep=7),
    "fits": Column("fits", keep=8, least=11),
    "tok_s": Column("tok/s", right=True, keep=6),
    "disk": Column("disk", keep=4),
    "tools": Column("tools", keep=4),
    "quant": Column("quant", keep=3),
    "proved": Column("proved", keep=1),
}
"""By the names under which people sort them."""
MARKS: Final = "ABC"
"""Before the presets that are marked for a comparison."""
OWN_SPEED: Final = "*"
"""After a speed that was measured on this machine."""


def list_table(
    found: Sequence[Candidate],
    problems: Sequence[PresetError] = (),
    empty: str = "",
    *,
    search: Search = Search(),  # noqa: B008 - immutable
    marked: Sequence[str] = (),
) -> Table:
    """A row for each preset, under its family while nothing else sorts them, and for each unreadable file."""
    rows, groups, ids = [], [], []
    for each in found:
        preset, facts = each.preset, each.preset.facts
        quantization = _quantization(facts)
        title = facts.title[:MAX_CELL].replace(f" {quantization}", "") if quantization else facts.title
        mark = f"{MARKS[marked.index(preset.name)]} " if preset.name in marked else ""
        rows.append((Cell(f"{mark}{title or preset.name}"), *_cells(each)))
        family = truncate(clean_line(facts.family), MAX_CELL) or "Others"
        groups.append("On the CPU" if on_cpu(preset) else "On several nodes" if preset.min_nodes > 1 else family)
        ids.append(preset.name)
    for number, problem in enumerate(problems):
        file = problem.file.rpartition("/")[2]
        place = f"{file}:{problem.line}" if problem.line else file
        rows.append(cells(Cell(f"unreadable {place}  {problem.summary}", Tone.BAD), *[""] * (len(COLUMNS) - 1)))
        groups.append("Unreadable files")
        ids.append(f"{PROBLEM}{number}")
    columns = tuple(
        replace(column, title=f"{column.title} {'^' if search.reverse else 'v'}") if name == search.sort else column
        for name, column in COLUMNS.items()
    )
    grouped = search.sort == "preset"
    heads = {
        name: _family_head(name, [each for each, group in zip(found, groups, strict=False) if group == name])
        for name in dict.fromkeys(groups)
    }
    columns = tuple(COLUMNS.values()) if grouped and not search.reverse else columns
    return Table(columns, tuple(rows), tuple(ids), empty, tuple(heads[name] for name in groups) if grouped else ())


def _family_head(name: str, found: Sequence[Candidate]) -> str:
    """`Gemma  6 presets, 3 fit, 2 downloaded, up to 30 tok/s  chat, vision`; of unreadable files the name alone."""
    fit = sum(each.verdict is not None and each.verdict.word in (FitWord.FITS, FitWord.FITS_WITH) for each in found)
    stored = sum(each.disk is Disk.YES for each in found)
    fastest = max((each.speed for each in found if each.speed is not None), default=0.0)
    counts = ((len(found), "presets"), (fit, "fit"), (stored, "downloaded")) if len(found) > 1 else ()
    parts = [f"{count} {word}" for count, word in counts if count]
    parts += [f"up to {fastest:.0f} tok/s"] if fastest else []
    tags = dict.fromkeys(tag for each in found for tag in each.preset.facts.tags)
    return "  ".join(filter(None, (name, ", ".join(parts), ", ".join(tags))))


_TITLES: Final = {"preset": "NAME", "needs": "GiB"}


def names_table(found: Sequence[Candidate]) -> Table:
    """The same columns with the name that commands take, and the model."""
    columns = (
        *(replace(each, title=_TITLES.get(name, each.title.upper()), least=0) for name, each in COLUMNS.items()),
        Column("MODEL", keep=0, least=24),
    )
    rows = [(Cell(each.preset.name, Tone.STRONG), *_cells(each), Cell(each.preset.model)) for each in found]
    return Table(columns, tuple(rows), tuple(each.preset.name for each in found), "No preset matches.")


def _cells(each: Candidate) -> tuple[Cell, ...]:
    """All columns but the name."""
    facts, speed = each.preset.facts, each.speed
    own = each.own_speed is not None
    return (
        Cell(
            ", ".join((*([each.preset.origin.value] if each.preset.origin in _NAMED_ORIGINS else []), *facts.tags)),
            Tone.QUIET,
        ),
        Cell(short_tokens(each.context) if each.context else "-", Tone.QUIET),
        Cell("-" if each.need is None else f"{each.need / GIB:.0f}"),
        fits_cell(each),
        Cell("-" if speed is None else f"{speed:.0f}{OWN_SPEED * own}", Tone.STRONG if own else Tone.PLAIN),
        Cell(*_DISK_CELLS[each.disk]),
        _tools_cell(each.tools),
        Cell(_quantization(facts), Tone.QUIET),
        _proof_cell(each.proof),
    )


def _proof_cell(proof: Badge | None) -> Cell:
    """`yes`, `3 fail`, `stale`, `part`, or `-` for what was never proved."""
    if proof is None:
        return Cell("-", Tone.QUIET)
    failed = len(proof.proof.ids(Verdict.FAIL))
    text = {Severity.OK: "yes", Severity.ERROR: f"{failed} fail", Severity.WARNING: "stale"}
    return Cell(text.get(proof.severity, "part"), TONES[proof.severity])


_NAMED_ORIGINS: Final = (Origin.USER, Origin.REGISTRY)
_DISK_CELLS: Final = {
    Disk.YES: ("yes", Tone.GOOD),
    Disk.PARTIAL: ("part", Tone.WARNING),
    Disk.CORRUPT: ("bad", Tone.BAD),
    Disk.NO: ("no", Tone.QUIET),
    Disk.UNKNOWN: ("?", Tone.QUIET),
}
_DISK_TEXTS: Final = {
    Disk.YES: "downloaded",
    Disk.PARTIAL: "partly downloaded",
    Disk.CORRUPT: "corrupt: cannot be loaded",
    Disk.NO: "not downloaded",
    Disk.UNKNOWN: "unknown",
}


def fits_cell(each: Candidate) -> Cell:
    """`running`, or the verdict in few words: `fits 0.24`, `stop qwen36` (`stop engine` where the name has no room),
    `no`, `2 nodes`; `error` where a rule or the plan refuses it, `!` where a rule warns."""
    found = each.verdict
    if each.running:
        return Cell("running", Tone.GOOD)
    if each.preset.min_nodes > 1:
        return Cell(f"{each.preset.min_nodes} nodes", Tone.QUIET)
    if each.worst is Severity.ERROR:
        return Cell("error", Tone.BAD)
    if found is None:
        return Cell("...", Tone.QUIET)
    whole = fit_word(found.fit)
    stops = found.fit.stops
    if found.word is FitWord.FITS_WHEN_STOPPED:
        named = f"stop {stops[0]}" if len(stops) == 1 else f"stop {len(stops)}"
        return Cell(named, whole.tone, "stop engine" if len(stops) == 1 else "")
    if found.word is FitWord.DOES_NOT_FIT:
        return Cell("no", whole.tone)
    warned = whole.tone is Tone.WARNING or (whole.tone is Tone.GOOD and each.worst is not None)
    text = whole.text.replace(" with ", " ")
    return Cell(f"{text} !", Tone.WARNING) if warned else Cell(text, whole.tone)


def _tools_cell(tools: ToolCalls) -> Cell:
    if tools.on:
        return Cell("yes", Tone.GOOD)
    return Cell("add", Tone.WARNING) if tools.settable else Cell("no", Tone.QUIET)


def _quantization(facts: PresetFacts) -> str:
    return facts.quantization[:MAX_CELL].partition(" ")[0].strip(",;")


CONTEXTS: Final = {"8k": 8_192, "16k": 16_384, "32k": 32_768, "64k": 65_536, "128k": 131_072, "256k": 262_144,
                   "1M": 1_048_576}  # fmt: skip
USERS: Final = ("1", "2", "4", "8", "16", "32")
"""What a launch may be judged with besides each recipe's own values."""
USES: Final[tuple[tuple[Tag, ...], ...]] = ((), *((tag,) for tag in Tag))
NEEDS: Final = (None, 16 * GIB, 30 * GIB, 60 * GIB, 90 * GIB)
"""Steps of what a person asks for; None: no limit, or as each recipe has it."""


def asked(search: Search) -> tuple[tuple[str, bool], ...]:
    """What the search is for, part by part, and whether that part is set: the line above the list."""
    most = search.most_bytes
    order_text = f"sort {COLUMNS[search.sort].title}{' reversed' if search.reverse else ''}"
    return (
        (f"context {_binary(search.context) if search.context else 'default'}", search.context is not None),
        (f"users {search.users or 'default'}", search.users is not None),
        (" ".join(search.tags) or "any use", bool(search.tags)),
        ("tools", search.tools),
        ("vision", search.vision),
        ("on disk", search.on_disk),
        ("fits", search.fits),
        (f"<= {most // GIB} GiB" if most else "any size", most is not None),
        (order_text, search.sort != "preset" or search.reverse),
    )


def no_match(search: Search) -> str:
    """Instead of the rows of a search that finds nothing: all that it asks for, since any part may be the cause."""
    narrowing = asked(replace(search, context=None, users=None, sort="preset", reverse=False))
    parts = [text for text, asks in narrowing if asks]
    words = [f'"{" ".join(search.words)}"'] if search.words else []
    ways = (["Esc clears the text"] if words else []) + (["the keys above change the rest"] if parts else [])
    remedy = ", ".join(ways)
    return f"No preset matches: {', '.join([*words, *parts])}. {remedy[0].upper()}{remedy[1:]}."


def _binary(tokens: int) -> str:
    """`64k` for 65536, as people ask for it."""
    return f"{tokens // 1024}k" if tokens < 1024 * 1024 else f"{tokens // (1024 * 1024)}M"


# --- comparison -------------------------------------------------------------------------------------------


def comparison(found: Sequence[Candidate], most: int = MAX_CELL) -> Page:
    """Up to three presets side by side, then what each of them warns of. `most`: cells of a column; a longer one
    is wrapped, at 8 or more."""
    most = max(8, most)
    names = [f"{MARKS[at]}  {each.preset.name}" for at, each in enumerate(found)]
    whole = all(len(name) <= most for name in names)
    columns = (Column(""), *(Column(name if whole else "") for name in names))
    compared = [(label, cells(*map(value, found))) for label, value in _COMPARED]
    if not whole:
        compared.insert(0, ("", tuple(Cell(name, Tone.STRONG) for name in names)))
    rows: list[tuple[Cell, ...]] = []
    for label, row in compared:
        texts = zip_longest(*(textwrap.wrap(cell.text, most) for cell in row), fillvalue="")
        for part, line in enumerate(texts):
            parts = (replace(cell, text=truncate(text, most)) for cell, text in zip(row, line, strict=True))
            rows.append((Cell("" if part else label, Tone.QUIET), *parts))
    cautions = (
        Section(f"{MARKS[at]}  {each.preset.name}", tuple(Row(text, "-") for text in each.preset.facts.cautions))
        for at, each in enumerate(found)
        if each.preset.facts.cautions
    )
    return (Section(table=Table(columns, tuple(rows))), *cautions)


def _speed_text(each: Candidate) -> str:
    parts = [f"{each.own_speed:.0f} measured here"] if each.own_speed is not None else []
    parts += [f"{each.published_speed:.0f} published"] if each.published_speed is not None else []
    return ", ".join(parts) or "unknown"


def _verdict_cell(each: Candidate) -> Cell:
    """The verdict in full."""
    short, found = fits_cell(each), each.verdict
    if each.preset.min_nodes > 1 and not each.running:
        return Cell(f"needs {short.text}", short.tone)
    return short if found is None or each.running or each.worst is Severity.ERROR else Cell(found.text, short.tone)


_COMPARED: Final[tuple[tuple[str, Callable[[Candidate], Cell | str]], ...]] = (
    ("for", lambda each: ", ".join(each.preset.facts.tags) or "-"),
    ("fits", _verdict_cell),
    ("needs", lambda each: "unknown" if each.need is None else human_bytes(each.need)),
    ("context", lambda each: f"{human_count(each.context)} tokens" if each.context else "unknown"),
    ("tok/s", _speed_text),
    ("quantization", lambda each: each.preset.facts.quantization or "unknown"),
    ("parameters", lambda each: _sizes(replace(each.preset.facts, weights_bytes=None)) or "unknown"),
    ("weights", lambda each: human_bytes(size) if (size := each.preset.facts.weights_bytes) else "unknown"),
    ("tool calls", lambda each: _tools(each.preset)),
    ("model", lambda each: _DISK_TEXTS[each.disk]),
    ("started here", lambda each: "yes" if each.served else "not yet"),
    ("proved", lambda each: each.proof.text if each.proof is not None else "not yet"),
    ("server", lambda each: each.preset.server.title),
    ("licence", lambda each: each.preset.facts.licence or "unknown"),
)


def _billions(count: float) -> str:
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def tools_word(preset: Preset) -> str:
    """`on`, `off` where a setting turns them on, or `unknown` where no parser is known."""
    tools = tool_calls_of(preset)
    return "on" if tools.on else OFF if tools.settable else "unknown"


# --- a preset ---------------------------------------------------------------------------------------------


def overview(
    preset: Preset,
    image: ImageStatus | None = None,
    found: Candidate | None = None,
    proof: str = "",
    drift: Finding | None = None,
    good: Sequence[tuple[str, str]] = (),
) -> Page:
    """Everything that the recipe says of its model. `image`: whether it is downloaded, where that is looked up;
    `found`: what is known of a launch here, `proof`: what was proved when it last ran, `drift`: that the recipe which
    it is a copy of has changed, `good`: labels and texts about its last good start."""
    facts = preset.facts
    gate = {True: "gated: accept the licence on the model's page first", False: "not gated", None: ""}[facts.gated]
    sparks = "one Spark" if preset.min_nodes == 1 else f"{preset.min_nodes} Sparks"
    values = (
        ("name", "" if image else preset.name),
        ("model", f"{preset.model} @ {preset.model_revision}" if preset.model_revision else preset.model),
        ("downloaded", _DISK_TEXTS[found.disk] if found is not None else ""),
        ("proof", proof),
        ("publisher", facts.publisher),
        ("family", facts.family),
        ("kind", facts.architecture),
        ("size", _sizes(facts)),
        ("quantization", facts.quantization),
        ("context", f"{human_count(facts.context_tokens)} tokens" if facts.context_tokens else ""),
        ("good for", ", ".join(facts.tags)),
        ("input", ", ".join(facts.modalities)),
        ("licence", ", ".join(filter(None, (facts.licence, gate)))),
        ("image", f"{preset.image}, {image.text}" if image else preset.image),
        *good,
        ("runtime", f"{preset.runtime} on {sparks}{', no GPU needed' if preset.cpu_only else ''}"),
        ("tool calls", _tools(preset)),
        ("sampling", ", ".join(f"{key} {value}" for key, value in facts.sampling if value is not None)),
        ("includes", ", ".join(preset.includes)),
        ("copy of", f"{copy.path} of {copy.registry} ({copy.commit[:12]})" if (copy := facts.copy_of) else ""),
        ("source", facts.source),
        ("checked", _checked(facts)),
        ("file", preset.file if preset.origin is Origin.USER else preset.origin.value),
        ("needs", ", ".join(missing_values(preset))),
    )
    about = (Row(facts.description, tone=Tone.QUIET),) if facts.description else ()
    checked = found.checked if found is not None else None
    errors = () if checked is None or isinstance(checked, SparkError) else checked
    wrong = next((Row(each.summary, "error", Tone.BAD) for each in errors if each.severity is Severity.ERROR), None)
    return (
        Section(facts.title or preset.name, (*([wrong] if wrong else []), *about)),
        Section(rows=labelled(values)),
        *speeds(preset),
        *((finding_section(drift),) if drift is not None else ()),
        *_listed("Cautions", facts.cautions, Tone.WARNING),
        *_listed("Notes", facts.notes),
        *titled("Published of this model", published_words(preset.model)),
        *_listed("Hooks, never run by spark-tui", preset.hooks),
        *_listed("Mods, not applied by spark-tui", [mod_words(each, preset.reference) for each in preset.mods]),
        *_listed("Kept, not used", [mask_secrets(f"{key}: {value}") for key, value in preset.unknown]),
    )


def _checked(facts: PresetFacts) -> str:
    """How many others served it on a Spark, by their public records; empty where the recipe does not say."""
    found = ", ".join(facts.checked)
    return f"no: one public source, {found}" if len(facts.checked) == 1 else found and f"by {found}"


def speeds(preset: Preset) -> Page:
    found = [f"{each.tokens_per_second:g} tok/s: {each.conditions} [{each.source}]" for each in preset.facts.published]
    return _listed("Published speeds", found)


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
        *_listed("Variables of the image", _image_variables(preset)),
        *_listed("Needed in the model store", [file.target for file in facts.required_files]),
        *_listed("Done at each start", [f"{step.command}: {step.summary}" for step in facts.required_steps]),
        *_image_patches(preset),
        command,
    )


def _image_patches(preset: Preset) -> Page:
    """What is to be changed in the image, step by step, for the variables of the preset."""
    steps = [f"{each.about}: {each.step} [{each.source}]" for each in patches_for(preset.env).values()]
    see = f"Which of them an image has: spark-tui images --inspect {preset.reference}"
    return _listed("Patches of the image, which spark-tui does not make", [*steps, see] if steps else [])


def _image_variables(preset: Preset) -> list[str]:
    """What the image reads, with defaults; without its start script's own where the preset starts the server."""
    script = start_script(preset.image)
    if script is None:
        return []
    return [
        f"{name}{f' (default {each.default})' if each.default else ''}: {each.about}"
        for name, each in script.variables.items()
        if preset.facts.runs_as_is or not script.is_own(name)
    ]


def recipe_values(preset: Preset) -> Page:
    """What `recipe` lists, for a page that has no room for a line each."""
    values = (
        ("defaults", " ".join(f"{key}={value}" for key, value in preset.defaults if value is not None)),
        ("environment", mask_secrets(" ".join(f"{key}={value}" for key, value in preset.env))),
        ("in the model store", ", ".join(file.target for file in preset.facts.required_files)),
        ("at each start", ", ".join(step.summary for step in preset.facts.required_steps)),
        ("image patches", ", ".join(each.about for each in patches_for(preset.env).values())),
    )
    return (Section("Recipe", labelled(values)),) if any(text for _, text in values) else ()


def _listed(title: str, texts: Sequence[str], tone: Tone = Tone.PLAIN) -> Page:
    return (Section(title, tuple(Row(text, "-", tone) for text in texts)),) if texts else ()


def _tools(preset: Preset) -> str:
    tools = tool_calls_of(preset)
    if tools.on:
        return f"on (parser {tools.parser})" if tools.parser else "on"
    if tools.settable:
        return "off; tool_calls=on adds the parser"
    return "off: the start script decides" if tools.known else "off: no parser known for this model"


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


# --- recommendations --------------------------------------------------------------------------------------

_PICK_COLUMNS: Final = (
    Column("", right=True), Column("NAME"), Column("FITS", least=11), Column("TOK/S", right=True),
    Column("CONTEXT", right=True), Column("GiB", right=True, keep=3), Column("TOOLS", keep=2), Column("DISK", keep=1),
)  # fmt: skip
_MOST_EXPLAINED: Final = 3


def recommendation(picks: Sequence[Pick], others: Sequence[LeftOut], most: int) -> Page:
    """The best `most`, what the first of them rest on, and why others are left out."""
    shown = picks[:most]
    rows = [
        cells(
            str(number),
            Cell(pick.candidate.preset.name, Tone.STRONG),
            fits_cell(pick.candidate),
            f"{pick.speed.rate:.0f}{BASIS_MARKS[pick.speed.basis]}",
            short_tokens(pick.candidate.context) if pick.candidate.context else "-",
            "-" if pick.candidate.need is None else f"{pick.candidate.need / GIB:.0f}",
            "yes" if pick.candidate.tools.on else "no",
            _DISK_CELLS[pick.candidate.disk][0],
        )
        for number, pick in enumerate(shown, 1)
    ]
    names = tuple(pick.candidate.preset.name for pick in shown)
    marks = Row("* measured here   ~ estimated from bytes per token   otherwise published", tone=Tone.QUIET)
    sections = [
        Section(table=Table(_PICK_COLUMNS, tuple(rows), names, "No preset serves this.")),
        Section("", (marks, Row(RULE, tone=Tone.QUIET))),
    ]
    for number, pick in enumerate(shown[:_MOST_EXPLAINED], 1):
        sections.append(Section(f"{number}  {pick.candidate.preset.name}", labelled(_grounds(pick))))
    if len(picks) > len(shown):
        sections.append(Section(f"{len(picks) - len(shown)} more: -n {len(picks)}"))
    reasons = tuple(Row(f"{each.candidate.preset.name}: {each.reason}", tone=Tone.QUIET) for each in others)
    return (*sections, *((Section(f"Left out: {len(others)}", reasons),) if others else ()))


BASIS_MARKS: Final = {SpeedSource.MEASURED: OWN_SPEED, SpeedSource.PUBLISHED: "", SpeedSource.ESTIMATED: "~"}


def _grounds(pick: Pick) -> list[tuple[str, str | None]]:
    """What a rank rests on."""
    each, facts = pick.candidate, pick.candidate.preset.facts
    warnings = each.verdict.findings if each.verdict is not None else ()
    return [
        ("why", pick.why),
        ("speed", pick.speed.text),
        ("size", _sizes(facts) or "not stated: taken as small"),
        ("memory", each.verdict.text if each.verdict is not None else None),
        ("users", "the KV cache has no room for all of them at full context" if crowded(each) else None),
        ("model", _DISK_TEXTS[each.disk]),
        ("state", "runs now" if each.running else "served here before" if each.served else "not started here yet"),
        ("proved", each.proof.text if each.proof is not None else "not yet"),
        ("licence", clean_line(facts.licence) or "unknown"),
        *published_words(each.preset.model),
        ("warning", next((one.summary for one in warnings if one.severity is Severity.WARNING), None)),
    ]


# --- findings of the rules --------------------------------------------------------------------------------


def changes_of(findings: Iterable[Finding]) -> dict[str, str]:
    """What ends the errors and warnings: of two that change the same setting, the worse one's, which come first. A
    note's change is a choice, and is not made with them."""
    chosen: dict[str, str] = {}
    for finding in (each for each in findings if each.severity.worse_than(Severity.INFO)):
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


# --- imports ----------------------------------------------------------------------------------------------


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
            found.facts,
            "family",
            "category",
            "quantization",
            "context_tokens",
            "weights_bytes",
            "total_parameters",
            "active_parameters",
        ),
        "tags": list(found.facts.tags),
        "tool_calls": tools_word(found),
        "minimum_sparks": found.min_nodes,
        **maybe("maximum_sparks", found.max_nodes, NOT_STATED),
        **maybe("copy_of", asdict(copy) if (copy := found.facts.copy_of) else None, "no copy of a registry's recipe"),
        "published": [asdict(speed) for speed in found.facts.published],
    }


def candidate_object(each: Candidate) -> Object:
    """A preset with what is known of a launch here."""
    found, error = each.verdict, each.judged if isinstance(each.judged, SparkError) else None
    why = error.summary if error is not None else "it is not worked out"
    return {
        **preset_object(each.preset),
        **(verdict_object(found.fit) if found is not None else {"verdict": None, "verdict_reason": why}),
        **maybe(
            "worst_finding",
            each.worst.value if each.worst is not None else None,
            why if found is None else "no errors and no warnings",
        ),
        **maybe("need_bytes", each.need, "a part of it is unknown"),
        **maybe("launch_context_tokens", each.context, "neither the recipe nor the model says"),
        **maybe("tokens_per_second", each.speed, "none is published, and none was measured here"),
        "measured_here": each.own_speed is not None,
        **maybe("model_on_disk", None if each.disk is Disk.UNKNOWN else each.disk.value, "the store is not known"),
        "running": each.running,
        "served_here": each.served,
        "proved": each.proof is not None and each.proof.severity is Severity.OK,
        **maybe("proof", each.proof.text if each.proof is not None else None, "never proved here"),
        **drift_object(each.drift),
    }


def drift_object(drift: Finding | None) -> Object:
    """Whether the recipe that a preset is a copy of has changed."""
    return maybe("drift", finding_object(drift) if drift is not None else None, "no copy, or unchanged")


def recommendation_object(picks: Sequence[Pick], others: Sequence[LeftOut]) -> Object:
    return {
        "picks": [
            {
                **candidate_object(pick.candidate),
                "score": round(pick.score),
                "why": pick.why,
                "speed_tokens_per_second": pick.speed.rate,
                "speed_basis": pick.speed.basis.value,
                "speed_source": pick.speed.source,
                "speed_streams": pick.speed.streams,
            }
            for pick in picks
        ],
        "left_out": [{"id": each.candidate.preset.name, "reason": each.reason} for each in others],
    }


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
        "checked": list(facts.checked),
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
        "image_patches": [
            {"id": id_, "about": each.about, "step": each.step, "source": each.source}
            for id_, each in patches_for(found.env).items()
        ],
        "unused": dict(found.unknown),
    }


# --- pins ---------------------------------------------------------------------------------------------------
