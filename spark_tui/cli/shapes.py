"""What `--json` prints: units in the key names, and beside every null a `<key>_reason`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from spark_tui.core.jobs import Step
from spark_tui.domain.chat.message import Answer, ToolCall, Usage
from spark_tui.domain.engine.container import DaemonFacts
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.host.vitals import GpuReading
from spark_tui.domain.logs.eta import Eta
from spark_tui.domain.logs.timeline import BootTimeline, Phase
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.presets.plan import missing_values
from spark_tui.domain.presets.preset import Preset
from spark_tui.domain.reading import Reading, reason_of, value_of
from spark_tui.domain.secret import mask_secrets

T = TypeVar("T")
Object = dict[str, Any]

NOT_STATED = "the recipe does not say"


def maybe(key: str, value: Any, why: str) -> Object:
    """`{key: value}`, or a null with its reason where there is none."""
    return {key: None, f"{key}_reason": why} if value is None or value == "" else {key: value}


def read(key: str, reading: Reading[T], shape: Callable[[T], Any]) -> Object:
    """A reading: its value, and its reason where it is missing or out of date."""
    value, reason = value_of(reading), reason_of(reading)
    found = {key: None if value is None else shape(value)}
    return found | {f"{key}_reason": reason} if reason else found


def moment(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC."""
    return (
        None
        if seconds is None
        else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )


# --- the box ------------------------------------------------------------------------------------------


def memory(info: MemInfo, engines: Reading[int]) -> Object:
    """The ledger. `in_use` + `cache` + `free` is `total`; `engines` is what CUDA processes hold of what is in use."""
    return {
        "total_bytes": info.total,
        "in_use_bytes": info.in_use,
        **read("engines_bytes", engines, int),
        "cache_bytes": info.cache,
        **maybe("cache_droppable_bytes", info.droppable, "the kernel does not tell"),
        "free_bytes": info.free,
        "available_bytes": info.available,
        "swap_total_bytes": info.swap_total,
        "swap_used_bytes": info.swap_used,
    }


def host(identity: HostIdentity) -> Object:
    """Which machine this is."""
    unknown = "the machine does not say"
    return {
        **maybe("id", identity.hostname, unknown),
        **maybe("product", identity.product, unknown),
        **maybe("kernel", identity.kernel, unknown),
        **maybe("architecture", identity.architecture, unknown),
        **maybe("cpu_count", identity.cpu_count or None, unknown),
        "is_spark": identity.is_spark,
    }


def _throttled(reading: GpuReading) -> list[Object] | None:
    if reading.throttled is None:
        return None
    return [{"id": each.kind.value, "share": each.share} for each in reading.throttled]


def gpu(reading: GpuReading) -> Object:
    """The GPU's live readings. A GB10 has no memory of its own to report."""
    silent = "the driver does not report it"
    return {
        "id": reading.name,
        **maybe("utilization_percent", reading.utilization_percent, silent),
        **maybe("power_watts", reading.power_watts, silent),
        **maybe("temperature_celsius", reading.temperature_c, silent),
        **maybe("sm_clock_mhz", reading.sm_clock_mhz, silent),
        **maybe("throttled", _throttled(reading), "one reading does not tell"),
        **maybe("memory_used_bytes", reading.memory_used, "it has none of its own" if reading.unified else silent),
        **maybe("driver", reading.driver, silent),
    }


def daemon(facts: DaemonFacts) -> Object:
    """The Docker daemon."""
    return {
        "version": facts.version,
        **maybe("api_version", facts.api_version, "the daemon does not say"),
        **maybe("architecture", facts.architecture, "the daemon does not say"),
    }


# --- engines ------------------------------------------------------------------------------------------


def engine(view: EngineView, now: float) -> Object:
    """One engine. `id` is the container's name: what every command takes."""
    container = view.container
    running = container.running
    phase = view.timeline.current if view.state is EngineState.STARTING else None
    failure = view.timeline.failure if view.state is EngineState.FAILED else None
    up = now - container.started_at if running and container.started_at is not None else None
    not_told = "the engine has not said yet" if running else "it does not run"
    return {
        "id": container.name,
        "container_id": container.id,
        "state": view.state.value,
        **maybe("phase", phase.id.value if phase else None, "no start is under way"),
        **maybe("phase_progress", phase.progress if phase else None, "not known"),
        **maybe("runtime", view.runtime, "no serving runtime was recognised"),
        **maybe("version", view.version, not_told),
        **maybe("model", view.model, not_told),
        **maybe("served_name", view.served_name, not_told),
        "image": container.image,
        **maybe("preset", container.preset, "spark-tui did not launch it"),
        **maybe("port", view.port, "no port is published"),
        **maybe("url", view.base_url, "no port is published"),
        "exposure": view.exposure.value,
        "health": view.health.value,
        **maybe("started_at", moment(container.started_at), "it was never started"),
        **maybe("up_seconds", None if up is None else round(max(0.0, up), 1), "it does not run"),
        **maybe("boot_seconds", _rounded(view.timeline.seconds), "the log does not tell"),
        **maybe("exit_code", container.exit_code, "it has not ended"),
        **maybe("failure", mask_secrets(failure.line) if failure else None, "it has not failed"),
    }


def timeline(boot: BootTimeline) -> list[Object]:
    """The phases of a start that have begun."""
    return [phase(found) for found in boot.phases if found.state.value not in ("pending", "skipped")]


def phase(found: Phase) -> Object:
    """One phase of a start."""
    return {
        "id": found.id.value,
        "label": found.label,
        "state": found.state.value,
        **maybe("seconds", _rounded(found.seconds), "it is not over, or the log has no times"),
        **maybe("progress", found.progress, "not known"),
        "detail": found.detail,
    }


def step(found: Step) -> Object:
    """One step of a launch."""
    return {
        "id": found.id,
        "label": found.label,
        "state": found.state.value,
        "detail": found.detail,
        **maybe("progress", found.progress, "not known"),
        **maybe("seconds", _rounded(found.seconds), "it is not over" if not found.state.over else "it took none"),
    }


def estimate(found: Eta) -> Object:
    """How long a start will still take: until `eta_until`, by earlier starts or by its own progress."""
    return {
        **maybe("eta_seconds", _rounded(found.seconds, 0), "neither earlier starts nor its progress tell"),
        "eta_until": found.until.value,
        "eta_basis": found.basis.value,
        "eta_starts": found.starts,
    }


# --- presets ------------------------------------------------------------------------------------------


def preset(found: Preset) -> Object:
    """One preset, as in a list."""
    facts = found.facts
    return {
        "id": found.name,
        **maybe("title", facts.title, NOT_STATED),
        "origin": found.origin.value,
        "file": found.file,
        "model": found.model,
        "image": found.image,
        "runtime": found.runtime,
        **maybe("family", facts.family, NOT_STATED),
        **maybe("category", facts.category, NOT_STATED),
        **maybe("quantization", facts.quantization, NOT_STATED),
        **maybe("context_tokens", facts.context_tokens, NOT_STATED),
        **maybe("weights_bytes", facts.weights_bytes, NOT_STATED),
        **maybe("total_parameters", facts.total_parameters, NOT_STATED),
        **maybe("active_parameters", facts.active_parameters, NOT_STATED),
        "minimum_sparks": found.min_nodes,
        "published": [
            {"tokens_per_second": speed.tokens_per_second, "conditions": speed.conditions, "source": speed.source}
            for speed in facts.published
        ],
    }


_NO_COMMAND = {True: "the image runs as it is", False: "the command is made from the defaults"}


def preset_detail(found: Preset) -> Object:
    """One preset with everything that its recipe holds."""
    facts = found.facts
    return {
        **preset(found),
        **maybe("description", facts.description, NOT_STATED),
        **maybe("publisher", facts.publisher, NOT_STATED),
        **maybe("licence", facts.licence, NOT_STATED),
        **maybe("gated", facts.gated, NOT_STATED),
        **maybe("architecture", facts.architecture, NOT_STATED),
        "modalities": list(facts.modalities),
        **maybe("source", facts.source, NOT_STATED),
        **maybe("revision", found.model_revision, NOT_STATED),
        **maybe("command", found.command, _NO_COMMAND[facts.runs_as_is]),
        "defaults": {key: value for key, value in found.defaults if value is not None},
        "environment": {name: mask_secrets(f"{name}={value}").partition("=")[2] for name, value in found.env},
        "values_needed": list(missing_values(found)),
        "sampling": {key: value for key, value in facts.sampling if value is not None},
        "notes": list(facts.notes),
        "cautions": list(facts.cautions),
        "required_files": [
            {"id": f.target, "repo": f.repo, "file": f.file, "url": f.url, "for_chat": f.for_chat}
            for f in facts.required_files
        ],
        "required_steps": [{"id": step.command, "summary": step.summary} for step in facts.required_steps],
        **maybe("image_digest", facts.image_digest, "the image is named by its tag alone"),
        "runs_as_is": facts.runs_as_is,
        "wants_key": facts.wants_key,
        "hooks": list(found.hooks),
        "mods": list(found.mods),
        "unused": dict(found.unknown),
    }


# --- chat ---------------------------------------------------------------------------------------------


def tool_call(call: ToolCall) -> Object:
    """A call that the model asks for; `arguments` is JSON text as it came."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def usage(found: Usage) -> Object:
    """Token counts."""
    silent = "the server did not report it"
    return {
        "prompt_tokens": found.prompt_tokens,
        "completion_tokens": found.completion_tokens,
        **maybe("reasoning_tokens", found.reasoning_tokens, silent),
        **maybe("cached_tokens", found.cached_tokens, silent),
    }


def answer(found: Answer, engine_name: str, model: str) -> Object:
    """A whole answer with its timings."""
    silent = "the server did not report it"
    counts = (
        usage(found.usage)
        if found.usage
        else {
            key: value
            for name in ("prompt", "completion", "reasoning", "cached")
            for key, value in maybe(f"{name}_tokens", None, silent).items()
        }
    )
    return {
        "id": engine_name,
        "model": model,
        "content": found.content,
        "reasoning": found.reasoning,
        "tool_calls": [tool_call(call) for call in found.tool_calls],
        **maybe("finish_reason", found.finish_reason, silent),
        **maybe("ttft_seconds", _rounded(found.ttft, 4), "no token came"),
        **maybe(
            "decode_tokens_per_second", _rounded(found.decode_tokens_per_second, 2), "too few tokens, or not reported"
        ),
        **maybe("reasoning_seconds", _rounded(found.reasoning_seconds, 3), "there was no reasoning"),
        **counts,
    }


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
