"""Checks of the machine, for both front ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_tui.domain.doctor import CHECK_BY_ID
from spark_tui.domain.finding import Finding, Severity, worst
from spark_tui.present.json import Object
from spark_tui.present.page import TONES, Cell, Column, Page, Row, Section, Table, Tone, cells, labelled

VERDICTS: Final = {
    Severity.ERROR: "FAIL",
    Severity.WARNING: "WARN",
    Severity.INFO: "PASS",
    Severity.OK: "PASS",
    Severity.UNKNOWN: "SKIP",
}
"""The words on screen and in JSON."""
CONTAINER_TEXT = "A container with the GPU is started from a downloaded image, ends at once, and is removed."


def check_page(found: Finding) -> Page:
    head = Row(f"{VERDICTS[found.severity]}  {found.summary}", tone=TONES[found.severity])
    pairs = (("fix", found.remedy), ("evidence", ", ".join(found.evidence)))
    return (
        Section(rows=(head,)),
        *(Section(rows=labelled((pair,))) for pair in pairs if pair[1]),
        Section(rows=(Row(f"check {found.id}", tone=Tone.QUIET),)),
    )


def checks_table(findings: Iterable[Finding]) -> Table:
    findings = tuple(findings)
    quiet = (Severity.OK, Severity.UNKNOWN)
    rows = tuple(
        cells(
            CHECK_BY_ID[each.id].title,
            Cell(VERDICTS[each.severity], TONES[each.severity]),
            Cell(each.summary, Tone.QUIET if each.severity in quiet else Tone.PLAIN),
        )
        for each in findings
    )
    return Table((Column("check"), Column(""), Column("result", least=12)), rows, tuple(each.id for each in findings))


def counts(findings: Iterable[Finding]) -> str:
    """`2 fail, 1 warn, 18 pass, 3 skipped`."""
    words = [VERDICTS[each.severity] for each in findings]
    found = ((word, words.count(word)) for word in dict.fromkeys(VERDICTS.values()))
    return ", ".join(f"{count} {'skipped' if word == 'SKIP' else word.lower()}" for word, count in found if count)


def first_to_read(findings: Iterable[Finding]) -> str:
    """The id of the worst failed check; empty where all is well."""
    bad = [each for each in findings if each.severity in (Severity.ERROR, Severity.WARNING)]
    return min(bad, key=lambda each: each.severity.rank).id if bad else ""


def report_object(findings: tuple[Finding, ...]) -> Object:
    """All checks as data."""
    return {
        "worst": VERDICTS[worst(findings)],
        "checks": [
            {
                "id": each.id,
                "group": CHECK_BY_ID[each.id].group.value,
                "title": CHECK_BY_ID[each.id].title,
                "verdict": VERDICTS[each.severity],
                "summary": each.summary,
                "evidence": ", ".join(each.evidence) or None,
                "remedy": each.remedy or None,
            }
            for each in findings
        ],
    }
