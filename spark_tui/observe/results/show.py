"""Published figures, for both front ends: the table of all, and everything of one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from spark_tui.base.engine.runtimes import (
    NOT_STATED,
    KnownModels,
    Published,
    PublishedSource,
    Reference,
    disputes,
    family,
    is_known,
    runtime_named,
)
from spark_tui.base.page import ALWAYS, Cell, Column, Object, Page, Row, Section, Table, Tone, cells

_FIGURES: Final = (
    Column("model", least=16), Column("format"), Column("engine", keep=8, least=11), Column("machine", keep=7, least=9),
    Column("streams", right=True), Column("tok/s", right=True), Column("linear", right=True, keep=2),
    Column("prefill", right=True, keep=3), Column("TTFT", right=True, keep=1), Column("source", keep=6, least=8),
    Column("date", keep=4), Column("note", keep=5, least=12),
)  # fmt: skip


def engine_text(each: Published) -> str:
    return runtime_named(each.runtime).title if is_known(each.runtime) else "not stated"


def machine_text(each: Reference) -> str:
    return each.machine or ("DGX Spark" if each.machines == 1 else f"{each.machines} DGX Sparks")


def rate_text(each: Reference) -> str:
    return f"{each.decode_rate:,.0f}" if each.decode_rate >= 1000 else f"{each.decode_rate:g}"


def note(each: Reference) -> str:
    """How it was measured, where that is known, and why it is doubted."""
    drafting = f"drafting with {each.drafting}" if each.drafting not in ("", "unknown") else ""
    disputed = f"disputed: {each.dispute}" if each.dispute else ""
    return ", ".join(filter(None, ("knee" if each.knee else "", drafting, each.conditions, disputed)))


def of_linear(figures: Sequence[Reference]) -> tuple[float | None, ...]:
    """Percent of linear scaling of each: as its source has it, else beside the figure of one stream that is like it;
    None where there is none."""
    alone = {_but_rates(each): each.decode_rate for each in figures if each.streams == 1}
    return tuple(
        each.scaling
        if each.scaling is not None or each.streams < 2 or _but_rates(each) not in alone
        else 100 * each.decode_rate / (each.streams * alone[_but_rates(each)])
        for each in figures
    )


def _but_rates(each: Reference) -> Reference:
    return replace(each, streams=1, decode_rate=0, prefill_rate=None, knee=False, dispute="")


def figures_table(figures: Sequence[Reference], *, models: bool = True) -> Table:
    """One row a figure; prefill in tokens per second, TTFT in seconds. `models`: of several, each with its name."""
    rows = []
    for each, linear in zip(figures, of_linear(figures), strict=True):
        first = each.first_token
        rows.append(
            cells(
                each.model,
                each.quantization,
                f"{engine_text(each)} {each.version}".rstrip(),
                machine_text(each),
                str(each.streams or "many"),
                rate_text(each),
                "" if linear is None else f"{linear:.1f} %",
                "" if each.prefill_rate is None else f"{each.prefill_rate:,.0f}",
                "" if first is None else f"{first:.1f} s",
                each.source,
                each.date,
                Cell(note(each), Tone.WARNING if each.dispute else Tone.QUIET),
            )
        )
    columns = (replace(_FIGURES[0], keep=ALWAYS if models else 0), *_FIGURES[1:])
    return Table(columns, tuple(rows), empty="No published figure.")


def models_table(known: KnownModels) -> Table:
    """One row a model in any format: the most tok/s of one stream on one Spark, and how many figures there are."""
    found: dict[frozenset[str], list[Published]] = {}
    for each in everything(known):
        found.setdefault(family(each.model), []).append(each)
    names = {key: members[0].model for key, members in found.items()}
    rows = {
        names[key]: cells(
            names[key].rpartition("/")[2],
            ", ".join(dict.fromkeys(each.quantization for each in members if each.quantization)),
            max(
                (f"{each.decode_rate:g}" for each in members if isinstance(each, Reference) and each.alone),
                key=float,
                default="-",
            ),
            str(len(members)),
        )
        for key, members in found.items()
    }
    ids = sorted(rows, key=lambda name: name.rpartition("/")[2].lower())
    formats, count = Column("formats", keep=2, least=5), Column("figures", right=True, keep=1)
    columns = (Column("model", least=16), formats, Column("tok/s", right=True), count)
    return Table(columns, tuple(rows[name] for name in ids), tuple(ids))


def model_page(known: KnownModels) -> Page:
    """Everything of a model: speeds with scaling and knee, speeds by KV cache, accuracy, disputes, sources."""
    sections = [Section("Speeds", table=figures_table(known.figure, models=False))] if known.figure else []
    scaled = tuple(
        Row(
            f"{rate_text(each)} tok/s at {each.streams or 'many'} streams, "
            f"{'' if each.scaling is None else f'{each.scaling:g} % of linear, '}{machine_text(each)} ({each.source})",
            "knee" if each.knee else "most",
        )
        for each in known.figure
        if each.knee or each.scaling is not None
    )
    sections += [Section("Scaling", scaled)] if scaled else []
    if known.kv:
        rows = tuple(
            cells(
                f"{each.depth:,}",
                each.what,
                kv,
                f"{rate:g}",
                f"{-slower:+.1f} %" if slower else "",
                each.source,
            )
            for each in known.kv
            for kv, rate in each.rates.items()
            for slower in (each.slower(kv),)
        )
        titles = (Column("depth", right=True), Column("rate of", keep=2), Column("KV cache"))
        figures = (Column("tok/s", right=True), Column("beside f16", right=True), Column("source", keep=1, least=8))
        texts = dict.fromkeys(
            ", ".join(filter(None, (engine_text(each), each.quantization, each.conditions))) for each in known.kv
        )
        sections.append(
            Section("KV cache", tuple(Row(text, tone=Tone.QUIET) for text in texts), Table((*titles, *figures), rows))
        )
    for found in known.accuracy:
        name = found.model.rpartition("/")[2]
        where = ", ".join(filter(None, (name, found.conditions, found.machine, found.source, found.date)))
        rows = tuple(
            cells(test, f"{values[0]:g}", "".join(f"{value:g}" for value in values[1:]))
            for test, values in found.scores.items()
        )
        columns = (Column("test"), Column(found.quantization, right=True), Column("full precision", right=True))
        sections.append(Section("Accuracy, %", (Row(where, tone=Tone.QUIET),), Table(columns, rows)))
    sources = tuple(Row(source_text(source), id_, Tone.QUIET) for id_, source in sources_of(known).items())
    return (*sections, *disputed_page(known), Section("Sources", sources))


def everything(known: KnownModels) -> tuple[Published, ...]:
    return (*known.figure, *known.kv, *known.accuracy)


def sources_of(known: KnownModels) -> dict[str, PublishedSource]:
    """The sources of what is there, by their id."""
    used = {*(each.source for each in everything(known)), *(each.source for each in known.claim)}
    return {id_: source for id_, source in known.source.items() if id_ in used}


def source_text(source: PublishedSource) -> str:
    return ", ".join(filter(None, (source.title, source.url, source.licence if source.licence != NOT_STATED else "")))


def disputed_page(known: KnownModels) -> Page:
    """What is disputed of the figures; empty where nothing is."""
    rows = tuple(Row(text, "-", Tone.WARNING) for text in disputes(known))
    return (Section("Disputed", rows),) if rows else ()


def references_object(known: KnownModels) -> Object:
    """As data. `streams` is null where there were many, and how many is not stated."""
    return {
        "figures": [
            _figure_object(each, linear) for each, linear in zip(known.figure, of_linear(known.figure), strict=True)
        ],
        "kv_cache": [
            {
                "model": each.model,
                "format": each.quantization or None,
                "engine": each.runtime,
                "rate_of": each.what,
                "depth_tokens": each.depth,
                "tokens_per_second": each.rates,
                "slower_percent": {kv: round(less, 1) for kv in each.rates if (less := each.slower(kv)) is not None},
                "source": each.source,
                "date": each.date,
                "conditions": each.conditions,
            }
            for each in known.kv
        ],
        "accuracy": [
            {
                "model": each.model,
                "format": each.quantization,
                "machine": each.machine or None,
                "scores": {
                    test: {"percent": values[0], "full_precision_percent": values[1] if len(values) > 1 else None}
                    for test, values in each.scores.items()
                },
                "source": each.source,
                "date": each.date,
                "conditions": each.conditions,
            }
            for each in known.accuracy
        ],
        "disputed": list(disputes(known)),
        "sources": {
            id_: {"title": source.title, "url": source.url or None, "licence": source.licence}
            for id_, source in sources_of(known).items()
        },
    }


def _figure_object(each: Reference, linear: float | None) -> Object:
    first = each.first_token
    return {
        "model": each.model,
        "format": each.quantization,
        "engine": each.runtime or None,
        "version": each.version or None,
        "machine": each.machine or "DGX Spark",
        "machines": each.machines,
        "streams": each.streams or None,
        "output_tokens_per_second": each.decode_rate,
        "prefill_tokens_per_second": each.prefill_rate,
        "prompt_tokens": each.input_tokens,
        "answer_tokens": each.output_tokens,
        "first_token_seconds": None if first is None else round(first, 2),
        "of_linear_percent": None if linear is None else round(linear, 1),
        "knee": each.knee,
        "drafting": each.drafting or None,
        "conditions": each.conditions,
        "dispute": each.dispute or None,
        "source": each.source,
        "date": each.date,
    }
