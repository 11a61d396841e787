"""The error tree. Every error says what happened, and what the person does next.

`summary` fits a toast, `remedy` is the next action in the person's own terms, `detail` is the evidence
(a daemon's own sentence, a parser's excerpt) and may be long.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from spark_tui.domain.secret import mask_secrets


class ExitCode(IntEnum):
    """The command line's contract. USAGE is also for every name that nothing has: engine, preset, model, file, host."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    INTERRUPTED = 130


class SparkError(Exception):
    """Base of every failure that a person meets.

    Keys and tokens in its summary and its evidence, which quote what others said, are masked here: errors go to
    screens, files and logs alike.
    """

    id: ClassVar[str] = "failed"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(self, summary: str, remedy: str, *, detail: str = "") -> None:
        self.summary = mask_secrets(summary)
        self.remedy = remedy
        self.detail = mask_secrets(detail)
        super().__init__(self.summary)

    def __str__(self) -> str:
        return f"{self.summary} {self.remedy}".strip()


class UsageError(SparkError):
    """The person asked for something that does not exist or makes no sense."""

    id = "usage"
    exit_code = ExitCode.USAGE


class RefusedError(SparkError):
    """A check refused the action; nothing was changed."""

    id = "refused"
    exit_code = ExitCode.REFUSED


class UnreachableError(SparkError):
    """Docker, the Hub or an engine does not answer."""

    id = "unreachable"
    exit_code = ExitCode.UNREACHABLE


# --- Docker -----------------------------------------------------------------------------------------


class DaemonNotRunning(UnreachableError):
    """Nothing listens on the Docker socket."""

    id = "docker_daemon_not_running"


class SocketPermissionDenied(UnreachableError):
    """The socket is there; this user may not use it."""

    id = "docker_socket_permission"


class StreamBroken(UnreachableError):
    """A stream (log, events, pull) ended because the daemon went away."""

    id = "docker_stream_broken"


class DockerError(SparkError):
    """The daemon answered, and refused or failed."""

    id = "docker_failed"


class GpuDriverMissing(DockerError):
    """`--gpus` asked of a Docker without the NVIDIA toolkit."""

    id = "docker_gpu_driver_missing"


class ContainerNotFound(DockerError):
    """No container of that name or id."""

    id = "container_not_found"
    exit_code = ExitCode.USAGE


class ImageNotFound(DockerError):
    """The image is neither here nor in its registry."""

    id = "image_not_found"


class RegistryUnreachable(DockerError):
    """The image is absent here, and its registry does not answer."""

    id = "registry_unreachable"
    exit_code = ExitCode.UNREACHABLE


class RegistryUnauthorized(DockerError):
    """The registry wants a login."""

    id = "registry_unauthorized"


class NameInUse(DockerError):
    """Another container has that name."""

    id = "container_name_in_use"
    exit_code = ExitCode.REFUSED


class PortInUse(DockerError):
    """Another container or process listens on the port."""

    id = "port_in_use"
    exit_code = ExitCode.REFUSED


class NoSpaceLeft(DockerError):
    """The disk is full."""

    id = "no_space_left"


class WrongArchitecture(DockerError):
    """The image is built for another processor."""

    id = "image_wrong_architecture"


class EngineExited(SparkError):
    """The container ended before the server was ready."""

    id = "engine_exited"


# --- presets ----------------------------------------------------------------------------------------


class PresetError(SparkError):
    """A preset file that cannot be used. `file` and `line` (1-based, 0 when unknown) say where."""

    id = "preset_invalid"
    exit_code = ExitCode.USAGE

    def __init__(self, summary: str, remedy: str, *, file: str = "", line: int = 0, detail: str = "") -> None:
        super().__init__(summary, remedy, detail=detail)
        self.file = file
        self.line = line

    @property
    def where(self) -> str:
        """`file:line`, or the file alone."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        place = f"{self.where}: " if self.file else ""
        return f"{place}{self.summary} {self.remedy}".strip()


# --- engine API ---------------------------------------------------------------------------------------


class EngineUnreachable(UnreachableError):
    """The server does not accept connections, or stopped answering."""

    id = "engine_unreachable"


class EngineDead(UnreachableError):
    """The API server answers, its engine core is gone (`/health` 503)."""

    id = "engine_dead"


class ApiKeyRejected(SparkError):
    """HTTP 401."""

    id = "api_key_rejected"


class ModelNotServed(SparkError):
    """HTTP 404 for a model name. `served` are the names that the engine does serve, empty when it did not say."""

    id = "model_not_served"
    exit_code = ExitCode.USAGE

    def __init__(self, summary: str, remedy: str, *, detail: str = "", served: tuple[str, ...] = ()) -> None:
        super().__init__(summary, remedy, detail=detail)
        self.served = served


class ContextOverflow(SparkError):
    """The prompt, or prompt plus answer, is longer than the engine's context. Counts in tokens, None when unknown."""

    id = "context_overflow"

    def __init__(
        self,
        summary: str,
        remedy: str,
        *,
        detail: str = "",
        limit: int | None = None,
        prompt_tokens: int | None = None,
        answer_tokens: int | None = None,
    ) -> None:
        super().__init__(summary, remedy, detail=detail)
        self.limit = limit
        self.prompt_tokens = prompt_tokens
        self.answer_tokens = answer_tokens


class BadRequest(SparkError):
    """The server refused the request for another reason."""

    id = "bad_request"


class EngineBusy(SparkError):
    """The server takes no more requests for now (HTTP 429, or a 503 that says so)."""

    id = "engine_busy"


class EngineFailed(SparkError):
    """The server reported an internal error, possibly in the middle of a stream."""

    id = "engine_failed"


class MetricsUnavailable(SparkError):
    """The server publishes no metrics, or has them switched off."""

    id = "metrics_unavailable"


class ReplyCutOff(SparkError):
    """A stream that ended without its end: what had arrived is kept."""

    id = "reply_cut_off"
