"""The unified memory, by `/proc/meminfo`: how close it is to running out, who holds it, how its page cache is freed.

Sizes in bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.finding import Finding, Missing, Reading, Severity
from spark_tui.base.host.vitals import OWN_MEMORY, GpuProcess, GpuReading
from spark_tui.base.quantities import GIB, KIB, MIB, gib, human_duration

RESERVE_BYTES: Final = 6 * GIB
"""What should stay free: machines that serve for days have 4 to 5 % available; below it the first long prompt hurts."""


class MemInfo(Struct, frozen=True):
    """The fields of `/proc/meminfo` that matter; None where the kernel does not print one.

    `huge_total` and `huge_free` count pages of `huge_page` bytes.
    """

    total: int
    free: int
    available: int
    buffers: int = 0
    cached: int = 0
    shmem: int = 0
    reclaimable: int = 0
    mapped: int | None = None
    dirty: int | None = None
    writeback: int | None = None
    active_file: int | None = None
    inactive_file: int | None = None
    swap_total: int = 0
    swap_free: int = 0
    huge_total: int = 0
    huge_free: int = 0
    huge_page: int = 0
    swap_cached: int = 0
    anon: int | None = None
    slab_unreclaimable: int | None = None
    kernel_stack: int | None = None
    page_tables: int | None = None
    page_tables_secondary: int = 0
    per_cpu: int = 0
    cma_free: int = 0

    @property
    def cache(self) -> int:
        """Page cache and reclaimable slab, shared memory excluded (it is not cache, though counted in Cached)."""
        return max(0, min(self.buffers + self.cached + self.reclaimable - self.shmem, self.total - self.free))

    @property
    def in_use(self) -> int:
        """Neither free nor cache: processes, shared memory, kernel, and what the GPU driver holds."""
        return max(0, self.total - self.free - self.cache)

    @property
    def used(self) -> int:
        """What only ending a process frees."""
        return max(0, self.total - self.available)

    @property
    def droppable(self) -> int | None:
        """What drop_caches would free now; None where the kernel does not report it."""
        if self.active_file is None or self.inactive_file is None:
            return None
        kept = (self.mapped or 0) + (self.dirty or 0) + (self.writeback or 0)
        return max(0, self.active_file + self.inactive_file + self.reclaimable - kept)

    @property
    def allocatable(self) -> int:
        """The largest possible CUDA allocation, without swap. NVIDIA's rule for integrated GPUs: of reserved huge
        pages only the free ones count, else MemAvailable does."""
        return self.huge_free * self.huge_page if self.huge_total and self.huge_page else self.available

    @property
    def usable(self) -> int:
        """MemAvailable without the free pages of the contiguous-memory area, which neither the driver nor the kernel
        can use: on a machine about to freeze they can be all that is left."""
        return max(0, self.available - min(self.cma_free, self.free))

    @property
    def unaccounted(self) -> int | None:
        """What no category of the kernel covers: on a Spark the GPU driver's, for live contexts and dead ones. 1.1 to
        1.35 GiB on an idle desktop. None where the kernel does not print every category."""
        categories = (self.anon, self.slab_unreclaimable, self.kernel_stack, self.page_tables)
        known = [size for size in categories if size is not None]
        if len(known) < len(categories):
            return None
        shared = self.free + self.buffers + self.cached + self.swap_cached + self.reclaimable
        return max(0, self.total - shared - sum(known) - self.page_tables_secondary - self.per_cpu)

    @property
    def swap_used(self) -> int:
        return max(0, self.swap_total - self.swap_free)


_SIZES: Final[Mapping[str, str]] = {
    "MemTotal": "total",
    "MemFree": "free",
    "MemAvailable": "available",
    "Buffers": "buffers",
    "Cached": "cached",
    "Shmem": "shmem",
    "Mapped": "mapped",
    "Dirty": "dirty",
    "Writeback": "writeback",
    "Active(file)": "active_file",
    "Inactive(file)": "inactive_file",
    "SwapTotal": "swap_total",
    "SwapFree": "swap_free",
    "Hugepagesize": "huge_page",
    "KReclaimable": "KReclaimable",
    "SReclaimable": "SReclaimable",
    "SwapCached": "swap_cached",
    "AnonPages": "anon",
    "SUnreclaim": "slab_unreclaimable",
    "KernelStack": "kernel_stack",
    "PageTables": "page_tables",
    "SecPageTables": "page_tables_secondary",
    "Percpu": "per_cpu",
    "CmaFree": "cma_free",
}
_COUNTS: Final[Mapping[str, str]] = {"HugePages_Total": "huge_total", "HugePages_Free": "huge_free"}
_NEEDED: Final = (("total", "MemTotal"), ("free", "MemFree"), ("available", "MemAvailable"))
_MOST_DIGITS: Final = 15
"""An exabyte in kB. A longer number is no size, and int() refuses very long ones."""


def parse_meminfo(text: str) -> MemInfo:
    """`/proc/meminfo` as text -> MemInfo.

    KReclaimable (all reclaimable kernel memory) is preferred to SReclaimable. A line that is not `Name: number kB` is
    skipped: a unit is never guessed. Raises ValueError without MemTotal, MemFree or MemAvailable.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in _SIZES:
            words = rest.split()
            if len(words) == 2 and words[1] == "kB" and _is_number(words[0]):
                found[_SIZES[name]] = int(words[0]) * KIB
        elif name in _COUNTS and _is_number(rest.strip()):
            found[_COUNTS[name]] = int(rest)
    for needed, name in _NEEDED:
        if not found.get(needed) and (needed == "total" or needed not in found):
            raise ValueError(f"/proc/meminfo has no {name}")
    found["reclaimable"] = found.pop("KReclaimable", found.pop("SReclaimable", 0))
    for part in ("free", "available"):  # a container's own meminfo (lxcfs) can say more than there is
        found[part] = min(found[part], found["total"])
    return MemInfo(**found)


def _is_number(word: str) -> bool:
    return len(word) <= _MOST_DIGITS and word.isascii() and word.isdigit()


def steady(shown: MemInfo | None, read: MemInfo, step: int = 64 * MIB) -> MemInfo:
    """`read` with every size that moved less than `step` kept as shown: a quiet machine drifts by a few MiB a second,
    and nothing is repainted for that."""
    if shown is None:
        return read

    def keep(old: int | None, new: int | None) -> int | None:
        return old if old is not None and new is not None and abs(new - old) < step else new

    kept = {name: keep(getattr(shown, name), getattr(read, name)) for name in MemInfo.__struct_fields__}
    counts = {name: getattr(read, name) for name in ("huge_total", "huge_free", "huge_page")}
    return MemInfo(**(kept | counts))


# --- how bad it is ----------------------------------------------------------------------------------------
# A plain `less than 5 % available` is wrong on a Spark: engines fill the memory by intent, and serve for days at 4 to
# 5 % with no pressure at all. What freezes the machine is the fall to nothing, within seconds.

SERVING_FLOOR: Final = 2 * GIB
"""Below it a serving machine is in danger. Healthy ones were recorded down to 3.9 GiB, read in the unkindest way."""
LOADING_FLOOR: Final = 3 * GIB
"""While an engine loads, more is taken every moment; a stopped start costs minutes, a frozen machine the plug."""
CLOSE: Final = 1.5
"""Up to this many times the floor is close to it."""
TREND_BELOW: Final = 12 * GIB
"""A fall counts below this: above it a load on its way to a healthy end falls as fast as one to a bad end."""
GONE_SOON_SECONDS: Final = 10.0
GONE_SECONDS: Final = 60.0
PRESSURE_BELOW: Final = 8 * GIB
THRASHING_PERCENT: Final = 40.0
"""PSI `some avg10`. In normal service it is 0.00 for days (hermes-agent #90713)."""
WAITING_PERCENT: Final = 1.0
MIN_TREND_SECONDS: Final = 2.0
MEMORY: Final = "memory"
"""The id of the finding."""
ALL_WELL: Final = Finding(MEMORY, Severity.OK, "floor, trend and pressure are fine")
OUT_OF_MEMORY_REMEDY: Final = (
    "Stop an engine, or lower its memory share. The guard does it in time: spark-tui guard --install"
)


def fall_rate(points: Sequence[tuple[float, int]]) -> float:
    """Bytes per second that go away, from `(seconds, usable bytes)` oldest first; negative when memory comes back. Zero
    for less than two seconds of history: a step is no trend."""
    if len(points) < 2:
        return 0.0
    (began, first), (ended, last) = points[0], points[-1]
    span = ended - began
    return (first - last) / span if span >= MIN_TREND_SECONDS else 0.0


def memory_finding(
    mem: MemInfo, *, falling: float = 0.0, pressure: float | None = None, loading: bool = False
) -> Finding:
    """The state of one moment by floor, trend and pressure: ERROR, WARNING, or ALL_WELL. `falling` is `fall_rate` of
    the last seconds, `pressure` PSI `some avg10` per cent (None: unknown), `loading`: an engine starts."""
    floor, usable = (LOADING_FLOOR if loading else SERVING_FLOOR), mem.usable
    left = usable / falling if falling > 0 and usable < TREND_BELOW else float("inf")
    waited = pressure if pressure is not None and usable < PRESSURE_BELOW else 0.0
    state = f"{gib(usable)} GiB available"
    trend = f"{state}, falling {gib(falling)} GiB/s: gone in {human_duration(left)}" if left < GONE_SECONDS else ""
    if usable < floor:
        found = Severity.ERROR, f"{state}, below the floor of {gib(floor)}"
    elif left < GONE_SOON_SECONDS:
        found = Severity.ERROR, trend
    elif waited >= THRASHING_PERCENT:
        found = Severity.ERROR, f"{state}, {waited:.0f} % of the time spent waiting for it"
    elif usable < CLOSE * floor:
        found = Severity.WARNING, f"{state}, close to the floor of {gib(floor)}"
    elif trend:
        found = Severity.WARNING, trend
    elif waited >= WAITING_PERCENT:
        found = Severity.WARNING, f"{state}, {waited:.1f} % of the time spent waiting for it"
    else:
        return ALL_WELL
    return Finding(MEMORY, *found, remedy=OUT_OF_MEMORY_REMEDY)


# --- who holds it -----------------------------------------------------------------------------------------
# The sources disagree on a Spark and are never added up: NVML knows what CUDA contexts hold, which is in no cgroup and
# no process's RSS; the kernel knows everything except whose the driver's part is. The kernel's total counts, and NVML
# only as far as the kernel leaves room.

IDLE_DRIVER_BYTES: Final = int(1.5 * GIB)
"""The driver's own on an idle machine: 1.1 to 1.35 GiB were measured."""

_CONTAINER: Final = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)


class EngineShare(Struct, frozen=True):
    """The CUDA memory of one container, in bytes. `container` is its id, and `name` its name; both are empty for a
    process in no container, which `pids` names."""

    name: str
    memory: int
    pids: tuple[int, ...]
    container: str = ""


class MemoryBreakdown(Struct, frozen=True):
    """The unified memory in parts that add up to `total` exactly, in bytes.

    `engines` is None where the driver does not report them (`no_engines` says why); `apps` then includes them. `apps`
    are processes, shared memory and the kernel. `driver` is the GPU driver's beyond its live processes: its own needs,
    pinned memory, and contexts of dead processes; None where unknown (`no_driver`), and `apps` then includes it.
    `cache` stays after a drop, `droppable` goes; None where the kernel does not report it, and `cache` is then all.
    """

    total: int
    engines: tuple[EngineShare, ...] | None
    apps: int
    driver: int | None
    cache: int
    droppable: int | None
    free: int
    no_engines: str = ""
    no_driver: str = ""

    @property
    def engine_memory(self) -> int | None:
        """All engines together."""
        return None if self.engines is None else sum(share.memory for share in self.engines)

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """Engines, apps, driver, cache, droppable, free; what is unknown is 0 and part of a neighbour."""
        return (self.engine_memory or 0, self.apps, self.driver or 0, self.cache, self.droppable or 0, self.free)

    @property
    def orphaned(self) -> int:
        """Driver memory beyond an idle driver's: leaked contexts of dead processes, or pinned memory."""
        return max(0, (self.driver or 0) - IDLE_DRIVER_BYTES)


def container_id(cgroup: str) -> str:
    """The Docker container of a process, from its `/proc/PID/cgroup`; empty for one in no container.

    `0::/system.slice/docker-<id>.scope` with systemd, `0::/docker/<id>` without.
    """
    found = _CONTAINER.search(cgroup)
    return found[1] if found else ""


def memory_breakdown(
    mem: MemInfo,
    gpu: Reading[GpuReading],
    containers: Mapping[int, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> MemoryBreakdown:
    """`containers` maps process ids to container ids, `names` those to container names."""
    free = min(mem.free, mem.total)
    in_use = mem.total - free - mem.cache
    droppable = None if mem.droppable is None else min(mem.droppable, mem.cache)
    engines, driver, no_engines, no_driver = None, None, "", ""
    if isinstance(gpu, Missing):
        no_engines = gpu.reason
    elif not gpu.value.unified:
        no_engines = OWN_MEMORY
    elif isinstance(known := gpu.value.compute_memory(), Missing):
        no_engines = known.reason
    else:
        engines = _shares(gpu.value.processes or (), in_use, containers or {}, names or {})
    held = sum(share.memory for share in engines or ())
    if mem.unaccounted is None:
        no_driver = "the kernel does not print every category"
    elif no_engines or isinstance(gpu, Missing):
        no_driver = no_engines
    else:
        live = sum(process.memory or 0 for process in gpu.value.processes or ())  # those that only draw too
        driver = min(max(0, mem.unaccounted - live), in_use - held)
    apps, cache = in_use - held - (driver or 0), mem.cache - (droppable or 0)
    return MemoryBreakdown(mem.total, engines, apps, driver, cache, droppable, free, no_engines, no_driver)


def _shares(
    processes: tuple[GpuProcess, ...], room: int, containers: Mapping[int, str], names: Mapping[str, str]
) -> tuple[EngineShare, ...]:
    """One share per container, and one for each CUDA process in none; the largest first. Cut in proportion where NVML
    claims more than is in use."""
    groups: dict[str, list[GpuProcess]] = {}
    for process in processes:
        if process.compute:
            groups.setdefault(containers.get(process.pid, "") or f"pid {process.pid}", []).append(process)
    claimed = sum(process.memory or 0 for members in groups.values() for process in members)
    shares = []
    for key, members in groups.items():
        identity = "" if key.startswith("pid ") else key
        memory = sum(process.memory or 0 for process in members)
        if claimed > room:
            memory = memory * room // claimed
        name = names.get(identity, identity[:12]) if identity else ""
        shares.append(EngineShare(name, memory, tuple(sorted(process.pid for process in members)), identity))
    return tuple(sorted(shares, key=lambda share: (-share.memory, share.name, share.pids)))


# --- drop caches -----------------------------------------------------------------------------------------


DROP_FILE: Final = "/proc/sys/vm/drop_caches"
COMPACT_FILE: Final = "/proc/sys/vm/compact_memory"
EVERYTHING: Final = "3"
"""Page cache (1) and reclaimable slab (2): as in NVIDIA's playbooks, and as `droppable` counts."""
TEE: Final = "/usr/bin/tee"
SYSCTL: Final = "/usr/sbin/sysctl"
GRANT_FILE: Final = "/etc/sudoers.d/spark-tui-dropcaches"
UNIT: Final = "spark-tui-drop-caches.service"
ONE_SHOT_NAME: Final = "spark-tui-drop-caches"
SCRIPT: Final = f"sync; echo {EVERYTHING} > {DROP_FILE}"
BY_HAND: Final = f"sudo sh -c '{SCRIPT}'"

MOUNTED: Final = "/drop_caches"
"""Where a container sees DROP_FILE."""

WORTH_BYTES: Final = 256 * MIB
"""Less than this is not worth a drop."""
_MOVED_BYTES: Final = GIB


class RouteKind(StrEnum):
    """How, in the order in which the ways are tried. The values are in JSON."""

    ROOT = "root"
    SUDO = "sudo"
    UNIT = "systemd unit"
    CONTAINER = "container"
    PRIVILEGED = "privileged container"
    TERMINAL = "sudo on the terminal"


class Route(Struct, frozen=True):
    """One way: the command with its input. With an `image` it is the command in a container."""

    kind: RouteKind
    argv: tuple[str, ...]
    stdin: str = ""
    image: str = ""

    @property
    def silent(self) -> bool:
        """Needs neither consent nor a password."""
        return self.kind in (RouteKind.ROOT, RouteKind.SUDO, RouteKind.UNIT)


class Access(Struct, frozen=True):
    """What this user may do. `sudo` and `sudo_compact` are the exact commands that `sudo -n` grants, without `sudo -n`
    itself; empty when none is. `unit`: the systemd unit is installed."""

    root: bool = False
    sudo: tuple[str, ...] = ()
    sudo_compact: tuple[str, ...] = ()
    unit: bool = False
    has_sudo: bool = False


TEE_DROP: Final = (TEE, DROP_FILE)
TEE_COMPACT: Final = (TEE, COMPACT_FILE)
SYSCTL_DROP: Final = (SYSCTL, "-w", f"vm.drop_caches={EVERYTHING}")
GRANTS: Final = (TEE_DROP, SYSCTL_DROP)
"""Commands that a grant may allow: ours and sparkrun's is the first."""


def routes(access: Access, image: str = "") -> tuple[Route, ...]:
    """The ways open to this user, best first. `image` is a local image with `sh` for the container, empty for none."""
    found = []
    if access.root:
        found.append(Route(RouteKind.ROOT, TEE_DROP, EVERYTHING))
    if access.sudo:
        stdin = EVERYTHING if access.sudo[0] == TEE else ""
        found.append(Route(RouteKind.SUDO, ("sudo", "-n", *access.sudo), stdin))
    if access.unit:
        found.append(Route(RouteKind.UNIT, ("systemctl", "start", "--no-ask-password", "--quiet", UNIT)))
    if image:
        found.append(Route(RouteKind.CONTAINER, ("sh", "-c", f"sync; echo {EVERYTHING} > {MOUNTED}"), image=image))
        found.append(Route(RouteKind.PRIVILEGED, ("sh", "-c", SCRIPT), image=image))
    if access.has_sudo and not access.root:
        found.append(Route(RouteKind.TERMINAL, ("sudo", "sh", "-c", SCRIPT)))
    return tuple(found)


def compact_route(access: Access) -> Route | None:
    """The way to compact memory without a person, None without one. The driver wants free memory in large blocks."""
    if access.root:
        return Route(RouteKind.ROOT, TEE_COMPACT, "1")
    if access.sudo_compact:
        return Route(RouteKind.SUDO, ("sudo", "-n", *access.sudo_compact), "1")
    return None


# --- grants ---------------------------------------------------------------------------------------------

UNIT_FILE: Final = f"/etc/systemd/system/{UNIT}"
RULE_FILE: Final = "/etc/polkit-1/rules.d/50-spark-tui-drop-caches.rules"
_PLAIN_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_RULE_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}(?:@[A-Za-z0-9.-]{1,64})?")


class SystemFile(Struct, frozen=True):
    """A file of root's. `check` is a command that finds the draft sound before it is put in place."""

    path: str
    text: str
    mode: str = "0644"
    check: str = "true"


def sudoers_grant(user: str, uid: int) -> SystemFile:
    """The sudo rule: exactly two commands, without a wildcard. A user whose name would need quoting is named by
    number."""
    who = user if _PLAIN_USER.fullmatch(user) else f"#{uid}"
    text = f"""\
# Made by spark-tui (spark-tui drop-caches --uninstall removes it): lets this user
# free the page cache and compact free memory, and nothing else.
{who} ALL=(root) NOPASSWD: {" ".join(TEE_DROP)}
{who} ALL=(root) NOPASSWD: {" ".join(TEE_COMPACT)}
"""
    return SystemFile(GRANT_FILE, text, "0440", "visudo -cqf")


def unit_files(user: str) -> tuple[SystemFile, SystemFile]:
    """A grant without sudo: the systemd unit, and the polkit rule that lets this user start it. Raises ValueError for a
    name that needs quoting in a rule. polkit sees unit and verb since systemd 226; the rule demands both."""
    if not _RULE_USER.fullmatch(user):
        raise ValueError(f"not a plain user name: {user!r}")
    unit = f"""\
# Made by spark-tui (spark-tui drop-caches --uninstall --polkit removes it)
[Unit]
Description=Frees the page cache, which CUDA counts as used memory

[Service]
Type=oneshot
ExecStart=/bin/sh -c '{SCRIPT}'
TimeoutStartSec=90
NoNewPrivileges=yes
PrivateNetwork=yes
ProtectHome=yes
"""
    rule = f"""\
// Made by spark-tui (spark-tui drop-caches --uninstall --polkit removes it)
polkit.addRule(function(action, subject) {{
    if (action.id == "org.freedesktop.systemd1.manage-units" &&
        action.lookup("unit") == "{UNIT}" &&
        action.lookup("verb") == "start" &&
        subject.user == "{user}") {{
        return polkit.Result.YES;
    }}
}});
"""
    return SystemFile(UNIT_FILE, unit), SystemFile(RULE_FILE, rule)


# --- the result -----------------------------------------------------------------------------------------


class DropResult(Struct, frozen=True):
    """Memory before and after. `synced` is false when dirty pages were not written in time and stayed."""

    route: RouteKind
    before: MemInfo
    after: MemInfo
    seconds: float
    synced: bool = True

    @property
    def released(self) -> int:
        """Bytes of cache freed, by MemFree."""
        return max(0, self.after.free - self.before.free)

    @property
    def sentence(self) -> str:
        """`Freed 41.2 GiB of page cache in 1.3s: 12.1 -> 53.3 GiB free. Available memory is unchanged (116.0 GiB).`"""
        free = f"{gib(self.before.free)} -> {gib(self.after.free)} GiB free"
        if self.released < WORTH_BYTES:
            done = f"Almost nothing to free: {free}."
        else:
            done = f"Freed {gib(self.released)} GiB of page cache in {human_duration(self.seconds)}: {free}."
        change, now = self.after.available - self.before.available, gib(self.after.available)
        if abs(change) < _MOVED_BYTES:
            available = f"Available memory is unchanged ({now} GiB)."
        else:
            verb = "rose" if change > 0 else "fell"
            available = f"Available memory {verb} {gib(abs(change))} GiB to {now} (other processes changed)."
        late = "" if self.synced else " Unwritten pages stayed: the disk was too slow."
        return f"{done} {available}{late}"
