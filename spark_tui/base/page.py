"""What a feature shows, once for both front ends: sections, rows, tables, and the objects of --json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from spark_tui.base.finding import Finding, Reading, Severity, pairs_text, reason_of, set_options, value_of
from spark_tui.base.text import cell_width


class Tone(StrEnum):
    """How a text is coloured. Its words say the same without colour."""

    PLAIN = "plain"
    GOOD = "good"
    QUIET = "quiet"
    STRONG = "strong"
    WARNING = "warning"
    BAD = "bad"


TONES = {
    Severity.ERROR: Tone.BAD,
    Severity.WARNING: Tone.WARNING,
    Severity.INFO: Tone.PLAIN,
    Severity.OK: Tone.GOOD,
    Severity.UNKNOWN: Tone.QUIET,
}
"""How a finding of each severity is coloured."""


class Row(Struct, frozen=True):
    """A text that is wrapped beside its label. Without a label it uses the whole width; a label of one character is a
    bullet. `line` is the number, from 0, of the log line that proves it."""

    text: str
    label: str = ""
    tone: Tone = Tone.PLAIN
    line: int | None = None


ALWAYS = 9
EXTRA = 3
"""Columns with a `keep` up to this are worth less than a whole name in another."""


class Cell(Struct, frozen=True):
    """`short` is shown in a column that is too narrow for the text: a word that says the same beats a cut name."""

    text: str
    tone: Tone = Tone.PLAIN
    short: str = ""

    def within(self, size: int) -> str:
        """The text for a column of that many cells; it may still be too long."""
        return self.short if self.short and cell_width(self.text) > size else self.text


class Column(Struct, frozen=True):
    """A column of a table. `right`: numbers. Where width is short, the columns with the lowest `keep` are left out
    first, those with ALWAYS never. `least` is how many cells a column keeps that may be cut; 0: it is never cut."""

    title: str
    right: bool = False
    keep: int = ALWAYS
    least: int = 0


class Table(Struct, frozen=True):
    """Rows of cells under titles. `ids` are the rows' stable names, where a row can be chosen; `groups` the headings
    that rows stand under, where there are any. `empty` is shown where there are no rows. `below` is a second line for
    each row, beside each other what has room, where a list has one."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    ids: tuple[str, ...] = ()
    empty: str = ""
    groups: tuple[str, ...] = ()
    below: tuple[tuple[Cell, ...], ...] = ()


class Section(Struct, frozen=True):
    """A titled part of a page. `command` is a shell command to read and copy: it is never re-wrapped when copied."""

    title: str = ""
    rows: tuple[Row, ...] = ()
    table: Table | None = None
    command: str = ""


Page: TypeAlias = tuple[Section, ...]


def labelled(pairs: Sequence[tuple[str, str | None]]) -> tuple[Row, ...]:
    """A row for each `(label, text)`; pairs without a text are left out."""
    return tuple(Row(text, label) for label, text in pairs if text)


def titled(title: str, pairs: Sequence[tuple[str, str | None]]) -> Page:
    """A section of labelled rows; nothing where there are none."""
    rows = labelled(pairs)
    return (Section(title, rows),) if rows else ()


def cells(*texts: str | Cell) -> tuple[Cell, ...]:
    """One row of a table; plain texts become plain cells."""
    return tuple(text if isinstance(text, Cell) else Cell(text) for text in texts)


def column_widths(table: Table, width: int | None, gap: int = 2) -> dict[int, int]:
    """Cells of each column that is shown in `width` cells, by its index; None: all of them, whole.

    Columns are left out, the lowest `keep` first, before those with a `least` are cut to that; and those with up to
    EXTRA before another is cut at all, where that keeps the others whole.
    """
    widths = {
        at: max([cell_width(column.title), *(cell_width(row[at].text) for row in table.rows)])
        for at, column in enumerate(table.columns)
    }
    if width is None:
        return widths

    def least(at: int) -> int:
        return min(widths[at], table.columns[at].least or widths[at])

    def over(sizes: Iterable[int]) -> int:
        sizes = tuple(sizes)
        return sum(sizes) + gap * (len(sizes) - 1) - width

    whole = over(size for at, size in widths.items() if table.columns[at].keep > EXTRA) <= 0
    for at in sorted(widths, key=lambda each: (table.columns[each].keep, -each)):
        extra = whole and table.columns[at].keep <= EXTRA
        needed = (least(each) if not extra or each == at else widths[each] for each in widths)
        if table.columns[at].keep == ALWAYS or over(needed) <= 0:
            break
        del widths[at]
    for at in reversed([each for each in widths if table.columns[each].least]):
        if (more := over(widths.values())) > 0:
            widths[at] = max(least(at), widths[at] - more)
    return widths


# --- findings --------------------------------------------------------------------------------------------


ABOUT_NOW: Final = frozenset(("gated_without_token",))
"""Rules about this machine at this moment: the list, which describes the recipe, leaves them out."""
SEVERITIES: Final = {
    Severity.ERROR: ("error", Tone.BAD),
    Severity.WARNING: ("warning", Tone.WARNING),
    Severity.INFO: ("note", Tone.PLAIN),
}


def finding_fix(finding: Finding, *, flags: bool = False) -> str:
    """The remedy, with the setting that it means unless it names it."""
    if pairs_text(finding.change) in finding.remedy:
        return finding.remedy
    return f"{finding.remedy} Set {set_options(finding.change) if flags else pairs_text(finding.change)}"


def finding_section(finding: Finding, *, flags: bool = False) -> Section:
    """A finding with its remedy, its evidence, and the change that ends it."""
    word, tone = SEVERITIES[finding.severity]
    now = "current machine state only" if finding.id in ABOUT_NOW else ""
    more = (
        ("fix", finding.remedy),
        ("evidence", "; ".join(finding.evidence)),
        ("setting", set_options(finding.change) if flags else pairs_text(finding.change)),
        ("now", now),
        ("rule", finding.id),
    )
    return Section(rows=(Row(finding.summary, word, tone), *labelled(more)))


def finding_count(findings: Sequence[Finding]) -> str:
    """`1 error, 2 warnings`."""
    counts = [(word, sum(each.severity is level for each in findings)) for level, (word, _) in SEVERITIES.items()]
    return ", ".join(f"{count} {word}{'s' * (count > 1)}" for word, count in counts if count) or "no findings"


def finding_object(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": SEVERITIES[finding.severity][0],
        "summary": finding.summary,
        "evidence": "; ".join(finding.evidence),
        "remedy": finding.remedy,
        "fix": dict(finding.change),
    }


# --- json ------------------------------------------------------------------------------------------------


T = TypeVar("T")
Object: TypeAlias = dict[str, Any]


def maybe(key: str, value: Any, why: str) -> Object:
    """`{key: value}`, or a null with its reason where there is none."""
    return {key: None, f"{key}_reason": why} if value is None or value == "" else {key: value}


def known(why: str, **values: Any) -> Object:
    """`maybe` for several keys whose nulls have the same reason."""
    shape: Object = {}
    for key, value in values.items():
        shape |= maybe(key, value, why)
    return shape


def read(key: str, reading: Reading[T], shape: Callable[[T], Any]) -> Object:
    """A reading: its value, and its reason where it is missing or out of date."""
    value, reason = value_of(reading), reason_of(reading)
    found = {key: None if value is None else shape(value)}
    return found | {f"{key}_reason": reason} if reason else found


def moment(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def rounded(value: float | None, digits: int = 3) -> float | None:
    """Rounded, where there is a value."""
    return None if value is None else round(value, digits)
