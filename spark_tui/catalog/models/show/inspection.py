"""What a checkpoint is: by its own files, by its card on the Hub, and as a result of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from spark_tui.base.checkpoint import ModelKind, ModuleBytes, ModuleClass, WeightFormat
from spark_tui.base.finding import Missing, Reading, value_of
from spark_tui.base.page import (
    Cell,
    Column,
    Object,
    Page,
    Row,
    Section,
    Table,
    Tone,
    cells,
    known,
    labelled,
    maybe,
    moment,
    read,
    rounded,
)
from spark_tui.base.quantities import human_bytes, short_tokens
from spark_tui.catalog.models.model.hub import Fits, FormatBasis, Gating, RepoFacts, SearchHit
from spark_tui.catalog.models.model.inspection import Inspection

UNKNOWN: Final = "?"
NO_HEADERS: Final = "the headers of its weights are not all here"
NOT_ON_HUB: Final = "the Hub does not say"
_MOST_EXCLUDED: Final = 6
_FITS: Final = {
    Fits.YES: ("fits one Spark, with room for a KV cache", Tone.GOOD),
    Fits.TIGHT: ("fits one Spark, with little room for a KV cache", Tone.WARNING),
    Fits.NO: ("too large for one Spark", Tone.BAD),
    Fits.UNKNOWN: ("unknown if it fits one Spark (the Hub reports no weights)", Tone.QUIET),
}
_ACCESS: Final = {
    Gating.OPEN: "open",
    Gating.AUTO: "accept the licence on its page first",
    Gating.MANUAL: "requires approval by the author",
}


def size_or_unknown(size: int | None) -> str:
    """`12.8 GiB`; `?` where it is unknown."""
    return UNKNOWN if size is None else human_bytes(size)


def age(seconds: float) -> str:
    """Coarse: the file system keeps it once a day. `today`, `6d`, `3mo`."""
    days = max(0, int(seconds // 86_400))
    if days == 0:
        return "today"
    return f"{days}d" if days < 60 else f"{days // 30}mo" if days < 730 else f"{days // 365}y"


def shown_sections(*sections: Section) -> Page:
    """Those that are not empty."""
    return tuple(each for each in sections if each != Section())


def sentence_page(text: str, tone: Tone = Tone.QUIET) -> Page:
    return (Section(rows=(Row(text, tone=tone),)),)


# --- a checkpoint -----------------------------------------------------------------------------------------


def inspection_rows(found: Inspection) -> tuple[tuple[str, str], ...]:
    """Label and value, in the order in which a person asks. Unknown values have no row."""

    def count(number: int) -> str:
        return f"{number / 1e9:.3g} B" if number >= 1e9 else f"{number / 1e6:.3g} M"

    facts, kv, chat = found.facts, found.kv, found.facts.chat
    weights, quantization = facts.weights, facts.quantization
    form = ""
    if quantization is not None:
        form = quantization.words if quantization.method else facts.dtype or "not quantized"
    excluded = quantization.excluded if quantization is not None else ()
    more = f" and {len(excluded) - _MOST_EXCLUDED} more" if len(excluded) > _MOST_EXCLUDED else ""
    active = f", {count(found.active)} active per token" if found.active and facts.is_moe else ""
    attention = [
        f"{each.layers} {each.kind.value}" + (f" {each.ratio}:1" if each.ratio > 1 else "")
        for each in facts.attention or ()
    ]
    kinds = ", ".join([*attention, *(f"{each.layers} {each.kind.value}" for each in facts.states or ())])
    ceiling = drafting = ""
    if found.ceiling is not None and found.read is not None:
        wide = f", {human_bytes(found.read.wide)} of them 16 bits wide" if found.read.wide else ""
        ceiling = f"{found.ceiling.text()} for one stream, estimated: {human_bytes(found.read.size)} per token{wide}"
    if facts.mtp_declared:
        state = {None: "weights unknown", 0: "weights missing"}.get(facts.mtp_layers, "weights included")
        drafting = f"{facts.mtp_declared} MTP {'layer' if facts.mtp_declared == 1 else 'layers'} declared, {state}"
    abilities, parsers = "no chat template", []
    if chat is not None:
        can = (("reasoning", chat.thinking), ("tool calls", chat.tools), ("images", chat.images))
        abilities = ", ".join(word for word, able in can if able) or "plain chat"
        abilities += f" (switched by {', '.join(chat.switches)})" if chat.switches else ""
        parsers += [f"--reasoning-parser {chat.reasoning_parser}"] if chat.reasoning_parser else []
        parsers += [f"--enable-auto-tool-choice --tool-call-parser {chat.tool_parser}"] if chat.tool_parser else []
    if facts.kind is not ModelKind.TEXT:
        abilities, parsers = "", []
    parameters = "" if found.parameters is None else count(found.parameters) + active
    if weights is not None and not weights.counted:
        parameters = "unknown (packed in a format without known bits)"
    pairs = (
        ("kind", "" if facts.kind is ModelKind.TEXT else f"{facts.kind} ({facts.kind_sign})"),
        ("architecture", " ".join(filter(None, (facts.architecture, facts.model_type and f"({facts.model_type})")))),
        ("parameters", parameters),
        ("weights", ", ".join(filter(None, (form, human_bytes(weights.size) if weights else "")))),
        ("tables", f"{count(found.table.parameters)}, {human_bytes(found.table.size)}" if found.table else ""),
        ("dtypes", ", ".join(f"{name} {human_bytes(size)}" for name, size in weights.by_dtype) if weights else ""),
        ("unquantized", ", ".join(excluded[:_MOST_EXCLUDED]) + more),
        ("decode", ceiling),
        ("layers", f"{facts.layers}: {kinds}" if facts.layers and kinds else str(facts.layers or "")),
        ("context", f"{facts.max_position_embeddings:,} tokens" if facts.max_position_embeddings else ""),
        ("KV cache", f"{human_bytes(kv.bytes_per_token)} per token in {kv.cache_dtype}" if kv else ""),
        ("windows", f"{human_bytes(kv.window_bytes)} per sequence" if kv and kv.window_bytes else ""),
        ("state", f"{human_bytes(kv.state_bytes)} per sequence" if kv and kv.state_bytes else ""),
        ("drafting", drafting),
        ("input", ", ".join(facts.modalities)),
        ("chat", abilities),
        ("parsers", " ".join(parsers)),
        ("sampling", ", ".join(f"{key} {value:g}" for key, value in facts.sampling)),
        ("licence", facts.licence),
        ("source", facts.source),
    )
    return tuple((label, value) for label, value in pairs if value)


def performance(look: Reading[Inspection] | None) -> Section:
    """What to expect on one Spark; empty before the checkpoint is read."""
    if isinstance(look, Missing):
        return Section(rows=(Row(f"Performance unknown: {look.reason}.", tone=Tone.QUIET),))
    rows = tuple(Row(text, "-") for text in look.value.verdict) if look is not None else ()
    return Section("Performance on one Spark", rows) if rows else Section()


def checkpoint_page(
    look: Reading[Inspection], about: Sequence[tuple[str, str]] = (), problems: Iterable[str] = ()
) -> Page:
    """Performance, `about` it, what it is by its own files, the weights of 16 bits, and findings."""
    found, expected, wide = value_of(look), Section(), Section()
    if found is not None:
        about, problems, expected = (
            (*about, *inspection_rows(found)),
            (*problems, *found.facts.findings),
            performance(look),
        )
        if found.wide and found.read is not None:
            columns = (Column("MODULE"), Column("STORED", right=True), Column("READ PER TOKEN", right=True))
            rows = (cells(each.module.value, human_bytes(each.stored), human_bytes(each.read)) for each in found.wide)
            wide = Section("Weights of 16 bits and more", table=Table(columns, tuple(rows)))
    warnings = tuple(Row(text, "!", Tone.WARNING) for text in problems)
    findings = Section("Findings", warnings) if warnings else Section()
    return shown_sections(expected, Section(rows=labelled(tuple(about))), wide, findings)


def checkpoint_object(look: Reading[Inspection]) -> Object:
    """`checkpoint`, or a null with its reason."""
    return read("checkpoint", look, _checkpoint_object)


def _checkpoint_object(found: Inspection) -> Object:
    facts, chat, form = found.facts, found.facts.chat, found.facts.quantization
    span = found.ceiling.span() if found.ceiling is not None else None
    unread = "not in its config"
    chat_shape: Any = None
    if chat is not None:
        chat_shape = {
            "thinking": chat.thinking,
            "tools": chat.tools,
            "images": chat.images,
            "switches": list(chat.switches),
            "reasoning_parser": chat.reasoning_parser,
            "tool_call_parser": chat.tool_parser,
        }
    experts, table = facts.experts, found.table
    if table is None and facts.weights is not None and facts.weights.complete:
        table = ModuleBytes(ModuleClass.TABLE, 0, 0)
    return {
        "kind": facts.kind.name.lower(),
        **known(unread, architecture=facts.architecture, model_type=facts.model_type),
        **maybe("quantization", form.words if form else None, unread),
        "formats": [each.value for each in form.formats] if form else [],
        "unquantized_modules": list(form.excluded) if form else [],
        **known(NO_HEADERS, parameters=found.parameters, active_parameters=found.active),
        **known(
            "no mixture of experts in its config",
            experts=experts and experts.routed,
            experts_per_token=experts and experts.per_token,
            shared_experts=experts and experts.shared,
        ),
        **known(NO_HEADERS, table_parameters=table and table.parameters, table_bytes=table and table.size),
        **known(unread, layers=facts.layers, context_tokens=facts.max_position_embeddings),
        **maybe("weights_bytes", facts.weights.size if facts.weights else None, NO_HEADERS),
        "dtype_bytes": dict(facts.weights.by_dtype) if facts.weights else {},
        **maybe("read_per_token_bytes", found.read.size if found.read else None, NO_HEADERS),
        **maybe("wide_read_per_token_bytes", found.read.wide if found.read else None, NO_HEADERS),
        "wide_modules": [
            {"module": each.module.value, "stored_bytes": each.stored, "read_per_token_bytes": each.read}
            for each in found.wide
        ],
        **maybe("decode_low_tokens_per_second", rounded(span[0], 1) if span else None, NO_HEADERS),
        **maybe("decode_high_tokens_per_second", rounded(span[1], 1) if span else None, NO_HEADERS),
        **maybe("kv_bytes_per_token", found.kv.bytes_per_token if found.kv else None, unread),
        **maybe("window_bytes_per_sequence", found.kv.window_bytes if found.kv else None, unread),
        **maybe("state_bytes_per_sequence", found.kv.state_bytes if found.kv else None, unread),
        **maybe("mtp_layers_declared", facts.mtp_declared, "none are declared"),
        **maybe("mtp_layers_here", facts.mtp_layers, "it is not known whether their weights are here"),
        "modalities": list(facts.modalities),
        **maybe("chat", chat_shape, "it has no chat template"),
        **maybe("licence", facts.licence, "its card does not name one, or is not here"),
        "verdict": list(found.verdict),
        "findings": list(facts.findings),
    }


# --- the Hub ----------------------------------------------------------------------------------------------


def card_rows(facts: RepoFacts) -> tuple[Row, ...]:
    """Format, weights, fit, access, licence and origin of a repository."""
    doubt = f"; {facts.formats.doubt}" if facts.formats.doubt else ""
    form = f"{facts.formats.words} by {facts.formats.basis.value}{doubt}" if facts.formats.found else "unknown"
    licence = " ".join(filter(None, (facts.licence, facts.licence_link)))
    fit, tone = _FITS[facts.fits]
    access = "private" if facts.private else _ACCESS[facts.gating]
    return (
        Row(form, "format"),
        Row("unknown" if facts.weights is None else human_bytes(facts.weights), "weights"),
        Row(fit, "fit", tone),
        Row(access, "access", Tone.PLAIN if facts.gating is Gating.OPEN else Tone.WARNING),
        *labelled(
            (
                ("licence", licence or "not stated"),
                ("base model", ", ".join(facts.base_models)),
                ("task", facts.task),
                ("page", facts.page),
                ("commit", facts.commit[:12]),
            )
        ),
    )


def hits_table(hits: Iterable[SearchHit], now: float, empty: str = "") -> Table:
    """Repositories of a search; `!` before a format that is in doubt."""
    columns = (
        Column("MODEL", least=28),
        Column("FORMAT"),
        Column("WEIGHTS", right=True),
        Column("ONE SPARK", keep=8),
        Column("DOWNLOADS", right=True, keep=6),
        Column("UPDATED", right=True, keep=5),
        Column("ACCESS", keep=7),
    )
    rows, ids = [], []
    for hit in hits:
        word = hit.formats.words or ("GGUF" if hit.gguf else UNKNOWN)
        access = "private" if hit.private else "" if hit.gating is Gating.OPEN else "gated"
        fits = UNKNOWN if hit.fits is Fits.UNKNOWN else hit.fits.value
        ids.append(hit.repo)
        rows.append(
            cells(
                Cell(hit.repo, Tone.STRONG),
                Cell(f"! {word}", Tone.WARNING) if hit.formats.doubt else word,
                size_or_unknown(hit.weights),
                Cell(fits, _FITS[hit.fits][1]),
                UNKNOWN if hit.downloads is None else short_tokens(hit.downloads),
                UNKNOWN if hit.modified is None else age(now - hit.modified),
                Cell(access, Tone.WARNING),
            )
        )
    return Table(columns, tuple(rows), tuple(ids), empty)


def hit_rows(hit: SearchHit) -> tuple[Row, ...]:
    """What the row of a hit has no room for, in two lines."""
    parts = [hit.repo]
    packed = hit.formats.found[:1] not in ((WeightFormat.BF16,), (WeightFormat.FP16,), (WeightFormat.FP8,))
    if hit.parameters and not packed:  # of packed weights the Hub counts the bytes, or words, that hold them
        parts.append(f"{hit.parameters / 1e9:.3g} B parameters")
    parts += [f"{human_bytes(hit.storage)} on the Hub"] if hit.storage else []
    parts += [hit.task] if hit.task else []
    parts += [f"licence {hit.licence}"] if hit.licence else []
    basis = f"Format by {hit.formats.basis.value}." if hit.formats.basis is not FormatBasis.CONFIG else ""
    second = Row(f"It is {hit.formats.doubt}.", tone=Tone.WARNING) if hit.formats.doubt else Row(basis, tone=Tone.QUIET)
    return Row("   ".join(parts), tone=Tone.QUIET), second


def hit_object(hit: SearchHit) -> Object:
    """One repository of a search. `weights_bytes` are its tensors; `storage_bytes` all that it takes on the Hub."""
    sizes = known(NOT_ON_HUB, parameters=hit.parameters, storage_bytes=hit.storage)
    return {**_repo_object(hit), **sizes, "gguf": hit.gguf}


def repo_object(facts: RepoFacts) -> Object:
    """One revision of a repository."""
    return {
        **_repo_object(facts),
        "commit": facts.commit,
        "page": facts.page,
        "licence_link": facts.licence_link,
        **maybe("size_bytes", facts.size, NOT_ON_HUB),
        "base_models": list(facts.base_models),
        "library": facts.library,
    }


def _repo_object(hit: SearchHit) -> Object:
    return {
        "id": hit.repo,
        "publisher": hit.publisher,
        "formats": [form.value for form in hit.formats.found],
        "formats_by": hit.formats.basis.value,
        "formats_doubt": hit.formats.doubt,
        **maybe("weights_bytes", hit.weights, NOT_ON_HUB),
        "fits_one_spark": hit.fits.value,
        "access": hit.gating.value,
        "private": hit.private,
        **known(NOT_ON_HUB, downloads=hit.downloads, likes=hit.likes, modified_at=moment(hit.modified)),
        "task": hit.task,
        "licence": hit.licence,
    }
