"""Processes by memory, and what the kernel charges to a container, under /proc and /sys/fs/cgroup."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_tui.domain.host.gpu import GpuProcess
from spark_tui.domain.host.ledger import container_id
from spark_tui.domain.host.processes import ContainerMemory, HostProcess, heaviest, parse_cgroup_memory
from spark_tui.domain.quantities import KIB, MIB
from spark_tui.domain.reading import Missing, Ok, Reading
from spark_tui.domain.text import clean_line
from spark_tui.services.procfs_read import read, text_or_empty

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
WORTH_BYTES: Final = 8 * MIB
"""Smaller processes are not looked into any closer."""
CLOSER: Final = 16
"""The kernel walks all pages of a process to share them out: only so many of the heaviest are asked about."""


class ProcessTable:
    """Reads the table anew each time. Files of other users' processes may be barred: then less is known of them."""

    def __init__(self, root: Path, now: Callable[[], float]) -> None:
        self._root = root
        self._now = now

    def read(self, gpu: Sequence[GpuProcess], limit: int) -> Reading[tuple[HostProcess, ...]]:
        """The heaviest processes, by PSS where it may be read, and every one of `gpu`. Never raises."""
        held = {process.pid: process.memory for process in gpu}
        try:
            pids = [int(entry.name) for entry in os.scandir(self._root / "proc") if entry.name.isdecimal()]
        except OSError as error:
            return Missing(f"/proc: {(error.strerror or str(error)).lower()}")
        rough = [found for pid in pids if (found := self._rough(pid, held)) is not None]
        worth = [each for each in rough if each.rss >= WORTH_BYTES or each.pid in held]
        first = heaviest(worth, max(limit, CLOSER))
        closer = [self._closer(each) for each in first[:CLOSER]]
        return Ok(heaviest([*closer, *first[CLOSER:]], limit), self._now())

    def _rough(self, pid: int, held: Mapping[int, int | None]) -> HostProcess | None:
        """What costs little: RSS and the name. None for a process that is gone, and for the kernel's own."""
        folder = f"{self._root}/proc/{pid}"
        try:
            pages = read(f"{folder}/statm").split()
            rss = int(pages[1]) * PAGE
            if not rss and pid not in held:
                return None
            return HostProcess(pid, clean_line(read(f"{folder}/comm").strip()), rss, gpu=held.get(pid))
        except (OSError, ValueError, IndexError):
            return None

    def _closer(self, process: HostProcess) -> HostProcess:
        folder = f"{self._root}/proc/{process.pid}"
        try:
            container = container_id(read(f"{folder}/cgroup"))
            process = replace(process, container=container, uid=Path(folder).stat().st_uid)
        except OSError:  # gone in the meantime
            return process
        try:
            told = _sizes(read(f"{folder}/smaps_rollup"))
        except OSError:  # another user's
            return process
        return replace(process, pss=told.get("Pss"), swap=told.get("SwapPss"))

    def container_memory(self, pid: int) -> Reading[ContainerMemory]:
        """By the cgroup of a container's first process."""
        try:
            path = next(
                (line[3:] for line in read(f"{self._root}/proc/{pid}/cgroup").splitlines() if line[:3] == "0::"), ""
            )
        except OSError as error:
            return Missing(f"/proc/{pid}/cgroup: {(error.strerror or str(error)).lower()}")
        if not path:
            return Missing("cgroups of version 1 are not read")
        folder = self._root / "sys/fs/cgroup" / path.lstrip("/")
        texts = [text_or_empty(folder / f"memory.{name}") for name in ("current", "stat", "swap.current", "max")]
        found = parse_cgroup_memory(*texts)
        return Missing(f"{path}/memory.current cannot be read") if found is None else Ok(found, self._now())


def _sizes(text: str) -> dict[str, int]:
    """`smaps_rollup`: `Pss:  1234 kB` lines in bytes."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdecimal():
            found[name] = int(words[0]) * KIB
    return found
