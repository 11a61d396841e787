"""What the memory view needs of the machine beyond the once-a-second readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spark_tui.domain.host.gpu import GpuProcess
from spark_tui.domain.host.processes import ContainerMemory, HostProcess
from spark_tui.domain.host.vitals import VitalCounters
from spark_tui.domain.reading import Reading


class VitalsProbe(Protocol):
    """The machine's other vital signs. Reads many files: for a thread, and for when somebody looks."""

    def counters(self) -> VitalCounters:
        """One reading. Never raises."""

    def processes(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        """The `limit` heaviest processes, and every one of `gpu` that can be seen. Never raises."""

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        """What the kernel charges to the container of a process. Never raises."""
