"""Checks of the machine, for both front ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_tui.base.finding import VERDICTS, Finding, Severity, worst
from spark_tui.base.page import TONES, Cell, Column, Object, Page, Row, Section, Table, Tone, cells, labelled
from spark_tui.manage.doctor.model import CHECK_BY_ID

CONTAINER_TEXT = "A container with the GPU is started from a downloaded image, ends at once, and is removed."


def check_page(found: Finding) -> Page:
    head = Row(f"{VERDICTS[found.severity]}  {found.summary}", tone=TONES[found.severity])
    pairs = (("fix", found.remedy), ("evidence", ", ".join(found.evidence)))
    return (
        Section(rows=(head,)),
        *(Section(rows=labelled((pair,))) for pair in pairs if pair[1]),
        Section(rows=(Row(f"check {found.id}", tone=Tone.QUIET),)),
    )


PASSED: Final = (Severity.INFO, Severity.OK)


def passed_page(findings: Iterable[Finding]) -> Page:
    """The names of the checks that passed, where they are folded; empty where there are none to fold."""
    names = [CHECK_BY_ID[each.id].title for each in findings if each.severity in PASSED]
    return (Section("Passed", (Row(", ".join(names), tone=Tone.QUIET),)),) if names else ()


def passed_table(findings: Iterable[Finding]) -> Page:
    """The checks that passed, with what was found; empty where there are none."""
    found = [each for each in findings if each.severity in PASSED]
    rows = tuple(
        cells(CHECK_BY_ID[each.id].title, each.summary, Cell(", ".join(each.evidence), Tone.QUIET)) for each in found
    )
    columns = (Column(""), Column("", least=30), Column("", keep=1, least=30))
    return (Section(table=Table(columns, rows)),) if rows else ()


def attention_first(findings: Iterable[Finding], *, passed: bool = True) -> tuple[Finding, ...]:
    """The worst first, each severity in the order of its checks. `passed` False: without the checks that passed, unless
    all did."""
    ordered = sorted(findings, key=lambda each: each.severity.rank)
    found = [each for each in ordered if each.severity not in PASSED]
    return tuple(found if found and not passed else (*found, *(each for each in ordered if each.severity in PASSED)))


def checks_table(findings: Iterable[Finding]) -> Table:
    """Under a heading each: what needs attention, what was skipped, what passed."""
    findings = tuple(findings)
    quiet = (Severity.OK, Severity.UNKNOWN)
    headings = {Severity.ERROR: "Needs attention", Severity.WARNING: "Needs attention", Severity.UNKNOWN: "Skipped"}
    groups = tuple(headings.get(each.severity, "Passed") for each in findings)
    rows = tuple(
        cells(
            CHECK_BY_ID[each.id].title,
            Cell(VERDICTS[each.severity], TONES[each.severity]),
            Cell(each.summary, Tone.QUIET if each.severity in quiet else Tone.PLAIN),
        )
        for each in findings
    )
    columns = (Column("check"), Column(""), Column("result", least=12))
    return Table(columns, rows, tuple(each.id for each in findings), groups=groups)


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
