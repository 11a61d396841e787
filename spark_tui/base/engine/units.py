"""Whether an engine starts with the machine or at set times: the units of systemd, read and written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from spark_tui.base.errors import UsageError
from spark_tui.base.secret import holds_secret, is_secret_name
from spark_tui.base.untrusted import load_json

_PREFIX: Final = "spark-tui-boot-"
_SUFFIX: Final = ".service"
_BARE = re.compile(r"[A-Za-z0-9_./:=@,+-]+")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
RESTART_SECONDS: Final = 30
START_LIMITS: Final = ("StartLimitIntervalSec=7200", "StartLimitBurst=3")
"""A restart loop leaks GPU mappings and stalls a Spark after some dozens of rounds (eugr/spark-vllm-docker#257)."""
_REFUSED_CODES: Final = "2 4"
"""Exit codes after which another try would end the same way: a usage error, and a check that refuses."""
_RETRIES: Final = (
    "KillMode=process",  # the guard that a launch started continues
    "Restart=on-failure",
    f"RestartSec={RESTART_SECONDS}",
    f"RestartPreventExitStatus={_REFUSED_CODES}",
)


class BootState(StrEnum):
    """Whether an engine starts with the machine."""

    OFF = "off"
    ENABLED = "enabled"
    FAILED = "failed"


class BootStatus(Struct, frozen=True):
    """What systemd says of one engine's unit. `system`: a unit of the machine, not of the person. `lingers`: the
    person's units start with the machine; else at the first login."""

    name: str
    state: BootState = BootState.OFF
    unit: str = ""
    detail: str = ""
    system: bool = False
    lingers: bool = True

    @property
    def on(self) -> bool:
        return self.state is not BootState.OFF


def unit_name(engine: str) -> str:
    """`spark-tui-boot-qwen3.6-35b.service`. Names of containers are plain enough for it."""
    return f"{_PREFIX}{engine}{_SUFFIX}"


def engine_of(unit: str) -> str:
    """The engine that a unit starts; empty for other units."""
    found = unit.startswith(_PREFIX) and unit.endswith(_SUFFIX)
    return unit[len(_PREFIX) : -len(_SUFFIX)] if found else ""


def read_status(engine: str, properties: Mapping[str, str], *, system: bool, lingers: bool) -> BootStatus:
    """From `systemctl show`: a failed unit is enabled too, and says so."""
    failed = properties.get("ActiveState") == "failed"
    enabled = properties.get("UnitFileState", "").startswith("enabled")
    state = BootState.FAILED if failed else BootState.ENABLED if enabled else BootState.OFF
    result, code = properties.get("Result", ""), properties.get("ExecMainStatus", "")
    detail = "" if not failed else f"exit code {code}" if result == "exit-code" else result
    return BootStatus(engine, state, unit_name(engine), detail, system, lingers or system)


# --- files of units -------------------------------------------------------------------------------------


class Unit(Struct, frozen=True):
    """A unit that runs spark-tui with these words: while the machine runs, or once at each time of `calendar`
    (systemd.time(7)) or, where the machine was off, when it is on again. `name` is that of what is enabled, a timer for
    a calendar; `undo` is the command that removes it.

    `service` are lines of its service, `environment` variables beside ours. `data` is kept in a timer, whose times are
    exact then. `lingers`: the person's units start with the machine from then on. `no_systemd` and `no_manager` say
    what a person does without a systemd, and without a user manager.
    """

    name: str
    title: str
    undo: str
    words: tuple[str, ...]
    service: tuple[str, ...] = _RETRIES
    environment: tuple[tuple[str, str], ...] = ()
    calendar: tuple[str, ...] = ()
    data: str = ""
    lingers: bool = True
    no_systemd: str = "Start engines from its own init: spark-tui up PRESET --service"
    no_manager: str = "use a system unit: the same command with --system"


def boot_unit(engine: str, words: Sequence[str]) -> Unit:
    """The command waits for Docker by itself: a person's unit cannot be ordered after one of the machine. It stays as
    long as the engine, and fails when Docker goes away, so that systemd starts it again. Only the command is ended with
    the unit: the engine, and the guard that the launch started, go on."""
    more = "LimitNOFILE=8192", *_RETRIES, "SuccessExitStatus=130"
    return Unit(unit_name(engine), f"Starts {engine} with the machine", f"boot off {engine}", tuple(words), more)


def unit_texts(
    unit: Unit, command: Sequence[str], environment: Iterable[tuple[str, str]], *, user: str = ""
) -> dict[str, str]:
    """Its files by name, the enabled one last: the person's own, or with `user` of the machine. A key or token never
    gets into them."""
    head = (f"# Made by spark-tui (spark-tui {unit.undo} removes it)", "[Unit]", f"Description={unit.title}")
    wanted = ("", "[Install]", f"WantedBy={'multi-user' if user else 'default'}.target")
    service = (
        *head,
        *(("Wants=network-online.target", "After=network-online.target docker.service") if user else ()),
        *(START_LIMITS if set(_RETRIES) <= set(unit.service) else ()),
        "",
        "[Service]",
        f"Type={'oneshot' if unit.calendar else 'exec'}",
        *((f"User={user}",) if user else ()),
        *(
            f"Environment={word(f'{name}={value}').replace('$$', '$')}"  # systemd.exec(5): there `$` is a letter
            for name, value in {**dict(environment), **dict(unit.environment)}.items()
            if not (is_secret_name(name) or holds_secret(value))
        ),
        f"ExecStart={' '.join(map(word, command))}",
        *unit.service,
        *(() if unit.calendar else wanted),
    )
    timer = (
        *head,
        "",
        "[Timer]",
        *(f"OnCalendar={each}" for each in unit.calendar),
        "Persistent=true",
        "AccuracySec=1s" if unit.data else "RandomizedDelaySec=600",
        "",
        "[Install]",
        "WantedBy=timers.target",
        *(("", "[X-Spark-TUI]", unit.data) if unit.data else ()),
    )
    files = {beside(unit.name)[-1]: service} | ({unit.name: timer} if unit.calendar else {})
    return {name: "".join(f"{line}\n" for line in lines) for name, lines in files.items()}


def beside(unit: str) -> tuple[str, ...]:
    """The files of a unit: a timer has its service beside it."""
    return (unit, unit.removesuffix(".timer") + _SUFFIX) if unit.endswith(".timer") else (unit,)


def word(text: str) -> str:
    """One word of a unit's command line: quoted where needed, `%` (specifiers) and `$` (variables) doubled."""
    text = text.replace("%", "%%").replace("$", "$$")
    if "\0" in text:
        raise UsageError("A word of the command has a NUL character.", "Remove it: no unit can carry it.")
    if _BARE.fullmatch(text):
        return text
    plain = (f"\\x{ord(char):02x}" if ord(char) < 0x20 or ord(char) == 0x7F else char for char in text)
    return '"' + "".join(_ESCAPES.get(char, shown) for char, shown in zip(text, plain, strict=True)) + '"'


# --- schedule --------------------------------------------------------------------------------------------


DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SCHEDULE_PREFIX: Final = "spark-tui-schedule-"
_TIMER: Final = re.compile(re.escape(_SCHEDULE_PREFIX) + r"([A-Za-z0-9][A-Za-z0-9_.-]*)\.timer")
_TIME: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_DATA: Final = re.compile(r"^Schedule=(.*)$", re.MULTILINE)


class Schedule(Struct, frozen=True):
    """Times of day by the machine's clock (`23:00`, or empty) and days, set at `since` (epoch seconds)."""

    stop: str
    start: str
    days: tuple[str, ...] = DAYS
    since: float = 0.0

    @property
    def calendar(self) -> tuple[str, ...]:
        """As systemd.time(7) has it."""
        days = "" if self.days == DAYS else f"{','.join(self.days)} "
        return tuple(f"{days}*-*-* {time}:00" for time in (self.stop, self.start) if time)

    @property
    def text(self) -> str:
        """`stops 23:00, starts 07:00, mon-fri`."""
        first, last = DAYS.index(self.days[0]), DAYS.index(self.days[-1])
        run = len(self.days) > 2 and last - first + 1 == len(self.days)
        days = "" if self.days == DAYS else f"{self.days[0]}-{self.days[-1]}" if run else ",".join(self.days)
        times = (f"stops {self.stop}" if self.stop else "", f"starts {self.start}" if self.start else "")
        return ", ".join(filter(None, (*times, days)))

    def due(self, now: datetime) -> str:
        """What its last time up to `now` (local, naive) asks for, stop or start; empty where it was set later."""
        at, due = max(each for each in self.times(now) if each[0] <= now)
        return due if at.timestamp() >= self.since else ""

    def times(self, now: datetime) -> Iterator[tuple[datetime, str]]:
        """Those of the week before and the week after, with what they ask for."""
        for day in (now.date() + timedelta(days=each) for each in range(-7, 8)):
            for time, due in ((self.stop, "stop"), (self.start, "start")):
                if time and DAYS[day.weekday()] in self.days:
                    yield datetime.fromisoformat(f"{day}T{time}"), due


class ScheduleStatus(Struct, frozen=True):
    """What systemd says of one engine's timer. `unit` is the state of what it starts; `next` is local and naive, None
    where the timer does not run."""

    name: str
    schedule: Schedule
    unit: BootStatus
    next: datetime | None = None


def schedule_of(text: str) -> Schedule:
    """From one line, `23:00-07:00 mon-fri`; `23:00-` only stops. Raises UsageError."""
    times, _, days = text.strip().partition(" ")
    stop, start = map(_time, (times.partition("-")[0], times.partition("-")[2]))
    if stop == start:
        raise UsageError("A schedule needs a time to stop or to start, and two that differ.", "Such as 23:00 and 07:00")
    chosen: set[str] = set()
    for part in filter(None, re.split(r"[,\s]+", days.lower().replace("daily", ""))):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise UsageError(f"{part!r} is no day.", f"Use {', '.join(DAYS)}, or ranges: mon-fri")
        begin = DAYS.index(first)
        chosen |= {DAYS[(begin + each) % 7] for each in range((DAYS.index(last or first) - begin) % 7 + 1)}
    return Schedule(stop, start, tuple(day for day in DAYS if day in chosen) or DAYS)


def _time(text: str) -> str:
    found = _TIME.fullmatch(text)
    if found is None and text:
        raise UsageError(f"{text!r} is no time of day.", "For example: 23:00")
    return f"{int(found[1]):02}:{found[2]}" if found else ""


# --- units ------------------------------------------------------------------------------------------------


def timer_name(engine: str) -> str:
    """Of the timer and its service, without the suffix."""
    return _SCHEDULE_PREFIX + engine


def scheduled_engine(unit: str) -> str:
    """The engine of a timer's file; empty for other files."""
    found = _TIMER.fullmatch(unit)
    return found[1] if found else ""


def schedule_unit(engine: str, schedule: Schedule) -> Unit:
    """Its timer keeps the schedule, in a section that systemd ignores: a line of JSON in ASCII."""
    return Unit(
        f"{timer_name(engine)}.timer",
        f"{engine} {schedule.text}",
        f"schedule {engine} --remove",
        ("schedule", engine, "--apply"),
        calendar=schedule.calendar,
        data=f"Schedule={json.dumps(asdict(schedule))}",
        no_systemd="Use cron (crontab -e): spark-tui down NAME, spark-tui up PRESET",
    )


def read_timer(
    engine: str, text: str, shown: Mapping[str, Mapping[str, str]], *, system: bool, lingers: bool
) -> ScheduleStatus | None:
    """From the timer's file and from `systemctl show` of it and of its service; None for a file that is not ours."""
    name = timer_name(engine)
    timer, service = (shown.get(f"{name}.{suffix}", {}) for suffix in ("timer", "service"))
    try:
        data = load_json(found[1]) if (found := _DATA.search(text)) else {}
        known = schedule_of(f"{data['stop']}-{data['start']} {','.join(data['days'])}")
        known = replace(known, since=float(data["since"]))
    except (ValueError, KeyError, TypeError, UsageError):
        return None
    status = read_status(
        engine, {**service, "UnitFileState": timer.get("UnitFileState", "")}, system=system, lingers=lingers
    )
    when = timer.get("NextElapseUSecRealtime", "").rpartition(" ")[0]  # `Thu 2026-11-26 23:00:00 CET`
    try:
        return ScheduleStatus(engine, known, status, datetime.strptime(when, "%a %Y-%m-%d %H:%M:%S"))
    except ValueError:
        return ScheduleStatus(engine, known, status)
