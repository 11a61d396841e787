"""One simulated container: what it was made from, and what Docker says about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from spark_tui.domain.engine.container import ContainerFacts, ContainerStatus
from spark_tui.domain.presets.container_spec import LABEL_MODEL, LABEL_SERVED_NAME, Mount, PublishedPort
from spark_tui.services.demo.chronicle import Chronicle
from spark_tui.services.demo.run import Run

RECORDED_MODEL: Final = "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
STORE: Final = "/home/spark/vllm"
DISK_FREE: Final = 2_448_240_345_088
"""Bytes free on the disk of the store."""
_MOUNTS: Final = (Mount(STORE, "/models"),)
_DEFAULT_LENGTH: Final = 262_144
_DEFAULT_UTILIZATION: Final = 0.8


@dataclass(slots=True)
class DemoContainer:
    """One simulated container. `runs` are its starts, the last one the present."""

    id: str
    name: str
    image: str
    image_id: str
    argv: tuple[str, ...]
    created_at: float
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[PublishedPort, ...] = ()
    network_mode: str = "bridge"
    environment: tuple[str, ...] = ()
    needs_key: bool = False
    log: Chronicle = field(default_factory=Chronicle)
    runs: list[Run] = field(default_factory=list)
    exit_code: int | None = None
    stopping: bool = False

    @property
    def run(self) -> Run | None:
        """The start that lives now."""
        return self.runs[-1] if self.runs and self.runs[-1].ended_at is None else None

    def argument(self, *names: str) -> str:
        """The value that follows an option in the command, or an empty string."""
        for index, word in enumerate(self.argv):
            name, equals, value = word.partition("=")
            if name in names:
                return value if equals else next(iter(self.argv[index + 1 : index + 2]), "")
        return ""

    @property
    def model(self) -> str:
        """What it serves."""
        words = [*self.argv, "", ""]
        positional = words[words.index("serve") + 1] if "serve" in words else ""
        named = dict(self.labels).get(LABEL_MODEL) or self.argument("--model")
        return named or ("" if positional.startswith("-") else positional) or RECORDED_MODEL

    @property
    def served_name(self) -> str:
        """The name that requests use."""
        return dict(self.labels).get(LABEL_SERVED_NAME) or self.argument("--served-model-name") or self.model

    @property
    def max_model_len(self) -> int:
        """Context length in tokens."""
        told = self.argument("--max-model-len")
        return int(told) if told.isdecimal() else _DEFAULT_LENGTH

    @property
    def utilization(self) -> float:
        """`--gpu-memory-utilization`, 0.8 where it says nothing."""
        try:
            return min(1.0, max(0.05, float(self.argument("--gpu-memory-utilization"))))
        except ValueError:
            return _DEFAULT_UTILIZATION

    def facts(self) -> ContainerFacts:
        """As Docker reports it."""
        last = self.runs[-1] if self.runs else None
        alive = self.run is not None
        status = ContainerStatus.RUNNING if alive else ContainerStatus.EXITED if last else ContainerStatus.CREATED
        before = self.runs[-2].ended_at if alive and len(self.runs) > 1 else None
        return ContainerFacts(
            id=self.id,
            name=self.name,
            image=self.image,
            image_id=self.image_id,
            status=status,
            argv=self.argv,
            labels=self.labels,
            ports=self.ports,
            network_mode=self.network_mode,
            environment=self.environment,
            pid=last.pid if alive and last else 0,
            exit_code=None if alive else self.exit_code,
            created_at=self.created_at,
            started_at=last.started_at if last else None,
            finished_at=before if alive or last is None else last.ended_at,
            mounts=_MOUNTS,
        )
