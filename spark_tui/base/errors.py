"""The error tree. Every error says what happened, and what the person does next.

`summary` fits a toast, `remedy` is the next action in the person's own terms, `detail` is the evidence
(a daemon's own sentence, a parser's excerpt) and may be long.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from spark_tui.base.secret import mask_secrets


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
    screens, files and logs alike. A class names its `id` and its exit code with its bases, else it has theirs.
    """

    id: ClassVar[str] = "failed"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init_subclass__(cls, *, id: str = "", exit_code: ExitCode | None = None) -> None:  # noqa: A002
        super().__init_subclass__()
        cls.id = id or cls.id
        cls.exit_code = cls.exit_code if exit_code is None else exit_code

    def __init__(self, summary: str, remedy: str, *, detail: str = "") -> None:
        self.summary = mask_secrets(summary)
        self.remedy = remedy
        self.detail = mask_secrets(detail)
        super().__init__(self.summary)

    def __str__(self) -> str:
        return f"{self.summary} {self.remedy}".strip()


class UsageError(SparkError, id="usage", exit_code=ExitCode.USAGE):
    """The person asked for something that does not exist or makes no sense."""


class RefusedError(SparkError, id="refused", exit_code=ExitCode.REFUSED):
    """A check refused the action; nothing was changed."""


class UnreachableError(SparkError, id="unreachable", exit_code=ExitCode.UNREACHABLE):
    """Docker, the Hub or an engine does not answer."""


# --- Docker -----------------------------------------------------------------------------------------


class DaemonNotRunning(UnreachableError, id="docker_daemon_not_running"):
    """Nothing listens on the Docker socket."""


class SocketPermissionDenied(UnreachableError, id="docker_socket_permission"):
    """The socket is there; this user may not use it."""


class StreamBroken(UnreachableError, id="docker_stream_broken"):
    """A stream (log, events, pull) ended because the daemon went away."""


class DockerError(SparkError, id="docker_failed"):
    """The daemon answered, and refused or failed."""


class GpuDriverMissing(DockerError, id="docker_gpu_driver_missing"):
    """`--gpus` asked of a Docker without the NVIDIA toolkit."""


class ContainerNotFound(DockerError, id="container_not_found", exit_code=ExitCode.USAGE):
    """No container of that name or id."""


class ImageNotFound(DockerError, id="image_not_found"):
    """The image is neither here nor in its registry."""


class ImageInUse(DockerError, id="image_in_use", exit_code=ExitCode.REFUSED):
    """A container, or another image, needs the image."""


class RegistryUnreachable(DockerError, id="registry_unreachable", exit_code=ExitCode.UNREACHABLE):
    """The image is absent here, and its registry does not answer."""


class RegistryUnauthorized(DockerError, id="registry_unauthorized"):
    """The registry wants a login."""


class NameInUse(DockerError, id="container_name_in_use", exit_code=ExitCode.REFUSED):
    """Another container has that name."""


class PortInUse(DockerError, id="port_in_use", exit_code=ExitCode.REFUSED):
    """Another container or process listens on the port."""


class NoSpaceLeft(DockerError, id="no_space_left"):
    """The disk is full."""


class WrongArchitecture(DockerError, id="image_wrong_architecture"):
    """The image is built for another processor."""


class EngineExited(SparkError, id="engine_exited"):
    """The container ended before the server was ready."""


# --- presets ----------------------------------------------------------------------------------------


class PresetError(SparkError, id="preset_invalid", exit_code=ExitCode.USAGE):
    """A preset file that cannot be used. `file` and `line` (1-based, 0 when unknown) say where."""

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


class EngineUnreachable(UnreachableError, id="engine_unreachable"):
    """The server does not accept connections, or stopped answering."""


class EngineDead(UnreachableError, id="engine_dead"):
    """The API server answers, its engine core is gone (`/health` 503)."""


class ApiKeyRejected(SparkError, id="api_key_rejected"):
    """HTTP 401."""


class ModelNotServed(SparkError, id="model_not_served", exit_code=ExitCode.USAGE):
    """HTTP 404 for a model name. `served` are the names that the engine does serve, empty when it did not say."""

    def __init__(self, summary: str, remedy: str, *, detail: str = "", served: tuple[str, ...] = ()) -> None:
        super().__init__(summary, remedy, detail=detail)
        self.served = served


class ContextOverflow(SparkError, id="context_overflow"):
    """The prompt, or prompt plus answer, is longer than the engine's context. Counts in tokens, None when unknown."""

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


class BadRequest(SparkError, id="bad_request"):
    """The server refused the request for another reason."""


class NoSuchPath(BadRequest, id="no_such_path"):
    """The server has no page of that path."""


class EngineBusy(SparkError, id="engine_busy"):
    """The server takes no more requests for now (HTTP 429, or a 503 that says so)."""


class EngineFailed(SparkError, id="engine_failed"):
    """The server reported an internal error, possibly in the middle of a stream."""


class MeasurementVoid(SparkError, id="measurement_void"):
    """The engine ended or was restarted while it was measured: no figure of it is kept. Of two variants measured in
    turn, `variant` is the number of that one."""

    def __init__(self, summary: str, remedy: str, *, engine: str) -> None:
        super().__init__(summary, remedy)
        self.engine = engine
        self.variant = 0


class MetricsUnavailable(SparkError, id="metrics_unavailable"):
    """The server publishes no metrics, or has them switched off."""


class ReplyCutOff(SparkError, id="reply_cut_off"):
    """A stream that ended without its end: what had arrived is kept."""
