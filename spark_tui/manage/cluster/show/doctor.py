"""The checks of a cluster: a matrix of checks and nodes, then what needs attention, for both front ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from spark_tui.base.actions import key_of
from spark_tui.base.finding import VERDICTS, Finding, Severity, worst
from spark_tui.base.page import TONES, Cell, Column, Object, Page, Row, Section, Table, Tone, labelled
from spark_tui.manage.cluster.model.doctor import (
    CHECK_BY_ID,
    CHECKS,
    GATHER_NEEDS,
    MEASURE_AGAIN,
    MEASURE_IT,
    NAME_ONE,
    NETPLAN_FILE,
    ORDER,
)

_DETAILED: Final = (Severity.ERROR, Severity.WARNING)
_GROUPS: Final = {Severity.ERROR: "Needs attention", Severity.WARNING: "Needs attention", Severity.UNKNOWN: "Skipped"}
BANDWIDTH_TEXT: Final = (
    "ib_write_bw and iperf3 between the head and each node, one after the other, then NCCL between all nodes in the"
    " image of the chosen preset. Loads the fabric for about a minute per node: engines that run on it slow down."
)


def matrix(findings: Sequence[Finding], *, worst_first: bool = False) -> Table:
    """A row for each check, a column for each node. `worst_first`: under headings, as of one machine."""
    nodes = list(dict.fromkeys(each.subject for each in findings))
    by_check = {(each.id, each.subject): each for each in findings}
    columns = (Column("check"), *(Column(node) for node in nodes), Column("result", least=12))
    found = [(check, [by_check[check.id, node] for node in nodes]) for check in CHECKS] if findings else []
    firsts = {check.id: min(own, key=lambda each: ORDER.index(each.severity)) for check, own in found}
    if worst_first:
        found.sort(key=lambda each: ORDER.index(firsts[each[0].id].severity))
    rows = []
    for check, own in found:
        first = firsts[check.id]
        verdicts = (Cell(VERDICTS[each.severity], TONES[each.severity]) for each in own)
        quiet = Tone.PLAIN if first.severity in _DETAILED else Tone.QUIET
        rows.append((Cell(check.title), *verdicts, Cell(first.summary, quiet)))
    ids = tuple(check.id for check, _ in found)
    groups = tuple(_GROUPS.get(firsts[each].severity, "Passed") for each in ids) if worst_first else ()
    return Table(columns, tuple(rows), ids, groups=groups)


def check_page(check: str, findings: Iterable[Finding], netplan: Mapping[str, str]) -> Page:
    """What one check found, the worst first: nodes that agree share a section. Its fixes name keys of the screen, and
    the proposals for netplan that they refer to stand below."""
    nodes: dict[Finding, list[str]] = {}
    for each in sorted(findings, key=lambda each: ORDER.index(each.severity)):
        if each.id == check:
            nodes.setdefault(replace(each, subject="", remedy=_with_keys(each.remedy)), []).append(each.subject)
    proposed = netplan if any("netplan below" in each.remedy for each in nodes) else {}
    return (
        *(_section(", ".join(names), each) for each, names in nodes.items()),
        Section(rows=(Row(f"check {check}", tone=Tone.QUIET),)),
        *_proposals(proposed),
    )


def _with_keys(remedy: str) -> str:
    """A fix that names options of the command line, for the screen."""
    preset, bandwidth = key_of("compare_preset"), key_of("measure_bandwidth")
    keys = {
        NAME_ONE: f"Choose a preset to compare: {preset}",
        MEASURE_IT: f"Measure it: {bandwidth}",
        MEASURE_AGAIN: f"Check the firewall between the nodes, then measure again: {bandwidth}",
        GATHER_NEEDS: f"Needs a GPU on each node and an image with PyTorch. Choose its preset ({preset}), then"
        f" {bandwidth}.",
    }
    return keys.get(remedy, remedy)


def attention(findings: Iterable[Finding], netplan: Mapping[str, str]) -> Page:
    """Errors and warnings with node, fix and evidence, the worst first; then the proposals for netplan."""
    found = sorted((each for each in findings if each.severity in _DETAILED), key=lambda each: each.severity.rank)
    sections = (_section(f"{each.subject}: {CHECK_BY_ID[each.id].title}", each) for each in found)
    return (*sections, *_proposals(netplan))


def _section(title: str, found: Finding) -> Section:
    """What was found, its fix and its evidence."""
    pairs = (("fix", found.remedy), ("evidence", ", ".join(found.evidence)))
    rows = (Row(found.summary, tone=TONES[found.severity]), *labelled(pairs))
    return Section(f"{VERDICTS[found.severity]}  {title}", rows)


def _proposals(netplan: Mapping[str, str]) -> Page:
    how = "A proposal, not written. Put it there with mode 600, then: sudo netplan try"
    return tuple(
        Section(f"{NETPLAN_FILE} on {node}", (Row(how, tone=Tone.QUIET),), command=text)
        for node, text in netplan.items()
    )


def report_object(cluster: str, findings: Sequence[Finding], netplan: Mapping[str, str]) -> Object:
    """All checks of all nodes as data."""
    return {
        "cluster": cluster,
        "worst": VERDICTS[worst(findings)],
        "checks": [
            {
                "id": each.id,
                "node": each.subject,
                "group": CHECK_BY_ID[each.id].group.value,
                "title": CHECK_BY_ID[each.id].title,
                "verdict": VERDICTS[each.severity],
                "summary": each.summary,
                "evidence": ", ".join(each.evidence) or None,
                "remedy": each.remedy or None,
            }
            for each in findings
        ],
        "netplan": dict(netplan),
    }
