"""What the dialogs of the Hub say: hits of a search, and what a download would fetch."""

from __future__ import annotations

from textual.content import Content

from spark_tui.domain.errors import SparkError
from spark_tui.domain.models.checkpoint import WeightFormat
from spark_tui.domain.models.download import DownloadPlan, PlannedFile
from spark_tui.domain.models.hub import Fits, FormatBasis, Gating, RepoFacts, SearchHit
from spark_tui.domain.models.inspection import Inspection
from spark_tui.domain.models.inspection_words import inspection_rows
from spark_tui.domain.quantities import human_bytes, short_tokens
from spark_tui.domain.reading import Missing, Reading, value_of
from spark_tui.tui import format as fmt
from spark_tui.tui.screens.models_pages import LABEL_WIDTH, field, heading
from spark_tui.tui.screens.models_words import MAX_CELL, name_cell
from spark_tui.tui.widgets.page import BLANK, Part, sentence, told
from spark_tui.tui.widgets.row_list import Column, Row

MOST_FILES = 300
HIT_COLUMNS = (
    Column("model", maximum=64),
    Column("format", width=11),
    Column("weights", width=9, right=True),
    Column("one Spark", width=9),
    Column("fetched", width=7, right=True, hide_below=74),
    Column("updated", width=9, right=True, hide_below=84),
    Column("access", width=7),
)
CHOICE_COLUMNS = (Column("size", width=9, right=True), Column("file"))
_FITS_STYLE = {Fits.YES: "$success", Fits.TIGHT: "$warning", Fits.NO: "$error", Fits.UNKNOWN: "$dim"}
_FITS_WORDS = {
    Fits.YES: "fits one Spark, with room for a KV cache",
    Fits.TIGHT: "fits one Spark, and leaves little room for a KV cache",
    Fits.NO: "is too large for one Spark",
    Fits.UNKNOWN: "whether it fits one Spark is not known: the Hub does not tell its weights",
}


# --- a search ---------------------------------------------------------------------------------------------


def hit_row(hit: SearchHit, now: float) -> Row:
    """One line of the hits; `!` after a format that something speaks against."""
    word = hit.formats.words or ("GGUF" if hit.gguf else "?")
    access = "private" if hit.private else "" if hit.gating is Gating.OPEN else "gated"
    return Row(
        hit.repo,
        (
            name_cell(hit.repo),
            _cell(f"! {word}" if hit.formats.doubt else word, "$warning" if hit.formats.doubt else "$secondary"),
            _cell("?" if hit.weights is None else human_bytes(hit.weights)),
            Content.styled("?" if hit.fits is Fits.UNKNOWN else hit.fits.value, _FITS_STYLE[hit.fits]),
            _cell("?" if hit.downloads is None else short_tokens(hit.downloads), "$dim"),
            _cell("?" if hit.modified is None else fmt.ago(now - hit.modified), "$dim"),
            _cell(access, "$warning"),
        ),
    )


def hit_line(hit: SearchHit) -> Content:
    """What the row has no room for, in two lines."""
    parts = [hit.repo]
    packed = hit.formats.found[:1] not in ((WeightFormat.BF16,), (WeightFormat.FP16,), (WeightFormat.FP8,))
    if hit.parameters and not packed:  # of packed weights the Hub counts the bytes, or words, that hold them
        parts.append(f"{hit.parameters / 1e9:.3g} B parameters")
    parts += [f"{human_bytes(hit.storage)} on the Hub"] if hit.storage else []
    parts += [hit.task] if hit.task else []
    parts += [f"licence {hit.licence}"] if hit.licence else []
    first = told("   ".join(parts), "$dim")
    basis = f"The format is known by {hit.formats.basis.value}." if hit.formats.basis is not FormatBasis.CONFIG else ""
    second = told(f"It is {hit.formats.doubt}.", "$warning") if hit.formats.doubt else told(basis, "$dim")
    return Content("\n").join([first, second])


# --- a repository -----------------------------------------------------------------------------------------


def plan_parts(plan: DownloadPlan, checkpoint: Reading[Inspection] | None) -> list[Part]:
    """What stands in its way, what it takes, what it is, and every file."""
    parts: list[Part] = []
    if plan.refusal is not None and not plan.choices:
        parts += [*refusal_parts(plan.refusal), BLANK]
    if plan.choices:
        parts += [sentence("It holds one model in many sizes: choose one above."), BLANK]
    else:
        parts += [*_takes(plan), BLANK]
    if plan.facts is not None:
        parts += _card(plan.facts)
    parts += [sentence(note, "$warning", bullet="! ") for note in plan.notes]
    parts += _checkpoint(checkpoint)
    if plan.files:
        parts += heading(f"Files: {len(plan.files)}" if plan.whole else f"Files to fetch: {len(plan.files)}")
        parts += [_file(file) for file in plan.files[:MOST_FILES]]
        parts += _more(len(plan.files))
    if plan.left_out:
        size = human_bytes(sum(each.size or 0 for each in plan.left_out))
        parts += heading(f"Left out: {len(plan.left_out)} files, {size} (a takes all files)")
        parts += [_row(each.size, each.path, each.why) for each in plan.left_out[:MOST_FILES]]
        parts += _more(len(plan.left_out))
    return parts


def _more(count: int) -> list[Part]:
    return [sentence(f"and {count - MOST_FILES} more", "$dim")] if count > MOST_FILES else []


def refusal_parts(error: SparkError) -> list[Part]:
    """Why it would fail, and what to do."""
    detail = [sentence(error.detail, "$dim")] if error.detail else []
    return [sentence(error.summary, "bold $error"), sentence(error.remedy), *detail]


def _takes(plan: DownloadPlan) -> list[Part]:
    if plan.whole:
        return [sentence("All of it is here already.", "$success")]
    total = "of unknown size" if plan.total is None else human_bytes(plan.total)
    left = "unknown" if plan.left is None else human_bytes(plan.left)
    free = value_of(plan.free)
    room = "how much room there is is not known" if free is None else f"{human_bytes(free)} are free"
    here = f", {human_bytes(sum(file.here for file in plan.files))} are here" if plan.left != plan.total else ""
    return [field("takes", f"{total} in {len(plan.files)} files{here}"), field("to fetch", f"{left}; {room}")]


def _card(facts: RepoFacts) -> list[Part]:
    doubt = f"; {facts.formats.doubt}" if facts.formats.doubt else ""
    gated = {
        Gating.OPEN: "open to everybody",
        Gating.AUTO: "terms to accept on its page first",
        Gating.MANUAL: "its makers have to agree first",
    }[facts.gating]
    licence = " ".join(filter(None, (facts.licence, facts.licence_link)))
    rows = (
        (
            "format",
            f"{facts.formats.words} by {facts.formats.basis.value}{doubt}" if facts.formats.found else "not known",
        ),
        ("weights", "not known" if facts.weights is None else human_bytes(facts.weights)),
        ("size", _FITS_WORDS[facts.fits]),
        ("access", "private" if facts.private else gated),
        ("licence", licence or "its card does not name one"),
        ("made from", ", ".join(facts.base_models)),
        ("task", facts.task),
        ("page (y)", facts.page),
        ("commit", facts.commit[:12]),
    )
    styles = {"size": _FITS_STYLE[facts.fits], "access": "" if facts.gating is Gating.OPEN else "$warning"}
    return [field(label, value, styles.get(label, "")) for label, value in rows if value]


def _checkpoint(read: Reading[Inspection] | None) -> list[Part]:
    if read is None:
        return [BLANK, sentence("Reading its config and the headers of its weights ...", "$dim")]
    if isinstance(read, Missing):
        return [BLANK, sentence(f"Its files do not tell what it is: {read.reason}.", "$dim")]
    found = read.value
    parts = [*heading("What it will do on one Spark"), *(sentence(words, bullet="- ") for words in found.verdict)]
    return [*parts, *heading("By its own files"), *(field(label, value) for label, value in inspection_rows(found))]


def _file(file: PlannedFile) -> Part:
    words = "here" if file.left == 0 else f"{human_bytes(file.here)} here" if file.here else ""
    return _row(file.size, file.path, words)


def _row(size: int | None, path: str, words: str) -> Part:
    shown = "?" if size is None else human_bytes(size)
    value = Content.assemble(told(path), "  ", told(words, "$dim")) if words else told(path)
    return Content.styled(f"{shown:>{LABEL_WIDTH - 2}}  "), value


def choice_row(name: str, size: int | None) -> Row:
    """One of several files that hold the same model."""
    return Row(name, (_cell("?" if size is None else human_bytes(size)), _cell(name)))


def plan_keys(plan: DownloadPlan | SparkError | None, *, read_only: bool) -> str:
    """What keys do now."""
    if not isinstance(plan, DownloadPlan):
        return "Esc back"
    if plan.choices:
        return "Enter chooses   y copies the page's address   Esc back"
    able = not read_only and plan.refusal is None and not plan.whole
    size = f" {human_bytes(plan.left)}" if plan.left else ""
    return f"{f'Enter fetches{size}   ' if able else ''}a all files   y copies the address   Esc back"


def _cell(text: str, style: str = "") -> Content:
    return fmt.safe(text[:MAX_CELL], style)
