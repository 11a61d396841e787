"""`spark-tui doctor`: every check with its remedy, an exit code for scripts, and a report without secrets."""

from __future__ import annotations

from pathlib import Path

from spark_tui.base.secret import Secret
from spark_tui.manage.doctor.adapter import FileDoctorProbe
from tests.cli.world import World

TOKEN = "hf_thisIsNobodysTokenAtAll0123456789"


def world(tmp_path: Path) -> World:
    return World(doctor=FileDoctorProbe({}, tmp_path))


def test_a_docker_that_does_not_answer_fails_and_the_exit_code_says_so(tmp_path: Path) -> None:
    sick = world(tmp_path)
    sick.docker.go_down()
    result = sick.run("doctor", "--json")
    assert result.code == 1
    checks = {check["id"]: check for check in result.json["checks"]}
    assert checks["docker"]["verdict"] == "FAIL"
    assert checks["docker"]["remedy"]
    assert result.json["worst"] == "FAIL"


def test_a_person_reads_groups_verdicts_and_remedies(tmp_path: Path) -> None:
    result = world(tmp_path).run("doctor")
    assert "Docker" in result.out
    assert "fix:" in result.out
    assert result.out.rstrip().endswith("skipped")


def test_the_report_is_private_holds_the_logs_and_no_secret(tmp_path: Path) -> None:
    box = world(tmp_path)
    box.secrets.token = Secret(TOKEN)
    box.docker.add_container("qwen", lines=(f"non-default args: {{'api_key': 'sk-abcdefgh'}} token {TOKEN}", "hello"))
    path = tmp_path / "report.txt"
    box.run("doctor", "--report", str(path))
    text = path.read_text()
    assert "== qwen" in text
    assert "hello" in text
    assert TOKEN not in text
    assert "sk-abcdefgh" not in text
    assert path.stat().st_mode & 0o777 == 0o600
    again = box.run("doctor", "--report", str(path))
    assert again.code == 4
    assert "exists already" in again.err


def test_read_only_starts_no_container(tmp_path: Path) -> None:
    assert world(tmp_path).run("doctor", "--gpu-container", "--read-only").code == 4
