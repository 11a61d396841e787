"""The ways to give up the page cache, as values, and what a drop has done, in words.

Only root may write `/proc/sys/vm/drop_caches`. This program never asks for a password and never keeps one: it uses
what it is allowed already, else lets sudo ask on the person's own terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from spark_tui.domain.engine.container import ContainerSpec, Mount
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.logs.timeline import BootTimeline, PhaseId
from spark_tui.domain.quantities import GIB, MIB, gib, human_duration

DROP_FILE: Final = "/proc/sys/vm/drop_caches"
COMPACT_FILE: Final = "/proc/sys/vm/compact_memory"
EVERYTHING: Final = "3"
"""Page cache (1) and reclaimable slab (2): what NVIDIA's playbooks advise, and what `droppable` counts."""
TEE: Final = "/usr/bin/tee"
SYSCTL: Final = "/usr/sbin/sysctl"
GRANT_FILE: Final = "/etc/sudoers.d/spark-tui-dropcaches"
UNIT: Final = "spark-tui-drop-caches.service"
ONE_SHOT_NAME: Final = "spark-tui-drop-caches"
SCRIPT: Final = f"sync; echo {EVERYTHING} > {DROP_FILE}"
BY_HAND: Final = f"sudo sh -c '{SCRIPT}'"

_MOUNTED: Final = "/drop_caches"

WORTH_BYTES: Final = 256 * MIB
"""Less than this is not worth a drop."""
_MOVED_BYTES: Final = GIB
_PLAIN_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


class RouteKind(StrEnum):
    """How, in the order in which the ways are tried."""

    ROOT = "root"
    SUDO = "sudo"
    UNIT = "systemd unit"
    CONTAINER = "container"
    PRIVILEGED = "privileged container"
    TERMINAL = "sudo on the terminal"


@dataclass(frozen=True, slots=True)
class Route:
    """One way. `argv` is run with `stdin` as its input; a container's is the command in it."""

    kind: RouteKind
    argv: tuple[str, ...]
    stdin: str = ""
    image: str = ""

    @property
    def silent(self) -> bool:
        """It needs no person: neither consent nor a password."""
        return self.kind in (RouteKind.ROOT, RouteKind.SUDO, RouteKind.UNIT)


@dataclass(frozen=True, slots=True)
class Access:
    """What this user is allowed. `sudo` and `sudo_compact` are the exact commands that `sudo -n` grants, without
    `sudo -n` itself; empty when none is. `unit` says that the systemd unit is installed."""

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
        found.append(Route(RouteKind.SUDO, ("sudo", "-n", *access.sudo), _input(access.sudo)))
    if access.unit:
        found.append(Route(RouteKind.UNIT, ("systemctl", "start", "--no-ask-password", "--quiet", UNIT)))
    if image:
        found.append(Route(RouteKind.CONTAINER, ("sh", "-c", f"sync; echo {EVERYTHING} > {_MOUNTED}"), image=image))
        found.append(Route(RouteKind.PRIVILEGED, ("sh", "-c", SCRIPT), image=image))
    if access.has_sudo and not access.root:
        found.append(Route(RouteKind.TERMINAL, ("sudo", "sh", "-c", SCRIPT)))
    return tuple(found)


def compact_route(access: Access) -> Route | None:
    """The way to compact memory without a person; None when there is none. Free memory then comes in large blocks
    again, which the driver wants."""
    if access.root:
        return Route(RouteKind.ROOT, TEE_COMPACT, "1")
    if access.sudo_compact:
        return Route(RouteKind.SUDO, ("sudo", "-n", *access.sudo_compact), "1")
    return None


def _input(argv: tuple[str, ...]) -> str:
    return EVERYTHING if argv[0] == TEE else ""


def one_shot(route: Route) -> ContainerSpec:
    """The container of that route, without a network. The plain one is given the one file, which root may write
    without any privilege. /proc/sys itself is read-only in all but a privileged one, which is the last resort
    where something (user namespaces, a security module) is against that.
    """
    spec = ContainerSpec(ONE_SHOT_NAME, route.image, route.argv[1:], entrypoint=route.argv[:1], network="none")
    if route.kind is RouteKind.PRIVILEGED:
        return replace(spec, privileged=True)
    return replace(spec, mounts=(Mount(DROP_FILE, _MOUNTED),), security_opt=("no-new-privileges",), user="0:0")


# --- the grant ----------------------------------------------------------------------------------------


def sudoers_grant(user: str, uid: int) -> str:
    """The text of `/etc/sudoers.d/spark-tui-dropcaches`: exactly two commands, without a wildcard. A user whose name
    would need quoting is named by number."""
    who = user if _PLAIN_USER.fullmatch(user) else f"#{uid}"
    return (
        "# Made by spark-tui (spark-tui drop-caches --uninstall removes it): lets this user\n"
        "# give up the page cache and compact free memory, and nothing else.\n"
        f"{who} ALL=(root) NOPASSWD: {' '.join(TEE_DROP)}\n"
        f"{who} ALL=(root) NOPASSWD: {' '.join(TEE_COMPACT)}\n"
    )


# --- when ---------------------------------------------------------------------------------------------


def measuring(timeline: BootTimeline) -> bool:
    """The engine measures free memory for its KV cache now: memory that becomes free meanwhile fails its start
    (vLLM: `Error in memory profiling`)."""
    phase, facts = timeline.current, timeline.facts
    sized = facts.kv_gib is not None or facts.kv_tokens is not None
    return phase is not None and phase.id in (PhaseId.COMPILE, PhaseId.KV_CACHE) and not sized


# --- what came of it ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DropResult:
    """Memory before and after, bytes by `/proc/meminfo`. `synced` is false when dirty pages could not be written in
    time and stayed. `ended` names engines that ended meanwhile (empty as a rule)."""

    route: RouteKind
    before: MemInfo
    after: MemInfo
    seconds: float
    synced: bool = True

    @property
    def released(self) -> int:
        """Cache released, by MemFree."""
        return max(0, self.after.free - self.before.free)

    @property
    def usable_change(self) -> int:
        """How far MemAvailable moved: about nothing, unless something else happened too."""
        return self.after.available - self.before.available

    @property
    def sentence(self) -> str:
        """`Released 41.2 GiB of cache in 1.3s: 12.1 -> 53.3 GiB free. Usable memory is unchanged (116.0 GiB).`"""
        free = f"{gib(self.before.free)} -> {gib(self.after.free)} GiB free"
        if self.released < WORTH_BYTES:
            done = f"There was next to nothing to release: {free}."
        else:
            done = f"Released {gib(self.released)} GiB of cache in {human_duration(self.seconds)}: {free}."
        if abs(self.usable_change) < _MOVED_BYTES:
            usable = f"Usable memory is unchanged ({gib(self.after.available)} GiB)."
        else:
            more = "rose" if self.usable_change > 0 else "fell"
            usable = (
                f"Usable memory {more} by {gib(abs(self.usable_change))} GiB to {gib(self.after.available)}: "
                "not the cache's doing, something else ended or began meanwhile."
            )
        late = "" if self.synced else " Unwritten pages stayed: the disk was too slow to take them."
        return f"{done} {usable}{late}"


def serving_warning(names: Iterable[str]) -> str:
    """What a drop costs an engine that serves."""
    listed = ", ".join(names)
    return (
        f"{listed} serves now. Its weights are safe; libraries and tokenizer are read from disk again, so the next "
        "answers may be slower."
    )


UNIT_FILE: Final = f"/etc/systemd/system/{UNIT}"
RULE_FILE: Final = "/etc/polkit-1/rules.d/50-spark-tui-drop-caches.rules"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}(?:@[A-Za-z0-9.-]{1,64})?")


@dataclass(frozen=True, slots=True)
class SystemFile:
    """A file of root's, mode 0644."""

    path: str
    text: str


def unit_files(user: str) -> tuple[SystemFile, SystemFile]:
    """The unit and the rule for that user. Raises ValueError for a name that cannot stand in a rule as it is."""
    if not _NAME.fullmatch(user):
        raise ValueError(f"not a plain user name: {user!r}")
    return SystemFile(UNIT_FILE, _unit()), SystemFile(RULE_FILE, _rule(user))


def _unit() -> str:
    return f"""\
# Made by spark-tui (spark-tui drop-caches --uninstall --polkit removes it)
[Unit]
Description=Gives up the page cache, which CUDA counts as used memory

[Service]
Type=oneshot
ExecStart=/bin/sh -c '{SCRIPT}'
TimeoutStartSec=90
NoNewPrivileges=yes
PrivateNetwork=yes
ProtectHome=yes
"""


def _rule(user: str) -> str:
    """polkit tells unit and verb since systemd 226; both are held to, and nobody else is let in."""
    return f"""\
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
