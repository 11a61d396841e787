"""The ways to free the page cache, and the result of a drop.

Only root may write `/proc/sys/vm/drop_caches`. This program never asks for a password and never keeps one: it uses what
is already permitted, else lets sudo ask on the person's own terminal.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spark_tui.base.host.memory import MemInfo
from spark_tui.base.quantities import GIB, MIB, gib, human_duration

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
