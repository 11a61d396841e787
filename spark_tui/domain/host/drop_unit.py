"""The systemd unit that drops the cache, and the polkit rule that lets one user start it: a grant without sudo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.host.drop_caches import SCRIPT, UNIT

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
