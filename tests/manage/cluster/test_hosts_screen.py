"""Other boxes in the control centre: what each serves, and lending the terminal to ssh."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_tui.app.control_centre import SparkApp
from spark_tui.app.wiring import build_demo
from spark_tui.base.context import Context
from spark_tui.base.remote import Hosts, read_hosts
from spark_tui.machine.ssh import SshHosts
from spark_tui.manage.cluster.screen.hosts import HOW, HostsDialog
from tests.fake_ssh import FakeSsh
from tests.fakes_ports import Ports
from tests.kit import Kit
from tests.pty_app import PtyApp, spark_tui
from tests.tui.kit import SIZES, seen

PATIENCE = 60.0
HOSTS = read_hosts("attic=nv@10.0.0.7 lab=nv@spark-2")
INTERACTIVE = 'case "$2" in *status*) ;; *) echo "the control centre of spark-2"; read key; : > out;; esac'


class HostKit(Kit):
    """Fakes, and hosts behind the fake ssh."""

    def __init__(self, ssh: FakeSsh, hosts: Hosts = HOSTS) -> None:
        self._ssh, self._hosts = ssh, hosts
        super().__init__()

    def opened(self) -> Context:
        """See the kit."""
        base = super().opened()
        assert isinstance(base.ports, Ports)
        ports = base.ports.changed(remote_shell=SshHosts(self._ssh.environment, PATIENCE))
        return Context(replace(base.settings, hosts=self._hosts), ports, base.paths)


@pytest.fixture
def ssh(tmp_path: Path) -> FakeSsh:
    fake = FakeSsh(tmp_path / "ssh")
    fake.serves("nv@spark-2")
    fake.answer("nv@10.0.0.7", err="\x1b[31mnv@10.0.0.7: Permission denied (publickey,password).\r\n", code=255)
    return fake


async def test_each_host_is_shown_with_what_it_serves_or_what_to_do(ssh: FakeSsh) -> None:
    async with seen(HostKit(ssh), SIZES[0], "H") as sight:
        for size in SIZES:
            await sight.resized(size)
            await sight.until_seen("60.0 GiB", "qwen3 :8000", "is unreachable", "ssh-copy-id nv@10.0.0.7")
            await sight.press("down")
            await sight.until_seen("60.0 of 119.7 GiB", "qwen3 :8000; 1 not serving", "Enter open")
            assert "\x1b" not in sight.text
            await sight.press("up")
        await sight.press("down", "enter")  # a terminal that cannot be lent to ssh: the command instead
        await sight.until_seen("spark-tui --host lab")
        assert not any("-t" in call for call in ssh.calls)


async def test_a_host_is_asked_again_on_r(ssh: FakeSsh) -> None:
    async with seen(HostKit(ssh), (80, 24), "H") as sight:
        await sight.until_seen("is unreachable")
        ssh.serves("nv@10.0.0.7", memory=None, memory_reason="/proc is gone", engines=[])
        await sight.press("ctrl+r")
        await sight.until_seen("serves     none", "n/a: /proc is gone")


async def test_without_hosts_it_says_how_to_name_one(ssh: FakeSsh) -> None:
    async with seen(HostKit(ssh, ()), (80, 24), "H") as sight:
        await sight.until_seen("No other hosts configured", HOW)
        await sight.press("enter", "ctrl+r", "escape")
        assert not isinstance(sight.app.screen, HostsDialog)


@pytest.fixture
def environ(ssh: FakeSsh, tmp_path: Path) -> dict[str, str]:
    ssh.hosts('attic = "nv@10.0.0.7"\nlab = "nv@spark-2"')
    folders = {f"XDG_{name}_HOME": "" for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    return {**ssh.environment, **folders, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}


@pytest.mark.timeout(300)
def test_the_terminal_is_lent_untouched_and_comes_back(ssh: FakeSsh, environ: dict[str, str]) -> None:
    ssh.serves("nv@spark-2", act=INTERACTIVE)
    with PtyApp(spark_tui(), columns=80, rows=24, env=environ) as app:
        app.wait_for("1 Home", "docker UNREACHABLE", timeout=PATIENCE)
        app.send("H")
        app.wait_for("qwen3 :8000", "is unreachable", timeout=PATIENCE)
        app.send("down", "enter")
        app.wait_for("the control centre of spark-2", timeout=PATIENCE)
        before = app.bytes_read
        time.sleep(3)  # nothing can be awaited: that no figure of ours is painted over the other box's screen
        assert app.bytes_read == before
        app.send("q", "enter")
        app.wait_for("1 Home", "Welcome", "docker UNREACHABLE", timeout=PATIENCE)
        app.wait_gone("the control centre of spark-2", PATIENCE)
        app.send("H")
        app.wait_for("is unreachable", timeout=PATIENCE)
        app.send("enter")
        app.wait_for("ssh did not connect to attic", "1 Home", timeout=PATIENCE)
        app.send("q")
        assert app.wait_end(PATIENCE) == 0
    assert [call for call in ssh.calls if call[0] == "-t"] == [
        ["-t", "nv@10.0.0.7", "--", "spark-tui"],
        ["-t", "nv@spark-2", "--", "spark-tui"],
    ]


async def test_the_demo_says_that_it_has_no_other_hosts() -> None:
    app = SparkApp(build_demo())
    async with app.run_test() as pilot:
        await pilot.press("H")
        await pilot.pause(0.5)
        assert [notice.message for notice in app._notifications] == [
            "Remote hosts are not available in the demo.\nStart without --demo."
        ]


@pytest.mark.timeout(300)
def test_where_no_shell_waits_ctrl_z_stops_nothing(environ: dict[str, str]) -> None:
    with PtyApp(spark_tui("--demo"), env=environ) as app:  # leads its session, as under `ssh -t HOST spark-tui`
        app.wait_for("1 Home", "qwen3.6-35b", timeout=PATIENCE)
        app.send("ctrl+z")
        app.wait_for("No shell to suspend to", timeout=PATIENCE)
        app.send("q")
        assert app.wait_end(PATIENCE) == 0
