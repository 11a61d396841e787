"""The rules of causes that `causes.toml` holds, in its order; which component failed, and the advice for it, by
`components.toml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from spark_tui.base.finding import Change, Finding
from spark_tui.base.text import lazy_pattern, truncate
from spark_tui.observe.explain.model.causes import host, memory, model, network, settings
from spark_tui.observe.explain.model.causes.cause import MAX_QUOTED, CauseId, FailureContext, first_group, fix
from spark_tui.observe.explain.model.causes.host import ABORT
from spark_tui.observe.explain.model.line import NUMBER

_REPO: Final = lazy_pattern(r"[\w.-]{1,100}/[\w.-]{1,100}")
_PIECE: Final = lazy_pattern(r"\{\{(\w+)\}\}")
_FILE: Final = Path(__file__).with_name("causes.toml")
_PIECES: Final[Mapping[str, str]] = {
    "NUMBER": NUMBER,
    "ABORT": ABORT,
    "RAYLET": host.RAYLET,
    "NO_PROGRAM": host.NO_PROGRAM,
    "OUT_OF_MEMORY": memory.OUT_OF_MEMORY,
    "CLIENT_SOCKET": network.CLIENT_SOCKET,
    "COLLECTIVE": network.COLLECTIVE,
    "MESH": network.MESH,
}
"""Parts of patterns that the reader, or who reads the logs of several nodes, knows too."""
_SUBJECTS: Final = {"host": host, "memory": memory, "model": model, "network": network, "settings": settings}


class CauseRule(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of the file. `pattern` may be a list: alternatives. Either `explain` names a function, or `fault` words
    that the logs of several nodes share, or `summary` and `remedy` are the words. `sure` is False where the words only
    suggest it. `by_phase`: the id depends on what the engine was doing (out of memory has two names). `vague`: a line
    beside it that another rule knows says more."""

    id: CauseId
    pattern: str | tuple[str, ...] = ""
    summary: str = ""
    remedy: str = ""
    change: dict[str, str] = field(default_factory=dict)
    explain: str = ""
    fault: str = ""
    sure: bool = True
    by_phase: bool = False
    vague: bool = False
    by_component: bool = False
    """Advice for the component that failed (`components.toml`) comes before the remedy."""
    source: str = ""
    """Where the sentence is from, of a rule that no recorded log shows."""

    def told(self, match: re.Match[str], context: FailureContext) -> Finding:
        """What the words mean in their context: by the function, or the sentences with their fields filled in."""
        if self.explain:
            subject, _, name = self.explain.partition(".")
            compute: Callable[[re.Match[str], FailureContext], Finding] = getattr(_SUBJECTS[subject], name)
            return compute(match, context)
        return filled(self, match, context)


def filled(rule: CauseRule, match: re.Match[str], context: FailureContext, **more: str) -> Finding:
    """The sentences of a rule with their fields filled in."""
    groups = tuple(truncate(group.strip(), MAX_QUOTED) if group else "-" for group in match.groups())
    fields = {
        "any": first_group(match).strip("\"' "),
        "match": truncate(match[0], 120),
        "architecture": first_group(match).strip("'") or context.facts.architecture or "of this model",
        "name": context.model if _REPO.fullmatch(context.model) else "NAME",
        "model": context.model,
        "version": context.version,
        **context.names._asdict(),
        **more,
    }
    phrased = read_table().phrased
    summary = " ".join(phrased(rule.summary).format(*groups, **fields).split())
    summary = re.sub(r" ([:.,])(?= |$)", r"\1", summary)  # the gap that an empty field leaves
    return fix(
        summary,
        phrased(rule.remedy).format(*groups, **fields),
        tuple((key, value.format(*groups)) for key, value in rule.change.items()),
    )


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """The file: parts of patterns, phrases of several remedies, and the rules by subject, in the order in which they
    are tried."""

    pieces: dict[str, str]
    phrases: dict[str, str]
    causes: dict[str, tuple[CauseRule, ...]]

    def phrased(self, text: str) -> str:
        for name, words in self.phrases.items():
            text = text.replace(f"{{{name}}}", words)
        return text


@functools.cache
def read_table() -> Table:
    return msgspec.toml.decode(_FILE.read_bytes(), type=Table)


@functools.cache
def rules() -> tuple[tuple[re.Pattern[str], CauseRule], ...]:
    """In their order, each with its pattern. Read with the first line that is to be recognised: most programs start
    without a failure to explain."""
    table, found = read_table(), []
    pieces = {**_PIECES, **table.pieces}
    for row in (row for rows in table.causes.values() for row in rows):
        text, known = row.pattern if isinstance(row.pattern, str) else "|".join(row.pattern), row
        if row.fault:
            text, summary, remedy, change = getattr(network, row.fault)
            known = replace(row, summary=summary, remedy=remedy, change=dict(change))
        elif "{{" in text:
            text = _PIECE.sub(lambda piece: pieces[piece[1]], text)
        found.append((lazy_pattern(text), known))
    return tuple(found)


# --- the component that failed ----------------------------------------------------------------------------

_PARTS: Final = Path(__file__).with_name("components.toml")
PARSERS: Final = r"/(?:tool_parsers?|reasoning|function_call)/|/reasoning_parser\.py"
DEEP: Final = (
    r"/(?:layers|attention|models|worker|spec_decode|lora|fused_moe|mamba|sample|kv_cache\w*|model_executor|modules)/|"
    r"/(?:kv_cache_utils|gpu_model_runner|model_runner|memory_pool\w*|eagle\w*)\.py"
)
"""Where settings were accepted long ago: the engine's own code for the model cannot do what they ask."""
INTERPRETER: Final = (
    r"got an unexpected keyword argument|got multiple values for|missing \d{1,2} required|positional arguments? but|"
    r"not supported between instances|unsupported operand type|is not (?:subscriptable|iterable|callable)|"
    r"has no len\(\)|must be Tensor|argument must be a string|is not JSON serializable|non-iterable|unhashable type|"
    r"values to unpack|invalid literal for|is an empty sequence|arg is an empty|changed size during|"
    r"[Ee]vent loop is closed|re-initialize CUDA in forked|bootstrapping phase|[Cc]an(?:no|')t pickle|"
    r"pop from (?:an )?empty"
)
"""Python's own words: a mistake in the code, of which no setting is the cause."""
_PLACES: Final = {
    "INTERPRETER": INTERPRETER,
    "SETTINGS": (
        rf"^(?!.*(?:{PARSERS})).*(?:<frozen runpy>|/vllm/(?:config|entrypoints|engine|platforms)/|/pydantic|"
        r"/vllm/envs\.py|/(?:server_args\w*|arg_utils|arg_groups\w*|llm_args|argparse|cuda_graph_config)\.py|/arg_groups/|"
        r"/tensorrt_llm/commands/)"
    ),
    "DEEP": DEEP,
    "PARSERS": PARSERS,
    "FILES": r"/(?:transformers|transformers_utils|tokenizers|model_loader|safetensors)/",
    "RAISED": r"^(?:[\w.]{0,60}\.)?(?:Value|Runtime|NotImplemented|Type|Assertion)Error: (.{3,300})",
}


class Component(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of an engine: the file's head says what the fields are."""

    id: str
    label: str
    pattern: str = "(?!)"
    encloses: bool = False
    causes: tuple[CauseId, ...] = ()
    usual: tuple[CauseId, ...] = ()

    def shows(self, *texts: str) -> bool:
        return any(lazy_pattern(self.pattern).search(text) for text in texts)


class Advice(Struct, frozen=True, forbid_unknown_fields=True):
    """What helps, under conditions that all must hold."""

    when: dict[str, str]
    remedy: str
    change: dict[str, str] = {}


class Place(CauseRule, frozen=True, forbid_unknown_fields=True):
    """A cause by the file that raised the line, and the phase."""

    module: str = ""
    phase: str = ""


class Parts(Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    asynchronous: str
    proposal: str
    components: tuple[Component, ...]
    advice: dict[str, tuple[Advice, ...]]
    places: tuple[Place, ...]


@functools.cache
def read_parts() -> Parts:
    return msgspec.toml.decode(_PARTS.read_bytes(), type=Parts)


def label_of(component: str) -> str:
    """A component as it is shown; empty for none."""
    return next((row.label for row in read_parts().components if row.id == component), "")


def _noticed(context: FailureContext) -> tuple[str, ...]:
    """The frames, where they show where it happened."""
    return () if lazy_pattern(read_parts().asynchronous).search(context.text) else context.frames


def component_of(cause: str, context: FailureContext) -> str:
    """The component that failed with this cause; empty where nothing shows it."""
    rows, frames = read_parts().components, _noticed(context)
    said = context.text.split("\n")
    found = (
        *(row for row in rows if cause in row.causes),
        *(row for row in rows if row.encloses and row.shows(*said, *frames)),
        *(row for text in (*said, *frames) for row in rows if row.shows(text)),
        *(row for row in rows if cause in row.usual),
    )
    return next((row.id for row in found), "")


def advised(told: Finding, context: FailureContext) -> Finding:
    """The cause with the advice for its component (`subject`) in place of its own; as it is where no row fits."""
    parts, known = read_parts(), {name: str(value) for name, value in asdict(context.facts).items() if value}
    known |= context.asked
    known |= {"component": told.subject, "cause": told.id, "phase": context.phase or "", "engine": context.engine}
    known |= {"said": "\n".join((context.text, *_noticed(context))), "change": "\n".join(map("=".join, told.change))}
    pin = f"{told.subject.partition('_')[0]}_backend"
    also = f" Or remove {pin}={known[pin]}, which the arguments set." if known.get(pin, "auto") != "auto" else ""
    for own in lazy_pattern(parts.proposal).finditer(context.text):
        key = f"env.{own[1]}" if own[1] else own[2].replace("-", "_")
        if not tried(((key, own[3]),), context):
            remedy = f"Set {key}={own[3]}, as the engine proposes.{also}"
            return replace(told, remedy=remedy, change=((key, own[3]),))
    for row in (*parts.advice["any"], *parts.advice.get(context.engine or "vllm", ())):
        change = tuple(row.change.items())
        fits = all(lazy_pattern(shape).search(known.get(name, "")) for name, shape in row.when.items())
        if fits and not tried(change, context):
            remedy = read_table().phrased(row.remedy).format(settings=known, **context.names._asdict())
            return replace(told, remedy=remedy, change=change)
    return told


def tried(change: Change, context: FailureContext) -> bool:
    """Whether a setting is on already, or the component failed with what it would choose."""
    facts = context.facts
    ran = {f"{part}_backend": [each.name for each in facts.kernels if each.part == part] for part in ("linear", "moe")}
    ran |= {"attention_backend": [*facts.attentions], "enforce_eager": [str(facts.eager)]}
    return any(
        value == context.asked.get(key) or any(value.lower() in name.lower() for name in ran.get(key, ()))
        for key, value in change
    )


def placed(line: str, context: FailureContext) -> tuple[Place, Finding] | None:
    """What a sentence means by where it was raised; None where no row knows the place, or one says that it means
    nothing."""
    for row in read_parts().places:
        module, shape = (lazy_pattern(_PLACES.get(text[2:-2], text)) for text in (row.module, str(row.pattern)))
        match = shape.search(line) if module.search(context.module) else None
        if match is not None and re.search(row.phase, context.phase or ""):
            return (row, filled(row, match, context, line=truncate(line, 200))) if row.summary else None
    return None
