"""models inspect: what a checkpoint is, by its own files, and what it will do on a Spark."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spark_tui.cli import shapes
from spark_tui.cli.models import entry_object, file_object
from spark_tui.cli.session import Session
from spark_tui.cli.tables import bulleted, labelled
from spark_tui.core.context import Context
from spark_tui.core.library import LibraryEntry
from spark_tui.domain.errors import UsageError
from spark_tui.domain.models.checkpoint import CheckpointFacts
from spark_tui.domain.models.inspection import Inspection, inspect
from spark_tui.domain.models.inspection_words import inspection_rows
from spark_tui.domain.models.store import StoredFile
from spark_tui.domain.models.weights import DecodeCeiling
from spark_tui.domain.quantities import human_bytes
from spark_tui.domain.reading import Reading, reason_of, value_of
from spark_tui.domain.text import clean_line

_NO_HEADERS = "the headers of its weights are not all here"


@dataclass(frozen=True, slots=True)
class _Look:
    entry: LibraryEntry
    files: tuple[StoredFile, ...]
    facts: Reading[CheckpointFacts]
    found: Inspection | None


def inspect_model(session: Session, name: str, revision: str, *, files: bool) -> None:
    """Prints the verdict, then what it rests on. A checkpoint that cannot be read is told, with what is known."""

    async def work(context: Context) -> _Look:
        entry = await _entry(context, name)
        listed = await context.library.files(entry.model.id, revision) if entry.model.revisions else ()
        told = entry.model.revision(revision)
        commit = told.commit if told is not None and told.refs != () else revision
        facts = await asyncio.to_thread(context.checkpoints.read, entry.model.id, commit)
        value = value_of(facts)
        return _Look(entry, listed, facts, None if value is None else inspect(value, entry.model.id))

    look = session.run(work)
    if session.as_json:
        session.out.json(_object(look))
        return
    width = session.out.terminal.width
    session.out.lines(clean_line(line) for line in _lines(look, width))
    if files:
        session.out.line()
        session.out.lines(f"{_size(file):>10}  {clean_line(file.name)}{_trouble(file)}" for file in look.files)
    if look.found is None:
        session.err.note(f"Its files do not tell more: {reason_of(look.facts)}.")


async def _entry(context: Context, name: str) -> LibraryEntry:
    try:
        return await context.library.entry(name)
    except UsageError as error:
        if "/" not in name.strip("/"):
            raise
        there = f"As it is on the Hub: spark-tui models inspect {shlex.quote(clean_line(name))} --hub"
        raise UsageError(error.summary, f"{error.remedy}\n{there}") from None


def _lines(look: _Look, width: int | None) -> Iterator[str]:
    found = look.found
    yield from verdict_lines(found, width)
    yield from labelled(_pairs(look), width)
    if found is not None and found.wide and found.read is not None:
        yield ""
        yield "weights of 16 bits and more        stored    read per token"
        for each in found.wide:
            yield f"  {each.module.value:<28} {human_bytes(each.stored):>10}  {human_bytes(each.read):>16}"
    problems = [*look.entry.model.reasons, *(each.what for each in look.entry.model.findings)]
    problems += found.facts.findings if found is not None else ()
    yield from finding_lines(problems, width)


def verdict_lines(found: Inspection | None, width: int | None) -> Iterator[str]:
    """What it will do on one Spark, with a blank line below; nothing where that is not known."""
    if found is not None and found.verdict:
        yield from bulleted(found.verdict, width)
        yield ""


def finding_lines(problems: Sequence[str], width: int | None) -> Iterator[str]:
    """What is wrong or in doubt, under its heading; nothing where nothing is."""
    if problems:
        yield ""
        yield "findings"
        yield from bulleted(problems, width)


def _pairs(look: _Look) -> list[tuple[str, str]]:
    model, found = look.entry.model, look.found
    pairs = [
        ("model", model.id),
        ("state", model.completeness.value),
        ("place", model.path),
        ("revision", model.commit),
        ("size", f"{human_bytes(model.size)}, {human_bytes(model.disk)} of disk"),
        ("used by", ", ".join(use.name for use in look.entry.uses)),
    ]
    return pairs if found is None else [*pairs, *inspection_rows(found)]


def _size(file: StoredFile) -> str:
    return "-" if file.size is None else human_bytes(file.size)


def _trouble(file: StoredFile) -> str:
    return f"  {file.trouble.value}" if file.trouble else ""


# --- shapes -----------------------------------------------------------------------------------------------


def _object(look: _Look) -> dict[str, Any]:
    shape = entry_object(look.entry) | {"files": [file_object(each) for each in look.files]}
    if look.found is None:
        return shape | {"checkpoint": None, "checkpoint_reason": reason_of(look.facts)}
    return shape | {"checkpoint": checkpoint_object(look.found)}


def checkpoint_object(found: Inspection) -> dict[str, Any]:
    """A checkpoint's facts and what follows from them."""
    facts, chat, told = found.facts, found.facts.chat, found.facts.quantization
    unread = "its config does not tell"
    return {
        **shapes.maybe("architecture", facts.architecture, unread),
        **shapes.maybe("model_type", facts.model_type, unread),
        **shapes.maybe("quantization", told.words if told else None, unread),
        "formats": [form.value for form in told.formats] if told else [],
        "unquantized_modules": list(told.excluded) if told else [],
        **shapes.maybe("parameters", found.parameters, _NO_HEADERS),
        **shapes.maybe("active_parameters", found.active, _NO_HEADERS),
        **shapes.maybe("layers", facts.layers, unread),
        **shapes.maybe("context_tokens", facts.max_position_embeddings, unread),
        **shapes.maybe("weights_bytes", facts.weights.size if facts.weights else None, _NO_HEADERS),
        "dtype_bytes": dict(facts.weights.by_dtype) if facts.weights else {},
        **shapes.maybe("read_per_token_bytes", found.read.size if found.read else None, _NO_HEADERS),
        **shapes.maybe("wide_read_per_token_bytes", found.read.wide if found.read else None, _NO_HEADERS),
        "wide_modules": [
            {"module": each.module.value, "stored_bytes": each.stored, "read_per_token_bytes": each.read}
            for each in found.wide
        ],
        **shapes.maybe("ceiling_tokens_per_second", _rounded(found.ceiling), _NO_HEADERS),
        **shapes.maybe("kv_bytes_per_token", found.kv.bytes_per_token if found.kv else None, unread),
        **shapes.maybe("state_bytes_per_sequence", found.kv.state_bytes if found.kv else None, unread),
        **shapes.maybe("mtp_layers_declared", facts.mtp_declared, "none are declared"),
        **shapes.maybe("mtp_layers_here", facts.mtp_layers, "it is not known whether their weights are here"),
        "modalities": list(facts.modalities),
        "chat": None
        if chat is None
        else {
            "thinking": chat.thinking, "tools": chat.tools, "images": chat.images, "switches": list(chat.switches),
            "reasoning_parser": chat.reasoning_parser, "tool_call_parser": chat.tool_parser,
        },
        **({"chat_reason": "it has no chat template"} if chat is None else {}),
        **shapes.maybe("licence", facts.licence, "its card does not name one, or is not here"),
        "verdict": list(found.verdict),
        "findings": list(facts.findings),
    }  # fmt: skip


def _rounded(ceiling: DecodeCeiling | None) -> float | None:
    return None if ceiling is None else round(ceiling.measured, 1)
