"""systemd's units: of the person's own, and of the machine through sudo."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from spark_tui.base.engine.units import (
    BootStatus,
    ScheduleStatus,
    Unit,
    beside,
    engine_of,
    read_status,
    read_timer,
    scheduled_engine,
    timer_name,
    unit_name,
    unit_texts,
)
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import python_path
from spark_tui.base.files import read_plain
from spark_tui.base.host.memory import SystemFile
from spark_tui.base.ports import CacheDropper
from spark_tui.base.remote import last_line
from spark_tui.base.text import quoted

_SECONDS: Final = 10.0
_START_SECONDS: Final = 30.0
_PROPERTIES: Final = "Id,UnitFileState,ActiveState,Result,ExecMainStatus,NextElapseUSecRealtime"
_VARIABLES: Final = (
    "DOCKER_HOST",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "SPARK_TUI_",
)
"""What a unit is given of our environment, by the beginning of the name: it knows nothing of this shell."""

UNIT_MODE: Final = 0o644


class UnitFailed(SparkError, id="unit_failed"):
    """systemd refused, or there is none."""


class SystemdUnits:
    """The Units port: the person's own by `systemctl --user`, in `home` unless XDG_CONFIG_HOME names another folder,
    and those of the machine. `root` is where the system's folders are; `root_hand` writes there, through sudo."""

    def __init__(
        self, home: Path, environ: Mapping[str, str], root_hand: CacheDropper, config: str = "", root: Path = Path("/")
    ) -> None:
        given = environ.get("XDG_CONFIG_HOME", "")
        self._own = (Path(given) if given.startswith("/") else home / ".config") / "systemd/user"
        self._environ = environ
        self._root_hand = root_hand
        self._config = config
        self._system = root / "etc/systemd/system"
        self._lingering = root / "var/lib/systemd/linger"

    def path(self, name: str) -> Path:
        return self._own / name

    def files(self, unit: Unit, *, system: bool = False) -> Mapping[str, str]:
        own = [sys.executable, "-P", "-m", "spark_tui", *unit.words]  # -P: never import from its working folder
        own += ["--config", self._config] if self._config else []
        given = [(name, value) for name, value in self._environ.items() if name.startswith(_VARIABLES)]
        given += [("PYTHONPATH", path)] if (path := python_path()) else []
        return unit_texts(unit, own, given, user=_user() if system else "")

    def all(self) -> tuple[BootStatus, ...]:
        """Of every engine that has a unit. systemd is asked only where there is one."""
        return tuple(
            read_status(engine, shown.get(path.name, {}), system=system, lingers=self._lingers)
            for engine, path, system, shown in self._found(unit_name("*"), engine_of)
        )

    def schedules(self) -> tuple[ScheduleStatus, ...]:
        """Of every engine that has a timer. systemd is asked only where there is one."""
        found: list[ScheduleStatus | None] = []
        for engine, path, system, shown in self._found(f"{timer_name('*')}.timer", scheduled_engine):
            with suppress(OSError):  # removed meanwhile
                text = read_plain(path).decode("utf-8", "replace")
                found.append(read_timer(engine, text, shown, system=system, lingers=self._lingers))
        return tuple(filter(None, found))

    def install(self, unit: Unit, *, system: bool = False) -> None:
        """One of the person that runs is restarted. After an error the files are what they were before."""
        self._need("systemctl", unit.no_systemd)
        files = self.files(unit, system=system)
        if system:
            self._install_as_root(files)
        else:
            self._install_own(files, unit.no_manager)
            if unit.lingers:
                self._linger()
        if unit.calendar:  # of the person, or of the machine: not both
            self.remove(unit.name, own=system, machine=not system)

    def remove(self, name: str, *, own: bool = True, machine: bool = True) -> bool:
        """Ends and removes a unit with the files beside it, of the person and of the machine."""
        if had := own and self.path(name).exists():
            self._systemctl("disable", "--now", name)
        for path in map(self.path, beside(name)) if own else ():
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise UnitFailed(
                    f"Cannot remove {path}: {error.strerror or error}.", f"Remove it: rm {quoted(path)}"
                ) from error
        if had:
            self._systemctl("daemon-reload")
        if machine and (self._system / name).exists():
            self._as_root("disable", "--now", name)
            had = not self._root_hand.remove_files([str(self._system / each) for each in beside(name)]) or had
        return had

    # --- systemd ----------------------------------------------------------------------------------------

    def _found(
        self, pattern: str, engine: Callable[[str], str]
    ) -> Iterator[tuple[str, Path, bool, Mapping[str, Mapping[str, str]]]]:
        """Every engine with such a unit: its file, whether it is of the machine, and what systemd shows of these units
        and of their services, by name."""
        for folder, system in ((self._own, False), (self._system, True)):
            files = {name: path for path in sorted(folder.glob(pattern)) if (name := engine(path.name))}
            units = {path.with_suffix(suffix).name for path in files.values() for suffix in (path.suffix, ".service")}
            argv = ("systemctl", *(() if system else ("--user",)), "show", *sorted(units), f"--property={_PROPERTIES}")
            blocks = [
                dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
                for block in (self._run(argv).split("\n\n") if files else ())
            ]
            shown = {block.get("Id", ""): block for block in blocks}
            yield from ((name, path, system, shown) for name, path in files.items())

    def _install_own(self, files: Mapping[str, str], otherwise: str) -> None:
        *_, unit = files
        before = {name: path.read_text("utf-8") if (path := self.path(name)).exists() else None for name in files}
        try:
            for name, text in files.items():
                self._write(name, text)
            for words in (("daemon-reload",), ("enable", unit), ("restart", unit)):
                self._systemctl(*words, otherwise=otherwise)
        except UnitFailed:
            if before[unit] is None:
                with suppress(UnitFailed):  # the first failure is the one to report
                    self._systemctl("disable", "--now", unit)
            for name, old in before.items():
                if old is None:
                    self.path(name).unlink(missing_ok=True)
                else:
                    self._write(name, old)
            with suppress(UnitFailed):
                self._systemctl("daemon-reload")
            raise

    def _write(self, name: str, text: str) -> None:
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(UNIT_MODE)
        except OSError as error:
            raise UnitFailed(
                f"Cannot write {path}: {error.strerror or error}.", "Check who owns its folder."
            ) from error

    def _install_as_root(self, files: Mapping[str, str]) -> None:
        *_, unit = files
        paths, fresh = [str(self._system / name) for name in files], not (self._system / unit).exists()
        try:
            code = self._root_hand.write_files(tuple(map(SystemFile, paths, files.values())))
            _check_sudo(code, f"Writing {paths[-1]}")
            self._as_root("enable", "--now", unit)
        except UnitFailed:
            if fresh:
                self._root_hand.remove_files(paths)
            raise

    @property
    def _lingers(self) -> bool:
        return (self._lingering / _user()).exists()

    def _linger(self) -> None:
        """Asks for it; where it is refused, the status says that the unit waits for a login."""
        if not self._lingers:
            with suppress(SparkError):
                self._run(("loginctl", "--no-ask-password", "enable-linger"))

    def _systemctl(self, *words: str, otherwise: str = "") -> None:
        """Of the person. `otherwise` is what a person does where there is no user manager."""
        argv = ("systemctl", "--user", *words)
        silent = ", or ".join(filter(None, ("In a login session try again", otherwise)))
        refused = ", or ".join(filter(None, ("Run it in a login session of that user (not through sudo)", otherwise)))
        _output(argv, " ".join(argv), self._environ, _START_SECONDS, silent, refused)

    def _as_root(self, *words: str) -> None:
        argv = ("systemctl", *words) if os.geteuid() == 0 else ("sudo", "systemctl", *words)
        _check_sudo(self._root_hand.on_terminal(argv), " ".join(argv))

    def _run(self, argv: Sequence[str]) -> str:
        self._need(argv[0], "Start engines from its own init: spark-tui up PRESET --service")
        remedy = "See its state: systemctl --user status"
        environ = {name: value for name, value in self._environ.items() if name != "TZ"}  # times by the machine's clock
        return _output(argv, " ".join(argv[:3]), environ, _SECONDS, remedy, remedy)

    def _need(self, program: str, otherwise: str) -> None:
        if shutil.which(program, path=self._environ.get("PATH")) is None:
            raise UnitFailed(f"{program} is not installed: this machine has no systemd.", otherwise)


def _output(
    argv: Sequence[str], called: str, environ: Mapping[str, str], seconds: float, silent: str, refused: str
) -> str:
    """What it prints. Raises UnitFailed: with the remedy `silent` for no answer, `refused` for a failure."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**environ, "LC_ALL": "C"},
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnitFailed("systemd does not answer.", silent) from error
    if done.returncode != 0:
        raise UnitFailed(f"{called} failed.", refused, detail=last_line(done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode("utf-8", "replace")


def _check_sudo(code: int, what: str) -> None:
    if code:
        raise UnitFailed(f"{what} ended with exit code {code}.", "Check your permission: sudo -v")


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
