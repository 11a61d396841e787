"""Checks of the machine: what it is, its driver, its clocks, its memory, and what dead engines left behind."""

from __future__ import annotations

import re
from typing import Final

from spark_tui.domain.doctor.check import Outcome, Readings, failed, passed, skipped, warned
from spark_tui.domain.host.detectors import STUCK_MHZ, STUCK_WATTS, leaked, watch_power
from spark_tui.domain.host.detectors import LowPowerState as _LowPower
from spark_tui.domain.quantities import GIB, MIB, human_bytes
from spark_tui.domain.reading import reason_of, value_of

OLDEST_DRIVER: Final = (580, 95)
"""DGX OS 7.2.3, the oldest that Sparks were seen with."""
MIN_FREE_BYTES: Final = 2 * GIB
"""A larger vm.min_free_kbytes takes so much from MemAvailable that vLLM's start check fails."""
SWAP_USED: Final = 2 * GIB
CACHE_SHARE: Final = 0.25
SHM: Final = "/dev/shm"  # noqa: S108 - the place itself is looked at


def which_machine(seen: Readings) -> Outcome:
    """A Spark or not, and which."""
    box = seen.identity
    words = f"{box.product or 'unknown product'}, {box.architecture or '?'}, kernel {box.kernel or '?'}"
    if box.is_spark:
        return passed(f"This is a {box.product or 'DGX Spark'}.", words)
    return warned(
        "This machine is not a DGX Spark: sizes, speeds and some checks are made for one.",
        "Go on if you know the difference; `--demo` shows a simulated Spark.",
        words,
    )


def driver(seen: Readings) -> Outcome:
    """The NVIDIA driver is there, and not older than any that a Spark shipped with."""
    found = value_of(seen.driver)
    if not found:
        why = reason_of(seen.driver) or "no version"
        if seen.identity.is_spark:
            return failed("The NVIDIA driver does not answer.", "Run nvidia-smi; reboot after an update.", why)
        return skipped("There is no NVIDIA driver here.", why)
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if len(numbers) == 2 and numbers < OLDEST_DRIVER and seen.identity.is_spark:
        return warned(
            f"The driver {found} is older than any that DGX OS 7.2 ships.",
            "Update by the DGX dashboard or: sudo apt update && sudo apt full-upgrade",
            found,
        )
    return passed(f"NVIDIA driver {found}.", found)


def gpu(seen: Readings) -> Outcome:
    """NVML answers."""
    reading = value_of(seen.gpu)
    if reading is None:
        why = reason_of(seen.gpu)
        if not seen.identity.is_spark:
            return skipped("No GPU can be read here.", why)
        return failed(
            "The GPU cannot be read.",
            "A wedged driver answers after a reboot, or after the power supply was unplugged for a minute.",
            why,
        )
    return passed(f"{reading.name} answers.", f"driver {reading.driver}" if reading.driver else "")


def power_state(seen: Readings) -> Outcome:
    """The GPU is not stuck at its lowest clocks. One reading only raises suspicion."""
    reading = value_of(seen.gpu)
    if reading is None:
        return skipped("Clocks cannot be read.", reason_of(seen.gpu))
    state = watch_power(watch_power(_LowPower(), reading, 0.0), reading, 60.0)
    words = f"{_or(reading.sm_clock_mhz, 'MHz')}, {_or(reading.power_watts, 'W')}, " + _or(
        reading.utilization_percent, "% busy"
    )
    if state.stuck:
        return warned(
            f"The GPU works hard below {STUCK_MHZ} MHz and {STUCK_WATTS} W: it may be in its stuck power state.",
            "If it stays so: unplug the power supply from the wall and from the Spark for a minute. A reboot does "
            "not help.",
            words,
        )
    return passed("Clocks and power fit the load.", words)


def _or(value: float | None, unit: str) -> str:
    return f"? {unit}" if value is None else f"{value:.0f} {unit}"


def page_cache(seen: Readings) -> Outcome:
    """CUDA counts cached pages as used: much of it makes a start fail."""
    memory = value_of(seen.memory)
    if memory is None:
        return skipped("Memory cannot be read.", reason_of(seen.memory))
    words = f"cache {human_bytes(memory.cache)}, free {human_bytes(memory.free)} of {human_bytes(memory.total)}"
    if memory.cache > CACHE_SHARE * memory.total and not seen.engines_run:
        return warned(
            "Much of the pool is page cache, which CUDA counts as used.",
            "Before a launch, free it: spark-tui drop-caches",
            words,
        )
    return passed("The page cache is no hindrance.", words)


def swap(seen: Readings) -> Outcome:
    """Swap in use slows everything on a unified pool."""
    memory = value_of(seen.memory)
    if memory is None:
        return skipped("Memory cannot be read.", reason_of(seen.memory))
    used = memory.swap_total - memory.swap_free
    words = f"{human_bytes(used)} of {human_bytes(memory.swap_total)}"
    if used > SWAP_USED:
        return warned(
            "Much swap is in use: an engine has taken more than the box has.",
            "Lower gpu_memory_utilization, or stop an engine; then: sudo swapoff -a && sudo swapon -a",
            words,
        )
    return passed("Swap is all but unused." if memory.swap_total else "There is no swap.", words)


def min_free(seen: Readings) -> Outcome:
    """`vm.min_free_kbytes` and the watermark boost leave MemAvailable alone."""
    value, boost = value_of(seen.min_free_bytes), value_of(seen.watermark_boost)
    if value is None:
        return skipped("vm.min_free_kbytes cannot be read.", reason_of(seen.min_free_bytes))
    words = f"vm.min_free_kbytes {value // 1024:,}" + (f", watermark_boost_factor {boost:,}" if boost else "")
    if value > MIN_FREE_BYTES:
        return warned(
            f"vm.min_free_kbytes keeps {human_bytes(value)} away from every engine, and vLLM's start check may fail.",
            "Set it back: sudo sysctl -w vm.min_free_kbytes=90112, and remove it from /etc/sysctl.d",
            words,
        )
    return passed("The kernel keeps no unusual reserve.", words)


def drop_route(seen: Readings) -> Outcome:
    """The page cache can be freed without a password."""
    access = value_of(seen.drop)
    if access is None:
        return skipped("Not looked at.", reason_of(seen.drop))
    if access.root or access.sudo or access.unit:
        how = "as root" if access.root else " ".join(("sudo -n", *access.sudo)) if access.sudo else "by a systemd unit"
        return passed("The page cache can be freed with one key.", how)
    return warned(
        "Freeing the page cache would ask for a password each time.",
        "Once: spark-tui drop-caches --install (it shows what it writes first)",
    )


def earlyoom(seen: Readings) -> Outcome:
    """An earlyoom that prefers python would end this program first."""
    line = value_of(seen.earlyoom)
    if line is None:
        return skipped("Not looked at.", reason_of(seen.earlyoom))
    if not line:
        return passed("No earlyoom runs.")
    prefer = re.search(r"--prefer[= ](\S+)", line)
    if prefer and "python" in prefer[1]:
        return warned(
            "earlyoom ends processes named python first. This program's guard is named otherwise; your own scripts "
            "are not.",
            "Add to /etc/default/earlyoom: --avoid '(^|/)(spark-tui|sshd|systemd)$'",
            line,
        )
    return passed("earlyoom runs, and does not aim at this program.", line)


def leaks(seen: Readings) -> Outcome:
    """Files in /dev/shm of engines that are gone are memory that nothing gives back."""
    files = value_of(seen.shared)
    if files is None:
        return skipped(f"{SHM} cannot be read.", reason_of(seen.shared))
    leak = leaked(files, engines_run=seen.engines_run)
    if not leak.files:
        return passed("No dead engine has left shared memory behind.", SHM)
    names = ", ".join(f"{SHM}/{file.name}" for file in leak.files[:3])
    return warned(
        f"{len(leak.files)} files of dead engines hold {human_bytes(leak.size)} of memory.",
        f"Remove them: rm {names}{' ...' if len(leak.files) > 3 else ''}",
        names,
    )


def orphans(seen: Readings) -> Outcome:
    """Engine processes outside containers hold memory, and no container's end frees it."""
    found = value_of(seen.orphans)
    if found is None:
        return skipped("Processes cannot be read.", reason_of(seen.orphans))
    large = [process for process in found if process.memory >= 64 * MIB]
    if not large:
        return passed("No engine runs outside a container.")
    names = ", ".join(f"{process.name} (pid {process.pid}, {human_bytes(process.memory)})" for process in large[:4])
    return warned(
        f"{len(large)} engine process{'es run' if len(large) > 1 else ' runs'} outside any container and may hold "
        "GPU memory.",
        f"If it is a leftover: kill {' '.join(str(process.pid) for process in large[:4])}",
        names,
    )


def clock(seen: Readings) -> Outcome:
    """A wrong clock breaks TLS to the Hub and the registries."""
    synchronised = value_of(seen.clock_synchronised)
    if synchronised is None:
        return skipped("Not known.", reason_of(seen.clock_synchronised))
    if not synchronised:
        return warned("The clock is not synchronised.", "sudo timedatectl set-ntp true")
    return passed("The clock is synchronised.")
