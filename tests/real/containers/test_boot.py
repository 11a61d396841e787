"""Start at boot on a real systemd and a real Docker: on, a reboot before Docker is up, a restart of Docker, off;
the gateway, the canary and a schedule as units."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from spark_tui.base.engine.units import timer_name, unit_name
from tests.pty_app import spark_tui
from tests.real.lab import LabUnavailable, PrivateEngine
from tests.real.lab.serving import fetch_json
from tests.real.lab.support import wait_until
from tests.real.lab.systemd import UserManager

pytestmark = pytest.mark.timeout(300)

NAME = "bootbox"
UNIT = unit_name(NAME)
RECIPE = """\
recipe_version: "2"
model: /models/tiny
runtime: vllm
container: spark-tui/busybox:1
executor_config:
  accelerator_vendor: cpu
command: |
  sh -c 'mkdir -p /www/v1; echo ok > /www/health; echo "{\\"data\\": [{\\"id\\": \\"tiny\\"}]}" > /www/v1/models;
  exec httpd -f -p {port} -h /www'
"""
"""It answers as vLLM does within a second: what is asked here is asked of systemd and Docker."""
SCHEDULE = timer_name(NAME)
GATEWAY, CANARY = unit_name("spark-tui-gateway"), "spark-tui-canary"
SOON = "[Service]\nRestartSec=1\n"


@pytest.fixture
def engine(make_engine: Callable[..., PrivateEngine]) -> PrivateEngine:
    """An engine of this test's own: it is taken away and restarted."""
    return make_engine()


@pytest.fixture
def manager(engine: PrivateEngine, tmp_path: Path) -> Iterator[UserManager]:
    """The user manager of a person with one preset."""
    home = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    presets, model = tmp_path / "config/spark-tui/presets", tmp_path / "store/tiny"
    for folder in (presets, model):
        folder.mkdir(parents=True)
    (presets / f"{NAME}.yaml").write_text(RECIPE)
    (model / "config.json").write_text("{}")
    variables = {**os.environ, **engine.variables(), **home, "HOME": str(tmp_path)}
    try:
        found = UserManager(tmp_path, {**variables, "SPARK_TUI_STORE": str(model.parent)})
        found.start()
    except LabUnavailable as error:
        if os.environ.get("SPARK_TUI_REAL") == "required":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    try:
        yield found
    finally:
        found.purge()


def typed(manager: UserManager, *words: str) -> str:
    """What the program prints, run by the person whose units these are."""
    done = subprocess.run(
        spark_tui(*words), env=manager.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_an_engine_starts_with_the_machine_and_comes_back_after_a_restart_of_docker(
    engine: PrivateEngine, manager: UserManager, free_port: int
) -> None:
    def run(*words: str) -> str:
        return typed(manager, *words)

    def serving(after: str = "") -> str:
        """When the container started, once it runs and started after that time; empty before."""
        if not engine.answers() or NAME not in engine.docker("ps", "--format", "{{.Names}}").split():
            return ""
        started = str(engine.api("GET", f"/containers/{NAME}/json")["State"]["StartedAt"])
        return started if started > after else ""

    def reaches(state: str) -> bool:
        return wait_until(lambda: manager.systemctl("is-active", UNIT) == state, 60)

    run("up", NAME, "--port", str(free_port))
    first = serving()
    status = json.loads(run("boot", "on", NAME, "--json"))
    assert (status["id"], status["state"]) == (NAME, "enabled")
    assert reaches("active")
    assert serving() == first, "what runs already is left alone"
    (manager.own / f"{UNIT}.d").mkdir()
    (manager.own / f"{UNIT}.d/soon.conf").write_text(SOON)

    run("down", NAME)
    assert reaches("inactive"), "an engine that was stopped stays stopped"
    assert not serving()

    manager.stop()
    engine.pause_daemon()
    manager.start()
    assert reaches("active"), "it waits for Docker"
    engine.start()
    assert wait_until(lambda: bool(serving(first)), 60), manager.log()
    second = serving()
    assert wait_until(lambda: json.loads(run("guard", "--status", "--json"))["running"], 30)

    engine.restart()
    assert wait_until(lambda: bool(serving(second)), 90), manager.log()
    assert reaches("active")
    [shown] = [each for each in json.loads(run("ps", "--json")) if each["id"] == NAME]
    assert shown["port"] == free_port

    third = serving()
    assert json.loads(run("boot", "off", NAME, "--json"))["state"] == "off"
    assert not (manager.own / UNIT).exists()
    assert manager.systemctl("is-enabled", UNIT) in ("", "not-found", "disabled")
    assert serving() == third, "the engine keeps running"


def test_the_gateway_is_a_unit_that_comes_back_after_a_kill_and_a_reboot(manager: UserManager, free_port: int) -> None:
    def pid() -> int:
        return int(manager.systemctl("show", GATEWAY, "--property=MainPID", "--value") or 0)

    def answers(other_than: int = 0) -> bool:
        if pid() in (0, other_than):
            return False
        try:
            return "data" in fetch_json(f"http://127.0.0.1:{free_port}/v1/models")
        except OSError:
            return False

    typed(manager, "gateway", "--install", "--port", str(free_port), "--yes")
    assert wait_until(answers, 60), manager.log()
    status = json.loads(typed(manager, "gateway", "status", "--json"))
    assert status["url"].startswith(f"http://127.0.0.1:{free_port}")
    first = pid()
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: answers(first), 60), manager.log()
    manager.stop()
    manager.start()
    assert wait_until(answers, 60), manager.log()
    typed(manager, "gateway", "--uninstall")
    assert pid() == 0
    assert not (manager.own / GATEWAY).exists()


def test_the_canary_is_a_timer_that_runs_it_and_goes_when_told(manager: UserManager) -> None:
    typed(manager, "canary", "--install", "--at", "04:15", "--yes")
    assert manager.systemctl("is-active", f"{CANARY}.timer") == "active"
    assert "04:15" in manager.systemctl("show", f"{CANARY}.timer", "--property=TimersCalendar", "--value")
    manager.systemctl("start", f"{CANARY}.service")  # what the timer starts, now
    assert manager.systemctl("show", f"{CANARY}.service", "--property=Result", "--value") == "success"
    assert json.loads(typed(manager, "canary", "--status", "--json"))["installed"]
    typed(manager, "canary", "--remove")
    assert manager.systemctl("is-active", f"{CANARY}.timer") == "inactive"
    assert not list(manager.own.glob(f"{CANARY}*"))


@pytest.mark.timeout(480)
def test_a_schedule_stops_an_engine_and_makes_up_for_a_start_that_was_missed(
    engine: PrivateEngine, manager: UserManager, free_port: int
) -> None:
    def running() -> bool:
        return NAME in engine.docker("ps", "--format", "{{.Names}}").split()

    def result() -> str:
        return manager.systemctl("show", f"{SCHEDULE}.service", "--property=Result,ActiveState", "--value")

    typed(manager, "up", NAME, "--port", str(free_port))
    first = datetime.now() + timedelta(seconds=75)  # the minute begins between 15 and 75 s from now
    stop, start = (f"{first + timedelta(minutes=each):%H:%M}" for each in (0, 1))
    made = json.loads(typed(manager, "schedule", NAME, "--stop", stop, "--start", start, "--json"))
    assert (made["id"], made["state"], made["next"]) == (NAME, "enabled", "stop")
    assert datetime.fromisoformat(made["next_at"]).astimezone().strftime("%H:%M") == stop
    assert manager.systemctl("is-active", f"{SCHEDULE}.timer") == "active"
    assert running()
    assert wait_until(lambda: not running(), 130), manager.log()  # it gets 30 s to end
    assert wait_until(lambda: json.loads(typed(manager, "schedule", "--json"))[0]["next"] == "start", 30)
    manager.stop()  # the machine is off at that time
    assert wait_until(lambda: datetime.now() > first.replace(second=0) + timedelta(seconds=62), 90)
    assert not running()
    manager.start()
    assert wait_until(running, 60), manager.log()
    assert wait_until(lambda: sorted(result().split()) == ["inactive", "success"], 60), manager.log()
    assert fetch_json(f"http://127.0.0.1:{free_port}/v1/models")
    assert wait_until(lambda: json.loads(typed(manager, "guard", "--status", "--json"))["running"], 30)
    typed(manager, "schedule", NAME, "--remove")
    assert manager.systemctl("is-active", f"{SCHEDULE}.timer") == "inactive"
    assert not list(manager.own.glob(f"{SCHEDULE}*"))
    assert running(), "the engine keeps running"
