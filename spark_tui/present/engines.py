"""Engines, their starts and the machine below them, for both front ends."""

from __future__ import annotations

from spark_tui.core.jobs import Step
from spark_tui.domain.engine.container import DaemonFacts
from spark_tui.domain.engine.state import EngineState
from spark_tui.domain.host.identity import HostIdentity
from spark_tui.domain.logs.eta import Eta
from spark_tui.domain.logs.timeline import BootTimeline, Phase
from spark_tui.domain.logs.view import EngineView
from spark_tui.domain.secret import mask_secrets
from spark_tui.present.json import Object, maybe, moment, rounded


def host_object(identity: HostIdentity) -> Object:
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


def daemon_object(facts: DaemonFacts) -> Object:
    """The Docker daemon."""
    return {
        "version": facts.version,
        **maybe("api_version", facts.api_version, "the daemon does not say"),
        **maybe("architecture", facts.architecture, "the daemon does not say"),
    }


def engine_object(view: EngineView, now: float) -> Object:
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
        **maybe("boot_seconds", rounded(view.timeline.seconds), "the log does not tell"),
        **maybe("exit_code", container.exit_code, "it has not ended"),
        **maybe("failure", mask_secrets(failure.line) if failure else None, "it has not failed"),
    }


def timeline_object(boot: BootTimeline) -> list[Object]:
    """The phases of a start that have begun."""
    return [phase_object(found) for found in boot.phases if found.state.value not in ("pending", "skipped")]


def phase_object(found: Phase) -> Object:
    """One phase of a start."""
    return {
        "id": found.id.value,
        "label": found.label,
        "state": found.state.value,
        **maybe("seconds", rounded(found.seconds), "it is not over, or the log has no times"),
        **maybe("progress", found.progress, "not known"),
        "detail": found.detail,
    }


def step_object(found: Step) -> Object:
    """One step of a launch."""
    return {
        "id": found.id,
        "label": found.label,
        "state": found.state.value,
        "detail": found.detail,
        **maybe("progress", found.progress, "not known"),
        **maybe("seconds", rounded(found.seconds), "it is not over" if not found.state.over else "it took none"),
    }


def estimate_object(found: Eta) -> Object:
    """How long a start will still take: until `eta_until`, by earlier starts or by its own progress."""
    return {
        **maybe("eta_seconds", rounded(found.seconds, 0), "neither earlier starts nor its progress tell"),
        "eta_until": found.until.value,
        "eta_basis": found.basis.value,
        "eta_starts": found.starts,
    }
