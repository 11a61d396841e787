"""The simulated Spark as the doctor sees it: healthy, but for a few things that owners often meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark_tui.domain.doctor.check import EngineProcess, Link, StoreState
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Ok, Reading

_NUMBERS: Final = {"vm/min_free_kbytes": 90_112, "vm/watermark_boost_factor": 15_000}


class DemoDoctorProbe:
    """The DoctorProbe port."""

    def user(self) -> tuple[str, bool]:
        """The simulated person."""
        return "spark", False

    def driver(self) -> Reading[str]:
        """A current one."""
        return Ok("580.142")

    def kernel_number(self, name: str) -> Reading[int]:
        """DGX OS's values."""
        return Ok(_NUMBERS.get(name, 0))

    def earlyoom(self) -> Reading[str]:
        """As other tools set it up."""
        return Ok("/usr/bin/earlyoom -m 2 -s 80 --prefer (vllm|sglang|ray|python3)")

    def engine_processes(self) -> Reading[tuple[EngineProcess, ...]]:
        """None."""
        return Ok(())

    def clock_synchronised(self) -> Reading[bool]:
        """Yes."""
        return Ok(True)

    def docker_group(self) -> tuple[bool, bool]:
        """In it."""
        return True, False

    def toolkit(self) -> Reading[str]:
        """Installed."""
        return Ok("/usr/bin/nvidia-ctk")

    def cdi(self) -> Reading[tuple[str, ...]]:
        """Generated."""
        return Ok(("/var/run/cdi/nvidia.yaml",))

    def registries(self) -> Reading[tuple[str, ...]]:
        """No login."""
        return Ok(())

    def folder(self, path: Path) -> Reading[StoreState]:
        """The store has a leftover of a container in it."""
        foreign = path.name == "vllm"
        return Ok(
            StoreState(
                str(path), exists=True, writable=True, free=1_412 * GIB, total=3_666 * GIB, foreign=2 * foreign,
                foreign_example=f"{path}/hub/.locks" if foreign else "",
            )
        )  # fmt: skip

    def links(self) -> tuple[Reading[tuple[Link, ...]], str]:
        """A cable."""
        return Ok((Link("enP7s7", wireless=False, speed=10_000), Link("wlP9s9", wireless=True))), "enP7s7"

    def taken(self, ports: Sequence[int]) -> tuple[int, ...]:
        """All are free."""
        return ()
