"""What the nodes of a launch on several machines do now, for both front ends."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Final, TypeAlias

from spark_tui.base.errors import SparkError
from spark_tui.base.graph import value_text
from spark_tui.base.host.series import MetricId
from spark_tui.base.launches import ClusterRecord
from spark_tui.base.page import Cell, Column, Object, Row, Section, Table, Tone, cells, maybe, rounded
from spark_tui.base.protocol import NodeLook, NodeVitals
from spark_tui.base.quantities import GIB

Looks: TypeAlias = Mapping[str, NodeLook | SparkError]
"""What each node answered last, by its ssh host; a node that was not asked yet is absent."""
_VITALS: Final = (
    MetricId.GPU_UTILIZATION, MetricId.GPU_POWER, MetricId.GPU_TEMPERATURE, MetricId.MEMORY_IN_USE,
    MetricId.MEMORY_AVAILABLE, MetricId.LINK_RATE,
)  # fmt: skip


def vitals_section(record: ClusterRecord, looks: Looks) -> Section:
    """What each node of a launch does now; a dash for what is unknown, and why a node does not answer."""
    shown = [each for each in _VITALS if each is not MetricId.MEMORY_AVAILABLE]
    names = ("temp" if each is MetricId.GPU_TEMPERATURE else each.label for each in shown)
    columns = (Column("Nodes now"), *(Column(name, right=True) for name in names))
    rows, silent = [], []
    for rank in record.ranks:
        look = looks.get(rank.node.host)
        known = node_values(look) if isinstance(look, NodeLook) else {}
        texts = (
            value_text(known[each], each.unit, each.decimals) if each in known else Cell("-", Tone.QUIET)
            for each in shown
        )
        rows.append(cells(Cell(rank.node.name, Tone.STRONG), *texts))
        if isinstance(look, SparkError):
            silent.append(Row(look.summary, "problem", Tone.BAD))
    return Section(rows=tuple(silent), table=Table(columns, tuple(rows)))


def vitals_objects(record: ClusterRecord, looks: Looks) -> tuple[Object, ...]:
    """What each node does now; null with a reason for what is unknown."""
    found: list[Object] = []
    for number, rank in enumerate(record.ranks):
        look = looks.get(rank.node.host)
        known = node_values(look) if isinstance(look, NodeLook) else {}
        why = look.summary if isinstance(look, SparkError) else "not reported by the node"
        values = (maybe(each.value, rounded(known.get(each), 4), why) for each in _VITALS)
        found.append(dict(ChainMap({"id": rank.node.name, "rank": number}, *values)))
    return tuple(found)


def node_values(look: NodeLook) -> dict[MetricId, float]:
    """The series of one node; those that are unknown are left out."""
    found, used = look.vitals or NodeVitals(), None
    if look.available is not None and look.total is not None:
        used = (look.total - look.available) / GIB
    traffic = None if found.received is None or found.sent is None else (found.received + found.sent) / 1e6
    values = {
        MetricId.GPU_UTILIZATION: found.gpu,
        MetricId.GPU_POWER: found.power,
        MetricId.GPU_TEMPERATURE: found.temperature,
        MetricId.MEMORY_AVAILABLE: None if look.available is None else look.available / GIB,
        MetricId.MEMORY_IN_USE: used,
        MetricId.LINK_RATE: traffic,
    }
    return {metric: value for metric, value in values.items() if value is not None}
