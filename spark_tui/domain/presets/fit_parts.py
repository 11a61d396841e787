"""The size of each thing that a launch puts into memory, each with where its figure comes from."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.models.checkpoint import CheckpointFacts, WeightFormat
from spark_tui.domain.models.known import KnownModel, facts_of, known_model, loaded_weights
from spark_tui.domain.models.weights import DecodeCeiling, bytes_of, ceiling_of, decode_read, format_in
from spark_tui.domain.presets.fit_ask import Ask
from spark_tui.domain.presets.fit_types import Basis, Measured, Part, PartId
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.quantities import GIB, human_bytes

# What vLLM holds beyond weights, graphs and cache: 11.2 GiB at 32,768 batched tokens (GB10, 0.20.2), 3.0 to 5.2 GiB
# at 2,048 (Thor). A line through both.
RUNTIME_BYTES: Final = 2 * GIB
_WORKSPACE_BYTES: Final = 1 * GIB
_WORKSPACE_PER_TOKEN: Final = GIB // 4096
GRAPH_BYTES: Final = int(0.37 * GIB / 13)
"""Per captured batch size: 13 took 0.37 GiB (GB10, vLLM 0.20.2)."""
HOST_BYTES: Final = 4 * GIB
"""API server, engine core and what grows after the first long prompts: beside the share. 38 runs of vLLM 0.26 on a
GB10 had 5.5 to 13.9 GiB in use beyond their share, of which an idle system has some 4."""
_HOST_BYTES_CPU: Final = 1 * GIB
_RESIDENT: Final = 1.005
"""Weights once loaded, by their size on disk: 21.42 of 21.31 GiB (GB10, vLLM 0.20.2)."""


def public_model(preset: Preset) -> KnownModel | None:
    """The public config of a preset's model, by its name."""
    return known_model(names_of(preset))


def names_of(preset: Preset) -> str:
    """All that names the model, and its format."""
    return " ".join((preset.model, preset.facts.title, preset.facts.quantization))


def layers_from(checkpoint: CheckpointFacts | None, preset: Preset) -> tuple[CheckpointFacts | None, Basis]:
    """Facts about the layers: the checkpoint's own where it is here and understood, else the public config's."""
    if checkpoint is not None and checkpoint.attention is not None and checkpoint.states is not None:
        return checkpoint, Basis.FILES
    known = public_model(preset)
    return (facts_of(known), Basis.CONFIG) if known is not None else (checkpoint, Basis.UNKNOWN)


def weights_part(checkpoint: CheckpointFacts | None, preset: Preset, measured: Measured | None) -> Part:
    """The weights once loaded, by the best source there is."""
    label = "Weights"
    if measured is not None and measured.weights is not None:
        return Part(PartId.WEIGHTS, label, measured.weights, Basis.MEASURED, measured.source)
    summary = checkpoint.weights if checkpoint is not None else None
    if summary is not None and summary.complete:
        return Part(PartId.WEIGHTS, label, round(summary.size * _RESIDENT), Basis.FILES, f"{summary.tensors:,} tensors")
    known = public_model(preset)
    logged = loaded_weights(known, names_of(preset)) if known is not None else None
    if logged is not None:
        return Part(PartId.WEIGHTS, label, logged.size, Basis.LOG, logged.source)
    facts = preset.facts
    if facts.weights_bytes is not None:
        return Part(PartId.WEIGHTS, label, round(facts.weights_bytes * _RESIDENT), Basis.RECIPE)
    form = _stated_format(preset)
    if facts.total_parameters and form is not None:
        size = bytes_of(facts.total_parameters, form)
        note = f"{facts.total_parameters / 1e9:.3g} B parameters in {form}; parts that stay BF16 come on top"
        return Part(PartId.WEIGHTS, label, size, Basis.RULE, note)
    return Part(PartId.WEIGHTS, label, None, Basis.UNKNOWN, "neither the checkpoint nor the recipe tells")


def _stated_format(preset: Preset) -> WeightFormat | None:
    """The format that the recipe names; BF16 where it names none, as models are published."""
    return format_in(preset.facts.quantization) if preset.facts.quantization else WeightFormat.BF16


def drafter_part(ask: Ask, drafter: CheckpointFacts | None) -> Part | None:
    """The weights of a second checkpoint that drafts; None when none is asked for."""
    if not ask.drafter:
        return None
    summary = drafter.weights if drafter is not None else None
    if summary is None or not summary.complete:
        return Part(PartId.DRAFTER, "Drafter", None, Basis.UNKNOWN, f"{ask.drafter} is not in the store")
    return Part(PartId.DRAFTER, "Drafter", round(summary.size * _RESIDENT), Basis.FILES)


def overhead_parts(ask: Ask, measured: Measured | None) -> tuple[Part, ...]:
    """Workspace for activations, what CUDA takes outside of tensors, and CUDA graphs."""
    tokens = ask.kv.batched_tokens
    if not ask.on_gpu:
        return (Part(PartId.WORKSPACE, "Workspace", _WORKSPACE_BYTES, Basis.RULE),)
    graphs = _graphs_part(ask, measured)
    if measured is not None and measured.overhead is not None and measured.batched_tokens == tokens:
        whole = Part(PartId.WORKSPACE, "Workspace and CUDA", measured.overhead, Basis.MEASURED, measured.source)
        return (whole, graphs)
    note = f"for {tokens:,} batched tokens"
    workspace = _WORKSPACE_BYTES + _WORKSPACE_PER_TOKEN * tokens
    return (
        Part(PartId.WORKSPACE, "Workspace", workspace, Basis.RULE, note),
        Part(PartId.RUNTIME, "CUDA outside of tensors", RUNTIME_BYTES, Basis.RULE),
        graphs,
    )


def _graphs_part(ask: Ask, measured: Measured | None) -> Part:
    if measured is not None and measured.graphs is not None and measured.graphs >= 0:
        return Part(PartId.GRAPHS, "CUDA graphs", measured.graphs, Basis.MEASURED, measured.source)
    note = f"{ask.graphs} batch sizes" if ask.graphs else "switched off"
    return Part(PartId.GRAPHS, "CUDA graphs", GRAPH_BYTES * ask.graphs, Basis.RULE, note)


def host_part(ask: Ask) -> Part:
    """The engine's own processes, which its share does not count."""
    size = HOST_BYTES if ask.on_gpu else _HOST_BYTES_CPU
    return Part(PartId.HOST, "Its processes, and growth", size, Basis.RULE)


def decode_of(checkpoint: CheckpointFacts | None, preset: Preset) -> DecodeCeiling | None:
    """The decode ceiling: from the headers, else at least the active parameters in the recipe's format."""
    read = decode_read(checkpoint) if checkpoint is not None else None
    if read is not None:
        return ceiling_of(read.size)
    facts = preset.facts
    known = public_model(preset)
    is_moe = known is not None and facts_of(known).is_moe
    active = facts.active_parameters or (None if is_moe else facts.total_parameters)
    form = _stated_format(preset)
    size = bytes_of(active, form) if active and form is not None else None
    return None if size is None else ceiling_of(size, bound=True)


def disagreement(checkpoint: CheckpointFacts | None, preset: Preset) -> str:
    """A note when the checkpoint here is much larger or smaller than the recipe says; else empty."""
    stated, summary = preset.facts.weights_bytes, checkpoint.weights if checkpoint is not None else None
    if not stated or summary is None or not summary.complete or 0.8 < summary.size / stated < 1.25:
        return ""
    return f"The recipe says {human_bytes(stated)} of weights; the checkpoint here has {human_bytes(summary.size)}."
