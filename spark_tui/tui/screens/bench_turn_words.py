"""What the Bench screen says of two launches that are measured in turn: who they are, and what it costs."""

from __future__ import annotations

from textual.content import Content

from spark_tui.core.bench_sides import Side
from spark_tui.core.bench_turns import starts_of
from spark_tui.domain.bench.plan import BenchPlan
from spark_tui.tui.widgets.page import Part, told


def turn_parts(sides: tuple[Side, Side], plan: BenchPlan, label_width: int) -> list[Part]:
    """Both sides, and how often the engine is away for others."""
    first, second = sides
    rows = (
        ("A", f"{first.name} {first.what}"),
        ("B", second.what if second.name == first.name else f"{second.what}, while {first.name} is away"),
        ("starts", f"{starts_of(plan)}: nobody else is answered meanwhile; in the end {first.name} runs as now"),
    )
    return [(Content.styled(f"{name:<{label_width}}", "$dim"), told(text)) for name, text in rows]


def question(sides: tuple[Side, Side], plan: BenchPlan) -> tuple[str, str]:
    """What is asked before an engine that serves is stopped: the question, and what will happen."""
    first, second = sides
    return (
        f"Stop and start {first.name} for an A/B?",
        f"A is {first.name} {first.what}, B is {second.what}. They are started in turn, {starts_of(plan)} times in "
        f"all, and each start takes as long as it always does. Requests that {first.name} is answering now are cut "
        "off, and nobody else is answered until it is over. In the end it runs as it does now, also when you cancel "
        "with c.",
    )
