"""Checks of the machine, for both front ends."""

from __future__ import annotations

from collections.abc import Iterable

from spark_tui.domain.doctor.check import Result, Verdict
from spark_tui.domain.doctor.checks import worst
from spark_tui.present.json import Object
from spark_tui.present.page import Cell, Column, Page, Row, Section, Table, Tone, cells, labelled

TONES = {Verdict.FAIL: Tone.BAD, Verdict.WARN: Tone.WARNING, Verdict.PASS: Tone.GOOD, Verdict.SKIP: Tone.QUIET}
CONTAINER_TEXT = "A container with the GPU is started from a downloaded image, ends at once, and is removed."


def check_page(result: Result) -> Page:
    """One check: its sentence, the fix, the evidence."""
    outcome = result.outcome
    return (
        Section(rows=(Row(f"{outcome.verdict.value}  {outcome.summary}", tone=TONES[outcome.verdict]),)),
        *(
            Section(rows=labelled((pair,)))
            for pair in (("fix", outcome.remedy), ("evidence", outcome.evidence))
            if pair[1]
        ),
        Section(rows=(Row(f"check {result.id}", tone=Tone.QUIET),)),
    )


def checks_table(results: Iterable[Result]) -> Table:
    """A row for each check."""
    results = tuple(results)
    quiet = (Verdict.PASS, Verdict.SKIP)
    rows = tuple(
        cells(
            each.title,
            Cell(each.outcome.verdict.value, TONES[each.outcome.verdict]),
            Cell(each.outcome.summary, Tone.QUIET if each.outcome.verdict in quiet else Tone.PLAIN),
        )
        for each in results
    )
    return Table((Column("check"), Column(""), Column("result", least=12)), rows, tuple(each.id for each in results))


def first_to_read(results: Iterable[Result]) -> str:
    """The id of the worst failed check; empty where all is well."""
    order = list(Verdict)
    bad = [each for each in results if each.outcome.verdict in (Verdict.FAIL, Verdict.WARN)]
    return min(bad, key=lambda each: order.index(each.outcome.verdict)).id if bad else ""


def report_object(results: tuple[Result, ...]) -> Object:
    """All checks as data."""
    return {
        "worst": worst(results).value,
        "checks": [
            {
                "id": each.id,
                "group": each.group.value,
                "title": each.title,
                "verdict": each.outcome.verdict.value,
                "summary": each.outcome.summary,
                "evidence": each.outcome.evidence or None,
                "remedy": each.outcome.remedy or None,
            }
            for each in results
        ],
    }
