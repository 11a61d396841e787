"""One start of a simulated container: where it stands in the recorded start, and what memory it holds then."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final

from spark_tui.domain.quantities import GIB
from spark_tui.services.demo.recording import (
    BESIDE_KV_GIB,
    CHECKPOINT_BYTES,
    GRAPHS_BYTES,
    POOL_GIB,
    WEIGHTS_BYTES,
    Script,
    boot_marks,
)
from spark_tui.services.demo.tally import Tally

CPU_BYTES: Final = int(3.4 * GIB)
CONTEXT_BYTES: Final = int(0.6 * GIB)
WORKSPACE_BYTES: Final = int(5.2 * GIB)
"""What PyTorch's allocator keeps after its profiling run."""
RELEASE_SECONDS: Final = 8.0
"""Memory comes back late after an engine has ended; on a real Spark it can be minutes."""
LEAST_KV_BYTES: Final = 2 * GIB


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes held at a moment: by processes, by CUDA; and file pages read since the start."""

    cpu: int = 0
    cuda: int = 0
    pages: int = 0


@dataclass(slots=True, eq=False)
class Run:
    """`speed` is how many recorded seconds pass in one. `fails` follows the script of a failed start.
    `cpu_bytes` is what its processes come to hold."""

    started_at: float
    speed: float
    script: Script
    pid: int
    kv_bytes: int = 0
    cpu_bytes: int = CPU_BYTES
    fails: bool = False
    traffic: bool = False
    ended_at: float | None = None
    tally: Tally = field(default_factory=Tally)

    @property
    def exits_at(self) -> float | None:
        """When it will end by itself; None when it will not."""
        return self.started_at + (self.script.seconds + 1) / self.speed if self.fails else None

    @property
    def ready_at(self) -> float:
        """When the server answers, should it live so long; never when it fails."""
        return float("inf") if self.fails else self.started_at + boot_marks().ready / self.speed

    def serves(self, now: float) -> bool:
        """The server answers now."""
        return self.ended_at is None and now >= self.ready_at

    def stage(self, now: float) -> str:
        """`ended`, `start`, `fetch`, `load`, `compile` or `serve`."""
        if self.ended_at is not None and now >= self.ended_at:
            return "ended"
        if now >= self.ready_at:
            return "serve"
        marks, at = boot_marks(), (now - self.started_at) * self.speed
        if self.fails or at < marks.fetch:
            return "start"
        return "fetch" if at < marks.load else "load" if at < marks.loaded else "compile"

    def full_size(self) -> int:
        """The most it will hold."""
        return self.cpu_bytes + (0 if self.fails else fixed_cuda() + self.kv_bytes)

    def held(self, now: float) -> Held:
        """What it holds at `now`."""
        if self.ended_at is None or now < self.ended_at:
            return self._held_at((now - self.started_at) * self.speed)
        at_end = self._held_at((self.ended_at - self.started_at) * self.speed)
        left = 1 - _ramp(now, self.ended_at, self.ended_at + RELEASE_SECONDS)
        return Held(0, int(at_end.cuda * left), at_end.pages)

    def _held_at(self, at: float) -> Held:
        marks = boot_marks()
        cpu = int(self.cpu_bytes * _ramp(at, 0, marks.engine))
        if self.fails:
            return Held(cpu)
        cuda = (
            CONTEXT_BYTES * _ramp(at, marks.engine, marks.engine + 2)
            + WEIGHTS_BYTES * _ramp(at, marks.load, marks.loaded)
            + WORKSPACE_BYTES * _ramp(at, marks.compile, marks.kv)
            + self.kv_bytes * _ramp(at, marks.kv, marks.kv + 3)
            + GRAPHS_BYTES * _ramp(at, marks.kv + 10, marks.graphs)
        )
        return Held(cpu, int(cuda), int(CHECKPOINT_BYTES * _ramp(at, marks.fetch, marks.loaded)))


def fixed_cuda() -> int:
    """CUDA memory of an engine that serves, without its KV cache."""
    return CONTEXT_BYTES + WEIGHTS_BYTES + WORKSPACE_BYTES + GRAPHS_BYTES


def kv_wanted(utilization: float) -> int:
    """The KV cache that vLLM would make at this utilization, by the recorded engine's figures."""
    return max(LEAST_KV_BYTES, int((utilization * POOL_GIB - BESIDE_KV_GIB) * GIB))


def noise(*what: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    return zlib.crc32(repr(what).encode()) / 2**32


def _ramp(at: float, begin: float, end: float) -> float:
    """0 before `begin`, 1 after `end`, even in between."""
    return min(1.0, max(0.0, (at - begin) / (end - begin)))
