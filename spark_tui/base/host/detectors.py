"""States of a Spark that no single figure shows: a stalled engine, a GPU stuck in its low-power state, shared memory
leaked by a killed engine; and what the kernel's log means (`kernel_log.toml`). Samples and lines in, state out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spark_tui.base.finding import Finding, Severity
from spark_tui.base.host.vitals import GpuReading
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.base.secret import mask_secrets
from spark_tui.base.text import clean_line, quoted, truncate

# --- stall ----------------------------------------------------------------------------------------------

FROZEN_SECONDS: Final = 120.0
"""A long prefill emits no token: 128k tokens at 1,600 a second take 80 s."""
PROBE_SECONDS: Final = 60.0
"""A one-token request may take this long before the engine counts as stalled."""


class Stall(StrEnum):
    """How far a suspicion of a stall is proved."""

    NONE = "none"
    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"


class TokenSample(Struct, frozen=True):
    """An engine's counters `at` monotonic seconds: running requests, and tokens ever generated and ever read. The
    prompt counter is None where the server has none."""

    at: float
    running: float
    generated: float
    prompt: float | None = None


class StallState(Struct, frozen=True):
    """Since when no counter has moved, and the result of a probe."""

    last: TokenSample | None = None
    frozen_since: float | None = None
    stall: Stall = Stall.NONE

    def sentence(self, now: float) -> str:
        """For the screen; empty while all is well."""
        if self.stall is Stall.NONE or self.frozen_since is None:
            return ""
        still = f"no tokens for {human_duration(now - self.frozen_since)} while requests run"
        return f"{still}; no answer to a one-token request" if self.stall is Stall.CONFIRMED else still


STALL_REMEDY: Final = "Restart the engine. Details: its log, and `dmesg` around that time."


def watch_tokens(state: StallState, sample: TokenSample) -> StallState:
    """The state after one more sample. Any progress, a server restart (counters fall) or an idle engine ends it."""
    last = state.last
    frozen = (
        last is not None
        and sample.running > 0
        and sample.generated == last.generated
        and (sample.prompt is None or sample.prompt == last.prompt)
    )
    if not frozen or last is None:
        return StallState(sample)
    since = state.frozen_since if state.frozen_since is not None else last.at
    stall = state.stall
    if stall is Stall.NONE and sample.at - since >= FROZEN_SECONDS:
        stall = Stall.SUSPECTED
    return StallState(sample, since, stall)


def probed(state: StallState, *, answered: bool) -> StallState:
    """The state after the probe: an answer clears it, none within `PROBE_SECONDS` confirms it."""
    if state.stall is not Stall.SUSPECTED:
        return state
    return StallState(state.last) if answered else StallState(state.last, state.frozen_since, Stall.CONFIRMED)


# --- stuck low power ------------------------------------------------------------------------------------

BUSY_PERCENT: Final = 90
STUCK_SECONDS: Final = 15.0
STUCK_MHZ: Final = 1400
STUCK_WATTS: Final = 30.0
"""Never met in 58,762 samples of healthy load (SM 2197-2528 MHz); stuck machines show 500-850 MHz and 5-20 W."""

LOW_POWER_REMEDY: Final = (
    "The power supply is in its safe state; a reboot does not help. Shut down, unplug the adapter from the wall and "
    "from the Spark, wait a minute, plug it in again. If this happens again, the unit needs service."
)


class LowPowerState(Struct, frozen=True):
    """Since when the GPU is busy at very low clocks, monotonic seconds; None when it is not."""

    since: float | None = None
    stuck: bool = False
    sentence: str = ""


def watch_power(state: LowPowerState, gpu: GpuReading, at: float) -> LowPowerState:
    """The state after one more reading. A figure that the driver does not report proves nothing."""
    load, clock, watts = gpu.utilization_percent, gpu.sm_clock_mhz, gpu.power_watts
    if load is None or clock is None or watts is None:
        return LowPowerState()
    if load < BUSY_PERCENT or clock >= STUCK_MHZ or watts >= STUCK_WATTS:
        return LowPowerState()
    since = state.since if state.since is not None else at
    stuck = at - since >= STUCK_SECONDS
    sentence = f"GPU {load} % busy at {clock} MHz and {watts:.0f} W for {human_duration(at - since)}" if stuck else ""
    return LowPowerState(since, stuck, sentence)


# --- leaked shared memory -------------------------------------------------------------------------------

_ENGINE_FILES: Final = re.compile(
    r"psm_[0-9a-f]+|sem\.mp-\w+|nccl-\w+|torch_\d+_.*|vllm.*|VLLM.*|sglang.*|cuda\.shm\.[\w.]+|__KMP_REGISTERED_LIB_\d+"
)
LEAK_SECONDS: Final = 120.0


class Link(Struct, frozen=True):
    """A network interface that is up. `speed` in Mbit/s, None where the driver does not report it."""

    name: str
    wireless: bool
    speed: int | None = None


class EngineProcess(Struct, frozen=True):
    """A process of an inference engine outside any container, its server gone. `memory`: resident, in bytes."""

    pid: int
    name: str
    memory: int


class StoreState(Struct, frozen=True):
    """A folder of models or caches. `free` and `total` in bytes of its file system; `foreign` counts entries at its top
    and one level below that belong to another user, `foreign_example` is one of them."""

    path: str
    exists: bool
    writable: bool
    free: int | None = None
    total: int | None = None
    foreign: int = 0
    foreign_example: str = ""


class SharedFile(Struct, frozen=True):
    """A file in /dev/shm: bytes that it takes, age in seconds since it was last written. `open` says whether a
    process has it open or mapped; None where not every process could be looked into."""

    name: str
    size: int
    age: float
    open: bool | None = None


class Leak(Struct, frozen=True):
    """Files of engines that are gone. They use memory until they are removed."""

    files: tuple[SharedFile, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(file.size for file in self.files)

    @property
    def sentence(self) -> str:
        """For the screen; empty when nothing is leaked."""
        if not self.files:
            return ""
        files = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        return f"{human_bytes(self.size)} leaked in {files} of /dev/shm by a killed engine"

    @property
    def remedy(self) -> str:
        """The command that removes them."""
        names = " ".join(quoted(f"/dev/shm/{file.name}") for file in self.files[:5])  # noqa: S108 - the place itself
        more = " ..." if len(self.files) > 5 else ""
        return f"Unused. Remove: sudo rm {names}{more}" if self.files else ""


def leaked(files: Iterable[SharedFile], *, engines_run: bool, least_age: float = LEAK_SECONDS) -> Leak:
    """The files that an engine left behind: of a name that engines give, old enough, and open nowhere. Where that
    cannot be known, nothing counts as leaked while any engine runs."""
    found = [
        file
        for file in files
        if _ENGINE_FILES.fullmatch(file.name)
        and file.age >= least_age
        and file.size > 0
        and (file.open is False or (file.open is None and not engines_run))
    ]
    return Leak(tuple(sorted(found, key=lambda file: (-file.size, file.name))))


# --- the kernel's log -------------------------------------------------------------------------------------

_STAMP: Final = re.compile(r"(?:<\d>)?\[(?: *\d{1,9}\.\d{6}|\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})\] ")
"""Of `dmesg`, `dmesg -r` and `dmesg -T`."""
_TASK: Final = re.compile(
    r"\bPID: \d+ Comm: (.{1,40}?)(?: +(?:Not tainted|Tainted|Kdump)|$)(?:.{0,60}? (\d+\.\d+\.\d\S*))?"
)


class KernelEvent(Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of event. `summary` has the groups of the pattern that matched in {0} and {1}, and in {task} whose turn it
    was in which kernel, where it says so."""

    id: str
    pattern: str
    summary: str
    remedy: str
    severity: Severity = Severity.ERROR


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    event: tuple[KernelEvent, ...]


@cache
def _events() -> tuple[tuple[KernelEvent, re.Pattern[str]], ...]:
    table = msgspec.toml.decode(Path(__file__).with_name("kernel_log.toml").read_bytes(), type=_Table)
    return tuple((each, re.compile(each.pattern)) for each in table.event)


def of_the_kernel(line: str) -> bool:
    """Whether it is a line of `journalctl -k`, of a file in /var/log, or of `dmesg`."""
    return " kernel: " in line or "NVRM: " in line or (line[:1] in ("[", "<") and _STAMP.match(line) is not None)


def kernel_events(lines: Iterable[tuple[int, str]]) -> tuple[Finding, ...]:
    """One finding for each kind of event in these lines with their numbers, the gravest first, with its latest line as
    evidence. A line counts for the gravest kind that fits it."""
    latest: dict[str, tuple[int, str, list[str]]] = {}
    task = ""
    for number, line in lines:
        if at := _TASK.search(line):
            task = f" while {clean_line(at[1])} ran" + (f", kernel {clean_line(at[2])}" if at[2] else "")
        for event, pattern in _events():
            if match := pattern.search(line):
                if event.id in latest and "Xid" in latest[event.id][1] and "Xid" not in line:
                    break  # the line with the number says more
                latest[event.id] = number, line, [clean_line(group) for group in match.groups() if group]
                break
    told = []
    for event, _ in _events():
        if event.id in latest:
            number, line, groups = latest[event.id]
            summary = event.summary.format(*groups, task=task)
            text = truncate(mask_secrets(clean_line(line).strip()), 300)
            told.append(Finding(event.id, event.severity, summary, (text,), event.remedy, line=number))
    return tuple(told)
