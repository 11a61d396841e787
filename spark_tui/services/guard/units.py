"""The person's own systemd units: written, enabled and started, or removed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_tui.domain.errors import SparkError
from spark_tui.domain.text import clean_line

_SECONDS: Final = 30.0
UNIT_MODE: Final = 0o644


class UnitFailed(SparkError):
    """systemd refused, or there is none."""

    id = "unit_failed"


class SystemdUserUnits:
    """The UserUnits port by `systemctl --user`. `home` holds the units unless XDG_CONFIG_HOME names another folder."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        given = environ.get("XDG_CONFIG_HOME", "")
        self._folder = (Path(given) if given.startswith("/") else home / ".config") / "systemd/user"
        self._environ = environ

    def path(self, name: str) -> Path:
        """Where the unit's file is, or would be."""
        return self._folder / name

    def install(self, name: str, text: str) -> None:
        """Writes the unit, enables and starts it; one that runs is restarted. Raises SparkError."""
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(UNIT_MODE)
        except OSError as error:
            raise UnitFailed(
                f"Cannot write {path}: {error.strerror or error}.", "Check who owns its folder."
            ) from error
        for words in (("daemon-reload",), ("enable", name), ("restart", name)):
            self._systemctl(*words)

    def uninstall(self, name: str) -> bool:
        """Stops, disables and removes it; false when there was none. Raises SparkError."""
        path = self.path(name)
        if not path.exists():
            return False
        self._systemctl("disable", "--now", name)
        try:
            path.unlink()
        except OSError as error:
            raise UnitFailed(f"Cannot remove {path}: {error.strerror or error}.", f"Remove it: rm {path}") from error
        self._systemctl("daemon-reload")
        return True

    def _systemctl(self, *words: str) -> None:
        try:
            done = subprocess.run(
                ["systemctl", "--user", *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={**self._environ, "LC_ALL": "C"},
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnitFailed("systemd does not answer.", "Start the guard in a shell: spark-tui guard") from error
        if done.returncode != 0:
            last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
            raise UnitFailed(
                f"systemctl --user {' '.join(words)} failed.",
                "Run it in a login session of that user (not through sudo), or start the guard in a shell: "
                "spark-tui guard",
                detail=clean_line(last),
            )
