"""What the doctor needs of the machine beyond what is read all the time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from spark_tui.domain.doctor.check import EngineProcess, Link, StoreState
from spark_tui.domain.reading import Reading


class DoctorProbe(Protocol):
    """Readings of files under /proc, /sys and /etc. Blocks for as long as they take: not for the event loop. Nothing
    raises: what cannot be read is Missing."""

    def user(self) -> tuple[str, bool]:
        """This user's name, and whether it is root."""

    def driver(self) -> Reading[str]:
        """Version of the NVIDIA kernel module."""

    def kernel_number(self, name: str) -> Reading[int]:
        """A number under /proc/sys, by its path there: `vm/min_free_kbytes`."""

    def earlyoom(self) -> Reading[str]:
        """Its command line; empty where it does not run."""

    def engine_processes(self) -> Reading[tuple[EngineProcess, ...]]:
        """Processes of inference engines that are in no container."""

    def clock_synchronised(self) -> Reading[bool]:
        """Whether the system's clock follows others."""

    def docker_group(self) -> tuple[bool, bool]:
        """Whether this user is in the group `docker`, and whether only a new login would know it."""

    def toolkit(self) -> Reading[str]:
        """Path of the NVIDIA container toolkit; empty where there is none."""

    def cdi(self) -> Reading[tuple[str, ...]]:
        """Specifications of devices for containers."""

    def registries(self) -> Reading[tuple[str, ...]]:
        """Registries with a login in Docker's own settings."""

    def folder(self, path: Path) -> Reading[StoreState]:
        """A folder that this program keeps things in."""

    def links(self) -> tuple[Reading[tuple[Link, ...]], str]:
        """Interfaces that are up, and the one with the default route; empty where there is none."""

    def taken(self, ports: Sequence[int]) -> tuple[int, ...]:
        """Those of these ports that somebody listens on."""
