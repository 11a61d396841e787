"""The units of systemd, on a systemctl of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.units import (
    BootState,
    Schedule,
    Unit,
    boot_unit,
    schedule_of,
    schedule_unit,
    timer_name,
    unit_texts,
)
from spark_tui.base.errors import SparkError
from spark_tui.machine.systemd import SystemdUnits
from spark_tui.observe.memory.command import GUARD_SERVICE, UNIT_NAME
from tests.fakes_host import FakeDropper
from tests.programs import asked, program

WORDS = ("up", "qwen", "--service", "--set", "served_model_name=a $HOME 50%")
QWEN = boot_unit("qwen", WORDS)
UNIT = QWEN.name
CANARY = Unit(
    "spark-tui-canary.timer", "Each night", "canary --remove", ("canary",), ("Nice=10",), calendar=("*-*-* 03:30:00",)
)
GUARD = Unit(
    UNIT_NAME, "Guards", "guard --uninstall", ("guard",), GUARD_SERVICE, lingers=False,
    no_manager="start the guard in a shell: spark-tui guard",
)  # fmt: skip


def boot_of(tmp_path: Path, **environ: str) -> SystemdUnits:
    given = {"PATH": os.environ["PATH"], **environ}
    return SystemdUnits(tmp_path / "home", given, FakeDropper(), root=tmp_path / "root")


def text_of(boot: SystemdUnits, unit: Unit = QWEN, *, system: bool = False) -> str:
    return boot.files(unit, system=system)[unit.name]


def systemctl(folder: Path, state: str = "ActiveState=active", enabled: str = "enabled", more: str = "") -> None:
    """Answers `show` for one unit, and everything else with success."""
    answer = f"Id={UNIT}\\nUnitFileState={enabled}\\n{state}\\n{more}\\n"
    program(folder, "systemctl", f'case "$*" in *show*) printf "{answer}";; esac')
    program(folder, "loginctl", "exit 0")


def test_a_unit_is_written_enabled_read_and_removed(programs: Path, tmp_path: Path) -> None:
    systemctl(programs)
    boot = boot_of(tmp_path)
    assert boot.all() == ()
    assert asked(programs) == []
    boot.install(QWEN)
    path = tmp_path / "home/.config/systemd/user" / UNIT
    assert "--service" in path.read_text()
    assert f"systemctl --user enable {UNIT}" in asked(programs)
    assert "loginctl --no-ask-password enable-linger" in asked(programs)
    (found,) = boot.all()
    assert (found.name, found.state, found.system, found.lingers) == ("qwen", BootState.ENABLED, False, False)
    assert boot.remove(UNIT)
    assert not path.exists()
    assert not boot.remove(UNIT)


def test_a_unit_asks_for_more_descriptors_than_the_usual_1024(tmp_path: Path) -> None:
    """A connection to the gateway needs two."""
    lines = text_of(boot_of(tmp_path), boot_unit("gateway", ("gateway",))).splitlines()
    (limit,) = [line.partition("=")[2] for line in lines[lines.index("[Service]") :] if line.startswith("LimitNOFILE")]
    assert int(limit) >= 4096


@pytest.mark.parametrize(
    ("state", "enabled", "more", "expected", "detail"),
    [
        ("ActiveState=failed", "enabled", "Result=exit-code\\nExecMainStatus=4", BootState.FAILED, "exit code 4"),
        ("ActiveState=failed", "enabled", "Result=timeout", BootState.FAILED, "timeout"),
        ("ActiveState=inactive", "enabled", "Result=success", BootState.ENABLED, ""),
        ("ActiveState=active", "disabled", "Result=success", BootState.OFF, ""),
    ],
)
def test_systemd_says_whether_it_is_enabled_or_failed(
    state: str, enabled: str, more: str, expected: BootState, detail: str, programs: Path, tmp_path: Path
) -> None:
    systemctl(programs, state, enabled, more)
    boot = boot_of(tmp_path)
    boot.install(QWEN)
    (found,) = boot.all()
    assert (found.state, found.detail) == (expected, detail)


def test_no_secret_gets_into_a_unit(tmp_path: Path) -> None:
    boot = boot_of(
        tmp_path, HF_TOKEN="hf_abcdefghijklmnopqrstuvwxyz0123", SPARK_TUI_API_KEY="s3cret", DOCKER_HOST="unix:///d.sock"
    )
    text = text_of(boot)
    assert "DOCKER_HOST=unix:///d.sock" in text
    assert "hf_" not in text
    assert "s3cret" not in text


def test_without_systemd_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SparkError) as caught:
        boot_of(tmp_path, PATH=str(tmp_path)).install(QWEN)
    assert "systemd" in caught.value.summary
    assert "spark-tui up" in caught.value.remedy


def test_without_a_user_manager_the_system_unit_is_offered(programs: Path, tmp_path: Path) -> None:
    program(programs, "systemctl", "echo 'Failed to connect to bus: No medium found' >&2; exit 1")
    boot = boot_of(tmp_path)
    with pytest.raises(SparkError) as caught:
        boot.install(QWEN)
    assert "--system" in caught.value.remedy
    assert boot.all() == (), "nothing is left that no one could read or remove"
    assert not boot.remove(UNIT)


def test_the_guard_is_written_enabled_and_started_and_its_own_removed(programs: Path, tmp_path: Path) -> None:
    program(programs, "systemctl", "exit 0")
    units, path = boot_of(tmp_path), tmp_path / "home/.config/systemd/user" / GUARD.name
    assert not units.remove(GUARD.name)
    units.install(GUARD)
    assert path.read_text() == text_of(units, GUARD)
    assert units.remove(GUARD.name, machine=False)
    assert not path.exists()
    assert [line.removeprefix("systemctl --user ") for line in asked(programs)] == [
        "daemon-reload", f"enable {GUARD.name}", f"restart {GUARD.name}", f"disable --now {GUARD.name}",
        "daemon-reload",
    ]  # fmt: skip


def test_without_a_login_session_systemd_s_own_words_are_given(programs: Path, tmp_path: Path) -> None:
    program(programs, "systemctl", "echo 'Failed to connect to bus: No medium found' >&2; exit 1")
    with pytest.raises(SparkError) as caught:
        boot_of(tmp_path).install(GUARD)
    assert caught.value.detail == "Failed to connect to bus: No medium found"
    assert "spark-tui guard" in caught.value.remedy


def test_a_unit_runs_the_given_words_whatever_is_in_them() -> None:
    hostile = ["/opt/my tools/python", "-m", "spark_tui", "100%", 'a"b', "$HOME"]
    own = replace(GUARD, environment=(("DOCKER_HOST", "unix:///x $y"),))
    text = unit_texts(own, hostile, [("DOCKER_HOST", "unix:///other")])[GUARD.name]
    assert 'ExecStart="/opt/my tools/python" -m spark_tui "100%%" "a\\"b" "$$HOME"\n' in text
    assert text.count("DOCKER_HOST") == text.count('Environment="DOCKER_HOST=unix:///x $y"\n') == 1
    assert text.count("[Service]") == 1


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("unit", [QWEN, CANARY, GUARD], ids=["boot", "canary", "guard"])
def test_systemd_finds_no_fault_with_the_unit(unit: Unit, system: bool, tmp_path: Path) -> None:
    files = boot_of(tmp_path).files(unit, system=system)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in files]
    done = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)
    named = [line for line in done.stderr.splitlines() if any(name in line for name in files)]
    assert not [line for line in named if "docker.service" not in line]
    assert unit is not QWEN or "a $$HOME 50%%" in files[UNIT]


def test_a_timer_is_written_with_its_service_and_removed(programs: Path, tmp_path: Path) -> None:
    systemctl(programs)
    boot = boot_of(tmp_path, HF_TOKEN="secret", DOCKER_HOST="unix:///d.sock")
    assert not boot.path(CANARY.name).exists()
    boot.install(CANARY)
    folder = tmp_path / "home/.config/systemd/user"
    assert "OnCalendar=*-*-* 03:30:00" in (folder / "spark-tui-canary.timer").read_text()
    service = (folder / "spark-tui-canary.service").read_text()
    assert " canary" in service and "Type=oneshot" in service and "secret" not in service
    assert "systemctl --user enable spark-tui-canary.timer" in asked(programs)
    assert boot.path(CANARY.name).exists()
    assert boot.remove(CANARY.name)
    assert not list(folder.glob("spark-tui-canary*"))
    assert not boot.remove(CANARY.name)


# --- schedules --------------------------------------------------------------------------------------------

TIMER, NIGHT = timer_name("qwen"), Schedule("23:00", "07:00", ("mon", "fri"), 5.0)
HOSTILE = ("schedule", 'a"b $HOME 50% \\', "--apply")


def set_schedule(boot: SystemdUnits, schedule: Schedule = NIGHT, *, system: bool = False) -> None:
    boot.install(replace(schedule_unit("qwen", schedule), words=HOSTILE), system=system)


def answers_for_a_timer(folder: Path) -> None:
    timer = f"Id={TIMER}.timer\\nUnitFileState=enabled\\nNextElapseUSecRealtime=Thu 2026-11-26 23:00:00 CET\\n"
    service = f"Id={TIMER}.service\\nActiveState=failed\\nResult=exit-code\\nExecMainStatus=4\\n"
    program(folder, "systemctl", f'case "$*" in *show*) printf "{service}\\n{timer}"; echo "TZ=$TZ" >&2;; esac')
    program(folder, "loginctl", "exit 0")


def test_a_schedule_is_written_read_changed_and_removed(programs: Path, tmp_path: Path) -> None:
    answers_for_a_timer(programs)
    boot, folder = boot_of(tmp_path, HF_TOKEN="secret", TZ="Asia/Tokyo"), tmp_path / "home/.config/systemd/user"
    assert boot.schedules() == ()
    assert asked(programs) == []
    set_schedule(boot)
    assert f"systemctl --user enable {TIMER}.timer" in asked(programs)
    (found,) = boot.schedules()
    assert (found.name, found.schedule, found.next) == ("qwen", NIGHT, datetime(2026, 11, 26, 23))
    assert (found.unit.state, found.unit.detail) == (BootState.FAILED, "exit code 4")
    service = (folder / f"{TIMER}.service").read_text()
    assert "KillMode=process" in service, "the guard of a launch lives on"
    assert "secret" not in service
    set_schedule(boot, schedule_of("-06:00"))
    assert [each.schedule.text for each in boot.schedules()] == ["starts 06:00"]
    (folder / "spark-tui-schedule-other.timer").write_text("[Timer]\n")  # not ours
    assert len(boot.schedules()) == 1
    assert boot.all() == (), "it does not start at boot"
    assert boot.remove(f"{TIMER}.timer")
    assert not list(folder.glob(f"{TIMER}*"))
    assert not boot.remove(f"{TIMER}.timer")


def test_units_that_earlier_versions_wrote_are_read_and_removed(programs: Path, tmp_path: Path) -> None:
    systemctl(programs)
    boot, folder = boot_of(tmp_path), tmp_path / "home/.config/systemd/user"
    folder.mkdir(parents=True)
    (folder / UNIT).write_text("# Made by spark-tui (spark-tui boot off qwen removes it)\n[Service]\nExecStart=a\n")
    (folder / f"{TIMER}.service").write_text("# Made by spark-tui: qwen stops 23:00\n[Service]\nExecStart=a\n")
    data = '{"stop": "23:00", "start": "07:00", "days": ["mon", "fri"], "since": 5.0}'
    (folder / f"{TIMER}.timer").write_text(f"# Made by spark-tui: qwen\n[Timer]\n\n[X-Spark-TUI]\nSchedule={data}\n")
    (folder / CANARY.name).write_text("# Made by spark-tui: Measures\n[Timer]\nOnCalendar=*-*-* 03:30:00\n")
    (folder / "spark-tui-canary.service").write_text("[Service]\nExecStart=a\n")
    (folder / GUARD.name).write_text("# Made by spark-tui (spark-tui guard --uninstall removes it)\n[Unit]\n")
    assert [each.name for each in boot.all()] == ["qwen"]
    assert [each.schedule for each in boot.schedules()] == [NIGHT]
    assert all(boot.remove(each) for each in (UNIT, f"{TIMER}.timer", CANARY.name, GUARD.name))
    assert not list(folder.iterdir())


def test_a_schedule_of_the_machine_replaces_that_of_the_person(programs: Path, tmp_path: Path) -> None:
    answers_for_a_timer(programs)
    dropper = FakeDropper()
    boot = SystemdUnits(tmp_path / "home", {"PATH": os.environ["PATH"]}, dropper, root=tmp_path / "root")
    set_schedule(boot)
    set_schedule(boot, system=True)
    assert not list((tmp_path / "home/.config/systemd/user").glob(f"{TIMER}*"))
    written = {Path(path).name: text for path, text in dropper.files.items()}
    assert list(written) == [f"{TIMER}.service", f"{TIMER}.timer"]
    assert "\nUser=" in written[f"{TIMER}.service"]
    assert dropper.terminal[-1][-3:] == ("enable", "--now", f"{TIMER}.timer")


@pytest.mark.parametrize("fails", ["daemon-reload", "enable", "restart"])
def test_a_schedule_that_fails_leaves_what_was_there_before(fails: str, programs: Path, tmp_path: Path) -> None:
    answers_for_a_timer(programs)
    boot, folder = boot_of(tmp_path), tmp_path / "home/.config/systemd/user"
    working = (programs / "systemctl").read_text()
    program(programs, "systemctl", f'case "$*" in *{fails}*) exit 1;; esac')
    with pytest.raises(SparkError):
        set_schedule(boot)
    assert not list(folder.glob("*")), "neither a timer nor its service"
    (programs / "systemctl").write_text(working)
    set_schedule(boot)
    before = {path.name: path.read_text() for path in folder.iterdir()}
    program(programs, "systemctl", f'case "$*" in *{fails}*) exit 1;; esac')
    with pytest.raises(SparkError):
        set_schedule(boot, schedule_of("-06:00"))
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


def test_a_schedule_of_the_machine_that_fails_leaves_nothing_and_keeps_that_of_the_person(
    programs: Path, tmp_path: Path
) -> None:
    answers_for_a_timer(programs)
    dropper = FakeDropper(code=1)
    boot = SystemdUnits(tmp_path / "home", {"PATH": os.environ["PATH"]}, dropper, root=tmp_path / "root")
    set_schedule(boot)
    with pytest.raises(SparkError):
        set_schedule(boot, system=True)
    assert dropper.files == {}
    assert [each.unit.system for each in boot.schedules()] == [False]


def test_without_systemd_a_schedule_names_the_way_by_cron(tmp_path: Path) -> None:
    with pytest.raises(SparkError) as caught:
        set_schedule(boot_of(tmp_path, PATH=str(tmp_path)))
    assert "systemd" in caught.value.summary
    assert "cron" in caught.value.remedy
    assert boot_of(tmp_path, PATH=str(tmp_path)).schedules() == ()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("line", ["23:00-07:00", "18:30-08:05 mon-fri", "-00:00 sat,sun", "23:59- tue"])
def test_systemd_finds_no_fault_with_a_schedule_and_means_the_same_times(
    line: str, programs: Path, tmp_path: Path
) -> None:
    answers_for_a_timer(programs)
    set_schedule(boot_of(tmp_path), schedule_of(line))
    folder, schedule = tmp_path / "home/.config/systemd/user", schedule_of(line)
    files = [str(folder / f"{TIMER}.{suffix}") for suffix in ("timer", "service")]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    assert not [each for each in done.stderr.splitlines() if TIMER in each or "X-Spark" in each]
    assert 'schedule "a\\"b $$HOME 50%% \\\\" --apply' in Path(files[1]).read_text()
    now = datetime.now()
    done = subprocess.run(
        ["systemd-analyze", "calendar", *schedule.calendar], capture_output=True, text=True, check=True,
        env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    elapses = [each.partition(":")[2] for each in done.stdout.splitlines() if "Next elapse:" in each]
    times = sorted(datetime.strptime(each.strip().rpartition(" ")[0], "%a %Y-%m-%d %H:%M:%S") for each in elapses)
    assert times[0] == min(at for at, _ in schedule.times(now) if at > now)
