"""What the Presets screen says about a preset: its row in the list, and its pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content

from spark_tui.domain.engine.container import ContainerFacts, ImageFacts
from spark_tui.domain.errors import PresetError, SparkError
from spark_tui.domain.presets.diff import Diff
from spark_tui.domain.presets.fit import Fit
from spark_tui.domain.presets.plan import LaunchPlan, Overrides
from spark_tui.domain.presets.preset import Origin, Preset, PresetFacts
from spark_tui.domain.quantities import human_bytes, human_count, short_tokens
from spark_tui.domain.text import clean_line, truncate
from spark_tui.tui import format as fmt
from spark_tui.tui.screens.preset_verdicts import LABEL_WIDTH, Checked, failure_parts, field, fit_word, verdict
from spark_tui.tui.widgets.page import BLANK, Part, sentence, told
from spark_tui.tui.widgets.row_list import Column, Row

if TYPE_CHECKING:
    from spark_tui.core.preflight import Preflight

MAX_CELL = 200
CPU_GROUP = "On the CPU"
NO_FAMILY = "Others"
UNREADABLE_GROUP = "Unreadable files"
PROBLEM = "problem:"
"""Before the number of an unreadable file: its row's key. No preset is named so: names become container names."""

# The name keeps 28 cells, which tell each preset from its variants; the verdicts go before the facts.
COLUMNS = (
    Column("preset", maximum=56),
    Column("size", width=8, hide_below=56),
    Column("quant", width=5, hide_below=68),
    Column("ctx", width=4, hide_below=73, right=True),
    Column("tok/s", width=5, hide_below=58, right=True),
    Column("checks", width=6, hide_below=30),
    Column("fit", width=7, hide_below=40),
    Column("image", width=5, hide_below=79),
    Column("", width=5, hide_below=84),
)


@dataclass(frozen=True, slots=True)
class ImageStanding:
    """Whether a preset's image is on this machine. `known` False: Docker has not said, `why` tells the reason."""

    known: bool = False
    image: ImageFacts | None = None
    why: str = "not looked at yet"

    @property
    def word(self) -> str:
        """`here`, `no`, `?`."""
        return ("here" if self.image else "no") if self.known else "?"

    @property
    def words(self) -> str:
        """The same in a sentence."""
        if not self.known:
            return f"whether it is here is not known: {self.why}"
        return "it is here" if self.image else "not here: the launch pulls it"


UNKNOWN_IMAGE = ImageStanding()


# --- the list ---------------------------------------------------------------------------------------------


def matches(preset: Preset, words: list[str]) -> bool:
    """Whether every word of the filter occurs in what identifies the preset."""
    facts = preset.facts
    texts = (preset.name, facts.title, facts.family, facts.quantization, facts.publisher, preset.model, preset.runtime)
    text = " ".join((*texts, preset.image, facts.category, preset.origin.value)).lower()
    return all(word in text for word in words)


def order(preset: Preset) -> tuple[bool, str, str]:
    """By family; what needs no GPU comes last."""
    return (_on_cpu(preset), preset.facts.family.lower() or "~", preset.name)


def _on_cpu(preset: Preset) -> bool:
    return preset.facts.category == "cpu" or preset.cpu_only


def preset_row(preset: Preset, standing: ImageStanding, checked: Checked | None, fit: Fit | None) -> Row:
    """One line of the list."""
    facts = preset.facts
    speed = _best_speed(facts)
    return Row(
        preset.name,
        (
            _cell(_short_title(preset)),
            _cell(_size(facts), "$dim"),
            _cell(_format(facts), "$secondary"),
            _cell(short_tokens(facts.context_tokens) if facts.context_tokens else "", "$dim"),
            _cell(f"{speed:.0f}" if speed else ""),
            verdict(checked),
            fit_word(fit),
            _cell(standing.word, "$success" if standing.image else "$dim"),
            _cell("yours" if preset.origin is Origin.USER else "", "$accent"),
        ),
        CPU_GROUP if _on_cpu(preset) else truncate(clean_line(facts.family), MAX_CELL) or NO_FAMILY,
    )


def problem_row(index: int, problem: PresetError) -> Row:
    """A file that could not be read."""
    file = problem.file.rsplit("/", 1)[-1]
    place = f"{file}:{problem.line}" if problem.line else file
    text = Content.assemble(
        ("unreadable ", "bold $error"), _cell(place), "  ", _cell(problem.summary, "$dim"),
    )  # fmt: skip
    return Row(f"{PROBLEM}{index}", (text, *(Content("") for _ in COLUMNS[1:])), UNREADABLE_GROUP)


def _format(facts: PresetFacts) -> str:
    """The first word of `NVFP4 (ModelOpt), KV cache FP8`; the page has all of it."""
    return facts.quantization[:MAX_CELL].partition(" ")[0].strip(",;")


def _short_title(preset: Preset) -> str:
    """The title without the number format, which has a column of its own."""
    title, word = preset.facts.title[:MAX_CELL], _format(preset.facts)
    return (title.replace(f" {word}", "") if word else title) or preset.name


def _cell(text: str, style: str = "") -> Content:
    return fmt.safe(text[:MAX_CELL], style)


def _best_speed(facts: PresetFacts) -> float | None:
    return max((speed.tokens_per_second for speed in facts.published), default=None)


def _size(facts: PresetFacts) -> str:
    total, active = facts.total_parameters, facts.active_parameters
    if total is None:
        return ""
    if active is None or active == total:
        return _rounded(total)
    return f"{_rounded(total).removesuffix('B')}/{_rounded(active)}"


def _billions(count: float) -> str:
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def _rounded(count: float) -> str:
    return f"{count / 1e9:.0f}B" if count >= 20e9 else _billions(count)


# --- running ----------------------------------------------------------------------------------------------


def running_page(
    preflight: Preflight, preset: Preset, image: ImageFacts | None, containers: Sequence[ContainerFacts]
) -> list[Part]:
    """The preset beside its container; or why the preset cannot be launched."""
    from spark_tui.core.preset_diff import preset_diff  # only when a preset is looked at

    try:
        return _running_parts(preset_diff(preflight, preset, Overrides(), image, containers))
    except SparkError as error:
        return failure_parts(error)


def _running_parts(found: Diff) -> list[Part]:
    """Where the container of a preset is not what the preset says."""
    if not found.container:
        return [sentence("No container of this preset is here. Launch it, and this page compares the two.", "$dim")]
    rows = found.differing
    if not rows:
        return [sentence(f"{found.container} runs exactly what this preset says.", "$success")]
    count = "one setting differs" if len(rows) == 1 else f"{len(rows)} settings differ"
    parts: list[Part] = [sentence(f"{found.container}: {count} from this preset.", "bold"), BLANK]
    for row in rows:
        parts += [
            sentence(row.setting, "bold"),
            field("preset", row.preset or "absent"),
            (Content.styled(f"{'running':<{LABEL_WIDTH}}", "$dim"), told(row.running or "absent", "$warning")),
            BLANK,
        ]
    return parts[:-1]


# --- the pages --------------------------------------------------------------------------------------------


def overview(preset: Preset, standing: ImageStanding) -> list[Part]:
    """Everything that the recipe says, and whether its image is here."""
    facts = preset.facts
    parts = [sentence(facts.title or preset.name, "bold")]
    if facts.description:
        parts.append(sentence(facts.description, "$dim"))
    parts.append(BLANK)
    parts += [field(label, value) for label, value in _values(preset, standing) if value]
    parts += [
        field("speed", f"{speed.tokens_per_second:g} tok/s: {speed.conditions}. {speed.source}")
        for speed in facts.published
    ]
    parts += _list("Cautions", facts.cautions, "$warning")
    parts += _list("Notes", facts.notes)
    parts += _list("Hooks, never run by spark-tui", preset.hooks, "$dim")
    parts += _list("Mods, not applied by spark-tui", preset.mods, "$dim")
    parts += _list("Kept, not used", tuple(f"{key}: {value}" for key, value in preset.unknown), "$dim")
    if facts.source:
        parts += [BLANK, field("source", facts.source)]
    return parts


def _values(preset: Preset, standing: ImageStanding) -> tuple[tuple[str, str], ...]:
    facts = preset.facts
    return (
        ("model", preset.model),
        ("publisher", facts.publisher),
        ("family", facts.family),
        ("kind", facts.architecture),
        ("size", _size_words(facts)),
        ("quantized", facts.quantization),
        ("context", f"{human_count(facts.context_tokens)} tokens" if facts.context_tokens else ""),
        ("input", ", ".join(facts.modalities)),
        ("licence", _licence(facts)),
        ("image", f"{preset.image}, {standing.words}"),
        ("runtime", preset.runtime),
        ("sampling", ", ".join(f"{key} {value}" for key, value in facts.sampling)),
        ("includes", ", ".join(preset.includes)),
        ("file", _place(preset)),
    )


def problem_page(problem: PresetError) -> list[Part]:
    """What is wrong with a file, where, and what to do."""
    parts = [sentence(problem.where, "bold"), sentence(problem.summary, "$error"), sentence(problem.remedy)]
    if problem.detail:
        parts += [BLANK, *(sentence(line, "$dim") for line in problem.detail.split("\n")[:40])]
    return parts


def note_parts(plan: LaunchPlan, standing: ImageStanding) -> list[Part]:
    """What a person should know before this launch, above the command."""
    notes = [] if standing.known else [f"Image: {standing.words}"]
    notes += plan.notes
    return [*(sentence(note, "$warning", bullet="! ") for note in notes), *([BLANK] if notes else [])]


def _place(preset: Preset) -> str:
    """The whole path of a file that the person can edit; ours by its name."""
    path = preset.file if preset.origin is Origin.USER else preset.file.rpartition("/")[2]
    return f"{path} ({preset.origin.value})"


def _list(title: str, texts: tuple[str, ...], style: str = "") -> list[Part]:
    if not texts:
        return []
    return [BLANK, sentence(title, "bold"), *(sentence(text, style, bullet="- ") for text in texts)]


def _size_words(facts: PresetFacts) -> str:
    words = []
    if facts.total_parameters:
        words.append(f"{_billions(facts.total_parameters)} parameters")
    if facts.active_parameters and facts.active_parameters != facts.total_parameters:
        words.append(f"{_billions(facts.active_parameters)} active")
    if facts.weights_bytes:
        words.append(f"{human_bytes(facts.weights_bytes)} of weights")
    return ", ".join(words)


def _licence(facts: PresetFacts) -> str:
    gate = _GATED.get(facts.gated, "") if facts.licence or facts.gated is not None else ""
    return ", ".join(filter(None, (facts.licence, gate)))


_GATED = {
    True: "gated: accept it on the model's page first",
    False: "not gated",
    None: "whether it is gated is not known",
}
