"""systemd's units: of the person's own, and of the machine through sudo, that start engines with it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from spark_tui.base.engine.units import (
    BootStatus,
    ScheduleStatus,
    boot_text,
    engine_of,
    read_status,
    read_timer,
    scheduled_engine,
    timer_name,
    timer_texts,
    unit_name,
)
from spark_tui.base.errors import SparkError
from spark_tui.base.executors import python_path
from spark_tui.base.files import read_plain
from spark_tui.base.host.drop_caches import SystemFile
from spark_tui.base.ports import CacheDropper
from spark_tui.base.remote import last_line
from spark_tui.base.text import quoted

_SECONDS: Final = 10.0
_START_SECONDS: Final = 30.0
_PROPERTIES: Final = "Id,UnitFileState,ActiveState,Result,ExecMainStatus,NextElapseUSecRealtime"
_VARIABLES: Final = ("DOCKER_HOST", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "HF_HOME", "SPARK_TUI_")
"""What a unit is given of our environment, by the beginning of the name: it knows nothing of this shell."""

UNIT_MODE: Final = 0o644


class UnitFailed(SparkError, id="unit_failed"):
    """systemd refused, or there is none."""


class SystemdUserUnits:
    """The UserUnits port by `systemctl --user`. `home` holds the units unless XDG_CONFIG_HOME names another folder.
    `otherwise` is what a person does where there is no user manager."""

    def __init__(
        self, home: Path, environ: Mapping[str, str], otherwise: str = "start the guard in a shell: spark-tui guard"
    ) -> None:
        self._otherwise = otherwise
        given = environ.get("XDG_CONFIG_HOME", "")
        self._folder = (Path(given) if given.startswith("/") else home / ".config") / "systemd/user"
        self._environ = environ

    def path(self, name: str) -> Path:
        return self._folder / name

    def install(self, name: str, text: str, beside: Mapping[str, str] = MappingProxyType({})) -> None:
        """Writes the unit and those beside it, enables and starts it; one that runs is restarted. Raises SparkError:
        then the files are what they were before."""
        texts = {**beside, name: text}
        before = {each: path.read_text("utf-8") if (path := self.path(each)).exists() else None for each in texts}
        try:
            for each in texts:
                self.write(each, texts[each])
            for words in (("daemon-reload",), ("enable", name), ("restart", name)):
                self._systemctl(*words)
        except UnitFailed:
            if before[name] is None:
                with suppress(UnitFailed):  # the first failure is the one to report
                    self._systemctl("disable", "--now", name)
            for each, old in before.items():
                if old is None:
                    self.path(each).unlink(missing_ok=True)
                else:
                    self.write(each, old)
            with suppress(UnitFailed):
                self._systemctl("daemon-reload")
            raise

    def write(self, name: str, text: str) -> None:
        """Writes the unit only. Raises UnitFailed."""
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(UNIT_MODE)
        except OSError as error:
            raise UnitFailed(
                f"Cannot write {path}: {error.strerror or error}.", "Check who owns its folder."
            ) from error

    def uninstall(self, name: str) -> bool:
        path = self.path(name)
        if not path.exists():
            return False
        self._systemctl("disable", "--now", name)
        try:
            path.unlink()
        except OSError as error:
            raise UnitFailed(
                f"Cannot remove {path}: {error.strerror or error}.", f"Remove it: rm {quoted(path)}"
            ) from error
        self._systemctl("daemon-reload")
        return True

    def _systemctl(self, *words: str) -> None:
        silent = f"In a login session try again, or {self._otherwise}"
        refused = f"Run it in a login session of that user (not through sudo), or {self._otherwise}"
        argv = ("systemctl", "--user", *words)
        _output(argv, " ".join(argv), self._environ, _START_SECONDS, silent, refused)


class SystemdBoot:
    """The BootPort. `root` is where the system's folders are; `root_hand` writes there, through sudo."""

    def __init__(
        self, home: Path, environ: Mapping[str, str], root_hand: CacheDropper, config: str = "", root: Path = Path("/")
    ) -> None:
        self._own = SystemdUserUnits(home, environ, "use a system unit: the same command with --system")
        self._environ = environ
        self._root_hand = root_hand
        self._config = config
        self._system = root / "etc/systemd/system"
        self._lingering = root / "var/lib/systemd/linger"

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

    def enable(self, engine: str, words: Sequence[str], *, system: bool = False) -> None:
        """Writes the unit, enables and starts it; the person's own starts without a login from then on."""
        self._install({unit_name(engine): self.text(engine, words, system=system)}, system=system)

    def disable(self, engine: str) -> bool:
        return self._remove(unit_name(engine))

    def install_timer(
        self, name: str, title: str, words: Sequence[str], calendar: Sequence[str], *, data: str = "",
        system: bool = False,
    ) -> None:  # fmt: skip
        self._need("systemctl", "Use cron (crontab -e): spark-tui down NAME, spark-tui up PRESET" if data else "")
        user = _user() if system else ""
        service, timer = timer_texts(title, *self._command(words), calendar, user=user, data=data)
        self._install({f"{name}.service": service, f"{name}.timer": timer}, system=system)
        # Of the person, or of the machine: not both.
        self._remove(f"{name}.timer", f"{name}.service", own=system, machine=not system)

    def remove_timer(self, name: str) -> bool:
        return self._remove(f"{name}.timer", f"{name}.service")

    def has_timer(self, name: str) -> bool:
        return self._own.path(f"{name}.timer").exists()

    def text(self, engine: str, words: Sequence[str], *, system: bool = False) -> str:
        """The unit's file."""
        return boot_text(engine, *self._command(words), user=_user() if system else "")

    def _command(self, words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """The program with these arguments, and what it is given of our environment."""
        own = [sys.executable, "-P", "-m", "spark_tui", *words]  # -P: never import from the unit's working folder
        own += ["--config", self._config] if self._config else []
        given = [(name, value) for name, value in self._environ.items() if name.startswith(_VARIABLES)]
        given += [("PYTHONPATH", path)] if (path := python_path()) else []
        return own, given

    # --- systemd ----------------------------------------------------------------------------------------

    def _found(
        self, pattern: str, engine: Callable[[str], str]
    ) -> Iterator[tuple[str, Path, bool, Mapping[str, Mapping[str, str]]]]:
        """Every engine with such a unit: its file, whether it is of the machine, and what systemd shows of these units
        and of their services, by name."""
        for folder, system in ((self._own.path("x").parent, False), (self._system, True)):
            files = {name: path for path in sorted(folder.glob(pattern)) if (name := engine(path.name))}
            units = {path.with_suffix(suffix).name for path in files.values() for suffix in (path.suffix, ".service")}
            argv = ("systemctl", *(() if system else ("--user",)), "show", *sorted(units), f"--property={_PROPERTIES}")
            blocks = [
                dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
                for block in (self._run(argv).split("\n\n") if files else ())
            ]
            shown = {block.get("Id", ""): block for block in blocks}
            yield from ((name, path, system, shown) for name, path in files.items())

    def _install(self, files: Mapping[str, str], *, system: bool) -> None:
        """Writes units, and enables and starts the last of them."""
        *others, unit = files
        if not system:
            self._need("systemctl")
            self._own.install(unit, files[unit], {name: files[name] for name in others})
            self._linger()
            return
        paths, fresh = [str(self._system / name) for name in files], not (self._system / unit).exists()
        try:
            code = self._root_hand.write_files(tuple(map(SystemFile, paths, files.values())))
            _check_sudo(code, f"Writing {paths[-1]}")
            self._as_root("enable", "--now", unit)
        except UnitFailed:
            if fresh:
                self._root_hand.remove_files(paths)
            raise

    def _remove(self, unit: str, *others: str, own: bool = True, machine: bool = True) -> bool:
        """Ends and removes a unit with the files beside it, of the person and of the machine."""
        had = own and self._own.uninstall(unit)
        for name in others if own else ():
            self._own.path(name).unlink(missing_ok=True)
        if machine and (self._system / unit).exists():
            self._as_root("disable", "--now", unit)
            had = not self._root_hand.remove_files([str(self._system / name) for name in (unit, *others)]) or had
        return had

    @property
    def _lingers(self) -> bool:
        return (self._lingering / _user()).exists()

    def _linger(self) -> None:
        """Asks for it; where it is refused, the status says that the unit waits for a login."""
        if not self._lingers:
            try:
                self._run(("loginctl", "--no-ask-password", "enable-linger"))
            except SparkError:
                return

    def _as_root(self, *words: str) -> None:
        argv = ("systemctl", *words) if os.geteuid() == 0 else ("sudo", "systemctl", *words)
        _check_sudo(self._root_hand.on_terminal(argv), " ".join(argv))

    def _run(self, argv: Sequence[str]) -> str:
        self._need(argv[0])
        remedy = "See its state: systemctl --user status"
        environ = {name: value for name, value in self._environ.items() if name != "TZ"}  # times by the machine's clock
        return _output(argv, " ".join(argv[:3]), environ, _SECONDS, remedy, remedy)

    def _need(self, program: str, otherwise: str = "") -> None:
        if shutil.which(program, path=self._environ.get("PATH")) is None:
            raise UnitFailed(
                f"{program} is not installed: this machine has no systemd.",
                otherwise or "Start engines from its own init: spark-tui up PRESET --service",
            )


def _output(
    argv: Sequence[str], called: str, environ: Mapping[str, str], seconds: float, silent: str, refused: str
) -> str:
    """What it prints. Raises UnitFailed: with the remedy `silent` for no answer, `refused` for a failure."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, env={**environ, "LC_ALL": "C"}, timeout=seconds,
            check=False,
        )  # fmt: skip
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
