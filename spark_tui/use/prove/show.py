"""What a proof shows: its verdicts in a table, what failed and why, the badge, JSON and JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from msgspec.structs import replace

from spark_tui.base.page import (
    TONES,
    Cell,
    Column,
    Object,
    Page,
    Row,
    Section,
    Table,
    Tone,
    cells,
    maybe,
    moment,
    rounded,
)
from spark_tui.base.quantities import ago, human_duration
from spark_tui.base.text import truncate
from spark_tui.observe.results.model.proof import (
    Badge,
    CaseResult,
    Proof,
    Verdict,
    changes,
    earlier_proof,
    identity_of,
    parser_advice,
)
from spark_tui.observe.results.model.run import RunOutcome
from spark_tui.use.prove.use.prove import ProofProgress

_TONES: Final = {Verdict.PASS: Tone.GOOD, Verdict.FAIL: Tone.BAD, Verdict.SKIP: Tone.QUIET}
MOST_EVIDENCE: Final = 200
"""Cells of a passing case's evidence; a narrow page cuts it to its line."""
_ORDER: Final = (Verdict.FAIL, Verdict.PASS, Verdict.SKIP)


def badge_row(found: Badge | None) -> tuple[Row, ...]:
    return (Row(found.text, "proof", TONES[found.severity]),) if found is not None else ()


def headline(proof: Proof) -> str:
    counts = {verdict: len(proof.ids(verdict)) for verdict in Verdict}
    parts = [f"{counts[Verdict.PASS]} of {proof.judged} cases pass"]
    parts += [f"{counts[Verdict.FAIL]} failed"] if counts[Verdict.FAIL] else []
    parts += [f"{counts[Verdict.SKIP]} skipped"] if counts[Verdict.SKIP] else []
    return f"{', '.join(parts)}   {human_duration(proof.seconds)}"


def progress_text(progress: ProofProgress) -> str:
    failed = sum(case.verdict is Verdict.FAIL for case in progress.cases)
    text = f"{progress.engine}: {len(progress.cases)} of {progress.total} cases"
    return f"{text}, {failed} failed" if failed else text


def case_table(cases: Sequence[CaseResult]) -> Table:
    """What failed first, then what passed, then what was skipped."""
    ordered = [case for verdict in _ORDER for case in cases if case.verdict is verdict]
    columns = (Column("case"), Column("verdict"), Column("s", right=True, keep=1), Column("evidence", least=16))
    rows = tuple(
        cells(
            case.id,
            Cell(case.verdict.value, _TONES[case.verdict]),
            f"{case.seconds:.1f}" if case.seconds else "",
            Cell(case.evidence, Tone.PLAIN if case.verdict is Verdict.FAIL else Tone.QUIET),
        )
        for case in ordered
    )
    return Table(columns, rows, tuple(case.id for case in ordered))


def summary(proof: Proof, proofs: Sequence[Proof] = ()) -> tuple[Row, ...]:
    """The verdict, what fixes it, and what changed since the last proof of this model."""
    failed = proof.ids(Verdict.FAIL)
    rows = [Row(headline(proof), "verdict", Tone.BAD if failed else Tone.GOOD if proof.complete else Tone.WARNING)]
    if proof.ending is not RunOutcome.COMPLETED:
        rows.append(Row(f"{proof.ending.value}: {proof.reason}", "ended", Tone.WARNING))
    rows += [Row(text, "fix", Tone.WARNING) for text in parser_advice(proof)]
    earlier = earlier_proof(proof, proofs)
    if earlier is not None:
        broken, fixed = changes(earlier, proof)
        found = [f"now fails: {', '.join(broken)}"] if broken else []
        found += [f"now passes: {', '.join(fixed)}"] if fixed else []
        tone = Tone.WARNING if broken else Tone.PLAIN
        rows.append(Row(f"{'; '.join(found) or 'no difference'} ({earlier.id})", "since", tone))
    return tuple(rows)


def proof_page(
    proof: Proof | None, proofs: Sequence[Proof], now: float, badge: Badge | None, *, name: str, key: str
) -> Page:
    """The proof of an engine, whole, with what it says of the engine as it is now; without one, the key to prove it."""
    if proof is None:
        text = f"{name or 'No engine'} was not proved yet: tool calls, reasoning and structured output are untested."
        return (Section(rows=(Row(f"{text} {key} proves it." if name else text, tone=Tone.QUIET),)),)
    found = proof.conditions
    where = [f"on {', '.join(found.nodes)}"] if found.nodes else []
    about = "   ".join((found.engine, found.model, *where, ago(now - proof.at)))
    stale = badge_row(badge) if badge is not None and badge.text.startswith("stale") else ()
    return (Section(rows=(Row(about, "engine"), *stale, *summary(proof, proofs))), *_by_verdict(proof.cases))


def _by_verdict(cases: Sequence[CaseResult]) -> Page:
    """What failed, with its evidence whole; the areas; what passed and what was skipped in a line each."""
    failed = tuple(Row(f"{case.id}: {case.evidence}", "!") for case in cases if case.verdict is Verdict.FAIL)
    counts = {(area, v): 0 for area in dict.fromkeys(case.area for case in cases) for v in Verdict}
    for case in cases:
        counts[case.area, case.verdict] += 1
    rows = [
        cells(area.value, *(Cell(str(counts[area, v]), _TONES[v] if counts[area, v] else Tone.QUIET) for v in Verdict))
        for area in dict.fromkeys(area for area, _ in counts)
    ]
    titles = (Column("area"), *(Column(verdict.value, right=True) for verdict in Verdict))
    others = [replace(case, evidence=truncate(case.evidence, MOST_EVIDENCE)) for case in cases]
    return (
        *((Section("Failed", failed),) if failed else ()),
        Section("Areas", table=Table(titles, tuple(rows))),
        Section("Passed and skipped", table=case_table([case for case in others if case.verdict is not Verdict.FAIL])),
    )


def comparison(earlier: Proof, later: Proof) -> Page:
    """What differs between two proofs: the engine's identity, and each case whose verdict does."""
    before = {case.id: case for case in earlier.cases}
    rows = tuple(
        cells(
            case.id,
            Cell(was.verdict.value, _TONES[was.verdict]),
            Cell(case.verdict.value, _TONES[case.verdict]),
            Cell((case if case.verdict is Verdict.FAIL else was).evidence, Tone.QUIET),
        )
        for case in later.cases
        if (was := before.get(case.id)) is not None and was.verdict is not case.verdict
    )
    columns = (Column("case"), Column("before"), Column("now"), Column("evidence", least=16))
    between = [Row(f"{was or 'unknown'} -> {now or 'unknown'}", name) for name, was, now in _identity(earlier, later)]
    heads = tuple(Row(f"{headline(each)}   ({each.id})", name) for name, each in (("before", earlier), ("now", later)))
    return (
        Section(rows=(*heads, *(between or [Row("same image, revision and settings", "changed")]))),
        Section(table=Table(columns, rows, tuple(row[0].text for row in rows), "No verdict differs.")),
    )


def _identity(earlier: Proof, later: Proof) -> list[tuple[str, str, str]]:
    """What changed between two proofs, each with its former and its present value."""
    then, now = identity_of(earlier), identity_of(later)
    found = [
        ("model", then.model, now.model),
        ("image", earlier.conditions.image, later.conditions.image),
        ("image id", then.image[:19], now.image[:19]),
        ("revision", then.revision or earlier.commit, now.revision or later.commit),
        ("nodes", ", ".join(earlier.conditions.nodes) or "one", ", ".join(later.conditions.nodes) or "one"),
        ("NCCL", earlier.conditions.nccl or "unknown", later.conditions.nccl or "unknown"),
        *(("setting", flag, "not set") for flag in then.flags if flag not in now.flags),
        *(("setting", "not set", flag) for flag in now.flags if flag not in then.flags),
    ]
    return [(name, was, is_now) for name, was, is_now in found if was != is_now]


def comparison_object(earlier: Proof, later: Proof) -> Object:
    broken, fixed = changes(earlier, later)
    return {
        "id": later.id,
        "earlier": earlier.id,
        "failed": {"before": len(earlier.ids(Verdict.FAIL)), "now": len(later.ids(Verdict.FAIL))},
        "broken": list(broken),
        "fixed": list(fixed),
        "changed": [{"id": name, "before": was, "now": now} for name, was, now in _identity(earlier, later)],
    }


def live_page(progress: ProofProgress) -> Page:
    """A proof under way."""
    return (
        Section(rows=(Row(progress_text(progress), "running", Tone.STRONG),)),
        *_by_verdict(progress.cases),
    )


def proof_object(proof: Proof) -> Object:
    found = proof.conditions
    return {
        "id": proof.id,
        "at": moment(proof.at),
        "engine": found.engine,
        "model": found.model,
        **maybe("revision", found.revision or proof.commit, "the engine's command names none"),
        **maybe("image_digest", found.image_digest, "the image has no digest"),
        "image": found.image,
        "nodes": list(found.nodes),
        "flags": list(found.flags),
        "outcome": proof.ending.value,
        **maybe("cause", proof.reason, "it ran to its end"),
        "full": proof.full,
        "seconds": rounded(proof.seconds),
        "passed": len(proof.ids(Verdict.PASS)),
        "failed": len(proof.ids(Verdict.FAIL)),
        "skipped": len(proof.ids(Verdict.SKIP)),
        "fixes": list(parser_advice(proof)),
        "cases": [
            {
                "id": case.id,
                "area": case.area.value,
                "verdict": case.verdict.value,
                "evidence": case.evidence,
                "seconds": case.seconds,
            }
            for case in proof.cases
        ],
    }


def junit(proof: Proof) -> str:
    """JUnit XML, as CI servers read it: a test suite with a test case each."""
    name, failed, skipped = quoteattr(proof.conditions.engine), *(len(proof.ids(v)) for v in _ORDER[::2])
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={name} tests="{len(proof.cases)}" failures="{failed}" skipped="{skipped}"'
        f' time="{proof.seconds:.3f}">',
    ]
    for case in proof.cases:
        head = f'<testcase classname={quoteattr(case.area.value)} name={quoteattr(case.id)} time="{case.seconds:.3f}"'
        inner = {
            Verdict.PASS: f"<system-out>{escape(case.evidence)}</system-out>",
            Verdict.FAIL: f"<failure message={quoteattr(case.evidence)}/>",
            Verdict.SKIP: f"<skipped message={quoteattr(case.evidence)}/>",
        }[case.verdict]
        lines.append(f"  {head}>{inner}</testcase>")
    return "\n".join((*lines, "</testsuite>", ""))
