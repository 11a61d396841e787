"""Clients of an engine: which are connected, what their files would be, and what keeps them from working."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from spark_tui.base.actions import key_of
from spark_tui.base.finding import Finding
from spark_tui.base.gateway import GatewayStatus
from spark_tui.base.page import TONES, Cell, Column, Object, Page, Row, Section, Table, Tone, cells, maybe
from spark_tui.base.quantities import human_count
from spark_tui.base.secret import MASK, mask_secrets
from spark_tui.use.connect.use import Connection, FileChange

_TONES = {"+": Tone.GOOD, "-": Tone.BAD}
AROUND = 2
"""Unchanged lines shown around a change."""


def state_of(plan: Connection) -> Cell:
    """The client's state in one word."""
    if plan.problem is not None:
        return Cell("unreadable", Tone.BAD)
    if plan.written:
        return Cell("outdated", Tone.WARNING) if plan.changed else Cell("connected", Tone.GOOD)
    if plan.errors:
        return Cell("blocked", Tone.BAD)
    return Cell("-" if plan.files else "by hand", Tone.QUIET)


def clients_table(plans: Sequence[Connection]) -> Table:
    """A row for each client, with its engine where they are several."""
    several = len({plan.engine for plan in plans}) > 1
    columns = (Column("client", least=10), Column("state"), *[Column("engine")] * several, Column("API", keep=1))
    rows = [
        cells(
            Cell(plan.client.title, Tone.STRONG),
            state_of(plan),
            *[plan.engine if plan.written and not plan.changed else "-"] * several,
            Cell(plan.client.api.value, Tone.QUIET),
        )
        for plan in plans
    ]
    return Table(columns, tuple(rows), tuple(plan.client.id for plan in plans))


def diff_lines(plan: Connection, *, show_key: bool = False) -> list[str]:
    """What writing changes, as a unified diff. Keys are masked, ours only without `show_key`."""
    return [line for each in plan.files for line in _diff(each, plan, show_key=show_key)]


def _diff(each: FileChange, plan: Connection, *, show_key: bool) -> Iterator[str]:
    key, path = plan.served.sent_key.reveal(), each.old.path
    old, new = (each.old.text or "").splitlines(), each.new.splitlines()
    source = path if each.old.text is not None else "/dev/null"
    for line in difflib.unified_diff(old, new, source, each.old.target or path, lineterm="", n=AROUND):
        ours = plan.served.key is not None and key in line
        if ours and show_key:
            yield line
        elif each.file.format == "text" and not line.startswith(("---", "+++", "@@")):
            yield f"{line[:1]}{MASK}"
        else:
            yield mask_secrets(line.replace(key, MASK) if ours else line)


def finding_rows(finding: Finding) -> list[Row]:
    rows = [Row(finding.summary, finding.severity.value, TONES[finding.severity])]
    return [
        *rows,
        *(Row(text, "evidence") for text in finding.evidence),
        *([Row(finding.remedy, "fix")] * bool(finding.remedy)),
    ]


def gateway_row(plan: Connection, gateway: GatewayStatus | None) -> Row:
    """Whether the client is given the gateway, and how to change that."""
    key = key_of("toggle_gateway")
    if gateway is None:
        return Row("Not running. Start it: spark-tui gateway", "gateway", Tone.WARNING if plan.gateway else Tone.QUIET)
    return Row(f"Used. {key}: use the engine." if plan.gateway else f"Running. {key}: use the gateway.", "gateway")


def _key_of(plan: Connection) -> str:
    """Where the client's key is, or what makes it."""
    served = plan.served
    if plan.new_key:
        return "made for this client when its files are written"
    if served.key is None:
        return f"made by: {served.key_command}" if served.key_command else "none"
    return f"in {served.key_file}" if served.key_file else "set"


def connection_page(plan: Connection, gateway: GatewayStatus | None) -> Page:
    """What the client is given by the engine or the running gateway, findings, the diff, and how to start."""
    served = plan.served
    context = f"{human_count(served.context)} tokens" if served.context else "unknown"
    pairs = [(served.name or "unknown", "model"), (context, "context"), (_key_of(plan), "key")]
    given = [Row(served.base_url, "server")] * bool(served.base_url) + [gateway_row(plan, gateway)]
    sections = [Section(rows=(*given, *(Row(text, label) for text, label in pairs)))]
    if plan.problem is not None:
        return (
            *sections,
            Section(rows=(Row(plan.problem.summary, "error", Tone.BAD), Row(plan.problem.remedy, "fix"))),
        )
    if plan.findings:
        sections.append(Section(rows=tuple(row for each in plan.findings for row in finding_rows(each))))
    for each in plan.files:
        lines = list(_diff(each, plan, show_key=False))[3:]
        rows = [Row(_indented(line[1:]), line[:1], _TONES.get(line[:1], Tone.QUIET)) for line in lines]
        name = f"{each.old.path} -> {each.old.target}" if each.old.target else each.old.path
        sections.append(Section(name, tuple(rows or [Row("up to date", tone=Tone.QUIET)])))
    return (*sections, *steps_page(plan))


def elsewhere_page(plan: Connection | None, script: str) -> Page:
    """How the client on another machine is connected; `script` is a line for its shell, the key left out. What keeps it
    from working comes first. None: this machine has no address."""
    if plan is None:
        return (Section(rows=(Row("This machine has no network address.", tone=Tone.QUIET),)),)
    served = plan.served
    pairs = ((served.base_url, "server"), (served.name, "model"))
    sections = [Section(rows=tuple(Row(text, label) for text, label in pairs if text))]
    if plan.findings:
        sections.append(Section(rows=tuple(row for each in plan.findings for row in finding_rows(each))))
    if plan.errors:
        if any("exposure" in dict(each.change) for each in plan.errors):
            sections[-1] = Section(rows=(*sections[-1].rows, Row(f"{key_of('secure_engine')} on Home", "or")))
        address = urlsplit(served.base_url)
        if address.hostname and address.port:
            tunnel = f"ssh -N -L {address.port}:127.0.0.1:{address.port} {address.hostname}"
            here = Row("There the client's settings are those of this machine.", tone=Tone.QUIET)
            sections.append(Section("Or through ssh, without a change", (here,), command=tunnel))
        return tuple(sections)
    if script:
        return (*sections, Section("Paste into its shell", command=script))
    return (*sections, *steps_page(plan))


def _indented(line: str) -> str:
    """With blanks that wrapping keeps."""
    text = line.lstrip(" ")
    return "\xa0" * (len(line) - len(text)) + text or " "


def steps_page(plan: Connection) -> Page:
    """What a person does themselves."""
    client, served = plan.client, plan.served
    rows = tuple(Row(text, label) for label, text in client.steps_for(served))
    command = client.command_for(served) if served.name else ""
    sections = [Section(f"Enter in {client.title}", rows)] if rows else []
    sections += [Section(client.title, command=command)] if command else []
    return (*sections, *([Section("Start", command=client.start)] if client.start else []))


def connection_object(plan: Connection, *, show_key: bool = False) -> Object:
    served = plan.served
    return {
        "id": plan.client.id,
        "title": plan.client.title,
        "engine": plan.engine,
        "api": plan.client.api.value,
        "state": state_of(plan).text,
        **maybe("base_url", served.base_url, "no port"),
        **maybe("model", served.name, "not serving"),
        **maybe("context_tokens", served.context, "the engine does not report it"),
        **maybe("output_tokens", served.output, "the engine does not report its context"),
        **({"key": served.key.reveal()} if show_key and served.key is not None else {}),
        "files": [
            {"path": each.old.path, "exists": each.old.text is not None, "changed": each.changed} for each in plan.files
        ],
        "diff": "\n".join(diff_lines(plan, show_key=show_key)),
        "findings": [finding_object(each) for each in plan.findings],
        "steps": dict(plan.client.steps_for(served)),
        **maybe("command", plan.client.command_for(served) if served.name else "", "set up by files or steps"),
        **maybe("problem", plan.problem.summary if plan.problem is not None else None, "none"),
    }


def finding_object(finding: Finding) -> Object:
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "summary": finding.summary,
        "evidence": list(finding.evidence),
        "remedy": finding.remedy,
        "change": dict(finding.change),
    }
