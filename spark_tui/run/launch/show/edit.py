"""What an edit of a running engine changes and what it costs, for the dialog and the command line."""

from __future__ import annotations

from spark_tui.base.page import Column, Object, Page, Row, Section, Table, Tone, cells
from spark_tui.base.quantities import human_count, human_duration
from spark_tui.catalog.fit.show.launch import deviations_object
from spark_tui.run.launch.use.edit import EditPlan


def shown_value(text: str) -> str:
    """`65536` as `65,536`; nothing as `none`."""
    return human_count(int(text)) if text.isascii() and text.isdecimal() and len(text) < 16 else text or "none"


def edit_page(plan: EditPlan) -> Page:
    """The differences, then what the restart costs."""
    rows = tuple(
        cells(each.label, shown_value(each.before), "->", shown_value(each.after)) for each in plan.differences
    )
    table = Table((Column(""), Column("", least=6), Column(""), Column("", least=6)), rows)
    ends = "requests in flight unknown; they end" if plan.in_flight is None else ""
    if plan.in_flight:
        ends = f"{plan.in_flight} request{'s' if plan.in_flight > 1 else ''} in flight end{'s' * (plan.in_flight == 1)}"
    usual = plan.start_seconds
    start = (
        f"usual start {human_duration(usual)}" if usual is not None else "start time unknown (first start like this)"
    )
    costs = [Row(ends or "no requests in flight", "now", Tone.WARNING if ends else Tone.PLAIN), Row(start, "then")]
    if plan.drifted:
        text = "The preset or its image changed since the launch: the new settings start with those of today."
        costs.append(Row(text, "note", Tone.WARNING))
    return (Section(table=table), Section(rows=tuple(costs)))


def edit_object(plan: EditPlan) -> Object:
    return {
        "id": plan.name,
        "preset": plan.before.preset.name,
        "differences": [
            {"id": each.key, "label": each.label, "before": each.before or None, "after": each.after or None}
            for each in plan.differences
        ],
        "requests_in_flight": plan.in_flight,
        "usual_start_seconds": plan.start_seconds,
        "preset_changed_since_launch": plan.drifted,
        "deviations": deviations_object(plan.launch),
    }
