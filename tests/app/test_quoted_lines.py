"""What `explain` makes of each line of a log that one of the five documents quotes: known, harmless, or unknown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from spark_tui.observe.explain.model.explain import LogExplainer
from spark_tui.observe.explain.model.line import parse_line
from spark_tui.observe.explain.show import explanation_object, explanation_page
from tests.app.test_seeds import SEEDS, leaves, shows
from tests.cases import all_cases
from tests.engine_logs import banner
from tests.log_fixtures import run_log


class Line(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"document": "from", "kind": "is"}):
    """A quoted line. `means` are patterns as in `test_seeds`, of the JSON and, as `text.LABEL`, of the page."""

    document: Literal["guide", "thread", "write-up", "image", "registry"]
    text: str
    kind: Literal["known", "harmless", "unknown"]
    means: tuple[str, ...] = ()
    above: tuple[str, ...] = tuple(banner("0.22.0"))
    completed: bool = False


LINES: Final = msgspec.convert(
    tomllib.loads((SEEDS / "lines.toml").read_text(encoding="utf-8"))["line"], tuple[Line, ...]
)
GRAVE: Final = ("failure.cause=*", "findings.severity=warning", "findings.severity=critical")


def said_of(lines: Sequence[str]) -> set[tuple[str, str]]:
    """All that is said of a log, as JSON and on the page."""
    reader = LogExplainer()
    reader.feed_many(("", line) for line in lines)
    told = reader.explanation()
    page = {(f"text.{row.label}", row.text) for section in explanation_page(told) for row in section.rows}
    return {*leaves(explanation_object(told)), *page}


def shape(text: str) -> str:
    """A line without its figures, hashes and bars."""
    return re.sub(r"[0-9a-f]*\d[0-9a-f]*|█+", "0", parse_line(text).message)


@all_cases("line", LINES, ids=lambda line: f"{line.document}: {line.text[-60:]}")
def test_a_quoted_line_is_known_or_harmless_or_unknown(line: Line) -> None:
    """By what the explanation has with the line and has not without it."""
    added = tuple(said_of([*line.above, line.text]) - said_of(line.above))
    assert [each for each in line.means if not shows(added, each)] == []
    assert bool(line.means) == bool(added) == (line.kind != "unknown"), added
    assert any(path == "text.harmless" for path, _ in added) == (line.kind == "harmless")
    if line.kind == "harmless":
        assert not any(shows(added, each) for each in GRAVE)


def test_every_line_of_the_threads_log_has_its_row() -> None:
    rows = {shape(line.text) for line in LINES if line.document == "thread"}
    quoted = {shape(text) for text in run_log("gb10-vllm-0.18-mtp-forum")[1:]} - {""}
    assert quoted - rows == set()
    assert len(quoted) == 25
