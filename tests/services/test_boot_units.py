"""The units that start engines with the machine, on a systemctl of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from spark_tui.domain.engine.boot import BootState, unit_name
from spark_tui.domain.errors import SparkError
from spark_tui.services.systemd import SystemdBoot
from tests.fakes_host import FakeDropper
from tests.services.programs import asked, program

WORDS = ("up", "qwen", "--service", "--set", "served_model_name=a $HOME 50%")
UNIT = unit_name("qwen")


def boot_of(tmp_path: Path, **environ: str) -> SystemdBoot:
    given = {"PATH": os.environ["PATH"], **environ}
    return SystemdBoot(tmp_path / "home", given, FakeDropper(), root=tmp_path / "root")


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
    boot.enable("qwen", WORDS)
    path = tmp_path / "home/.config/systemd/user" / UNIT
    assert "--service" in path.read_text()
    assert f"systemctl --user enable {UNIT}" in asked(programs)
    assert "loginctl --no-ask-password enable-linger" in asked(programs)
    (found,) = boot.all()
    assert (found.name, found.state, found.system, found.lingers) == ("qwen", BootState.ENABLED, False, False)
    assert boot.disable("qwen")
    assert not path.exists()
    assert not boot.disable("qwen")


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
    boot.enable("qwen", WORDS)
    (found,) = boot.all()
    assert (found.state, found.detail) == (expected, detail)


def test_no_secret_gets_into_a_unit(tmp_path: Path) -> None:
    boot = boot_of(
        tmp_path, HF_TOKEN="hf_abcdefghijklmnopqrstuvwxyz0123", SPARK_TUI_API_KEY="s3cret", DOCKER_HOST="unix:///d.sock"
    )
    text = boot.text("qwen", WORDS)
    assert "DOCKER_HOST=unix:///d.sock" in text
    assert "hf_" not in text
    assert "s3cret" not in text


def test_without_systemd_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SparkError) as caught:
        boot_of(tmp_path, PATH=str(tmp_path)).enable("qwen", WORDS)
    assert "systemd" in caught.value.summary
    assert "spark-tui up" in caught.value.remedy


def test_without_a_user_manager_the_system_unit_is_offered(programs: Path, tmp_path: Path) -> None:
    program(programs, "systemctl", "echo 'Failed to connect to bus: No medium found' >&2; exit 1")
    boot = boot_of(tmp_path)
    with pytest.raises(SparkError) as caught:
        boot.enable("qwen", WORDS)
    assert "--system" in caught.value.remedy
    assert boot.all() == (), "nothing is left that no one could read or remove"
    assert not boot.disable("qwen")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("system", [False, True])
def test_systemd_finds_no_fault_with_the_unit(system: bool, tmp_path: Path) -> None:
    path = tmp_path / UNIT
    path.write_text(boot_of(tmp_path).text("qwen", WORDS, system=system))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    faults = [line for line in done.stderr.splitlines() if UNIT in line and "docker.service" not in line]
    assert not faults
    assert "a $$HOME 50%%" in path.read_text()


def test_a_timer_is_written_with_its_service_and_removed(programs: Path, tmp_path: Path) -> None:
    systemctl(programs)
    boot = boot_of(tmp_path, HF_TOKEN="secret", DOCKER_HOST="unix:///d.sock")
    assert not boot.has_timer("spark-tui-canary")
    boot.install_timer("spark-tui-canary", "Each night", ("canary",), "03:30")
    folder = tmp_path / "home/.config/systemd/user"
    assert "OnCalendar=*-*-* 03:30:00" in (folder / "spark-tui-canary.timer").read_text()
    service = (folder / "spark-tui-canary.service").read_text()
    assert " canary" in service and "Type=oneshot" in service and "secret" not in service
    assert "systemctl --user enable spark-tui-canary.timer" in asked(programs)
    assert boot.has_timer("spark-tui-canary")
    assert boot.remove_timer("spark-tui-canary")
    assert not list(folder.glob("spark-tui-canary*"))
    assert not boot.remove_timer("spark-tui-canary")
