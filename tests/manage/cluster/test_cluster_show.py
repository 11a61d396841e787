"""What each node of an engine does, as both front ends show it."""

from __future__ import annotations

from spark_tui.base.protocol import NodeLook, NodeSilent, NodeVitals
from spark_tui.base.quantities import GIB
from spark_tui.observe.metrics.show.metrics import vitals_objects, vitals_section
from spark_tui.tui.widgets.page import page_lines
from tests.sparks import HEAD, WORKER, Sparks

LOOKS = {
    HEAD: NodeLook("spark-1", "1", 20 * GIB, 121 * GIB, vitals=NodeVitals(93, 61.2, 67, 2.3e9, 2.4e9)),
    WORKER: NodeSilent("spark-2 is unreachable.", "Check it."),
}


def test_a_figure_that_is_unknown_is_no_zero_and_has_its_reason() -> None:
    first, second = vitals_objects(Sparks().record(), LOOKS)
    assert (first["gpu_power_watts"], first["link_megabytes_per_second"]) == (61.2, 4700.0)
    assert second["gpu_power_watts"] is None
    assert "spark-2 is unreachable." in second.values()


def test_the_nodes_fit_beside_the_list_of_launches() -> None:
    section = vitals_section(Sparks().record(), LOOKS)
    assert [row[0].text for row in section.table.rows] == ["spark-1", "spark-2"] if section.table else False
    assert max(line.cell_length for line in page_lines((section,), 56)) <= 56
