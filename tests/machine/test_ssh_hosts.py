"""Another box through the ssh program: what it is called with, how long it may take, what is left of it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from spark_tui.base.errors import ExitCode, SparkError, UnreachableError
from spark_tui.base.remote import HostNotReady, HostUnreachable, RemoteHost
from spark_tui.machine.nodes import Hosts
from spark_tui.machine.ssh import SshHosts
from tests.fake_ssh import FakeSsh

LAB = RemoteHost("lab", "nv@spark-2")
PATIENCE = 60.0


@pytest.fixture
def ssh(tmp_path: Path) -> FakeSsh:
    return FakeSsh(tmp_path / "ssh")


def shell(ssh: FakeSsh, seconds: float = PATIENCE) -> SshHosts:
    return SshHosts(ssh.environment, seconds)


async def test_a_question_never_asks_the_person_anything(ssh: FakeSsh) -> None:
    ssh.answer(LAB.destination, "out\n", err="err\n", code=7)
    ended = await shell(ssh).ask(LAB, ("status", "--json"))
    assert (ended.code, ended.out, ended.err) == (7, "out\n", "err\n")
    [call] = ssh.calls
    assert call[-3:] == ["nv@spark-2", "--", "spark-tui status --json"]
    assert call[1:5] == ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]
    assert "-t" not in call


async def test_one_that_hangs_is_ended_with_all_its_children(ssh: FakeSsh, tmp_path: Path) -> None:
    ssh.answer(LAB.destination, act=f"sleep 987 & echo $! > {tmp_path}/child; exec sleep 987")
    with pytest.raises(HostUnreachable, match="has not answered for 2 s"):
        await shell(ssh, 2.0).ask(LAB, ())
    await until_gone(int((tmp_path / "child").read_text()))


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)


FLOODS = {
    "a line": "head -c 100000000 /dev/zero",
    "without an end": "cat /dev/zero",
    "of lines": "yes",
    "of errors": "cat /dev/zero >&2",
}


@pytest.mark.parametrize("act", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_is_an_error_and_ended(ssh: FakeSsh, tmp_path: Path, act: str) -> None:
    ssh.answer(LAB.destination, act=f"sleep 987 & echo $! > {tmp_path}/child; {act}")
    with pytest.raises(HostNotReady) as caught:
        await shell(ssh).ask(LAB, ())
    assert "lab" in caught.value.summary
    assert LAB.destination in caught.value.remedy
    await until_gone(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("act", [FLOODS["a line"], FLOODS["of errors"]], ids=["a line", "errors"])
async def test_a_flood_is_an_error_also_where_lines_are_taken_one_by_one(ssh: FakeSsh, act: str) -> None:
    ssh.answer(LAB.destination, act=f"echo first; {act}")
    lines: list[str] = []
    with pytest.raises(HostNotReady):
        await shell(ssh).ask(LAB, (), on_line=lines.append)
    assert lines == ["first\n"]


@pytest.mark.parametrize("leave", ["", "setsid "], ids=["its session", "another session"])
async def test_what_ssh_leaves_behind_holds_up_nothing(ssh: FakeSsh, tmp_path: Path, leave: str) -> None:
    ssh.answer(
        LAB.destination,
        "out\n",
        act=f"{leave}sh -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/child; exec sleep 987' & "
        f"while [ ! -e {tmp_path}/child ]; do sleep 0.02; done",
    )
    try:
        async with asyncio.timeout(PATIENCE / 2):
            ended = await shell(ssh).ask(LAB, ())
        assert (ended.code, ended.out) == (0, "out\n")
        if not leave:
            await until_gone(int((tmp_path / "child").read_text()))
    finally:
        if leave:
            os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


async def test_without_ssh_the_person_is_told_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="openssh-client"):
        await SshHosts({"PATH": str(tmp_path)}).ask(LAB, ())


async def test_all_are_asked_at_once_and_a_slow_one_holds_up_nobody(ssh: FakeSsh, tmp_path: Path) -> None:
    fast, slow = RemoteHost("fast", "nv@fast"), RemoteHost("slow", "nv@slow")
    ssh.serves(fast.destination)
    ssh.answer(slow.destination, act=f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    views = []
    async for view in Hosts((slow, fast), shell(ssh)).look():
        views.append(view)
        (tmp_path / "go").touch()
    assert [view.host.name for view in views] == ["fast", "slow"]
    assert views[0].status is not None
    assert isinstance(views[1].problem, HostNotReady)


@pytest.mark.parametrize(
    ("code", "says"), [(255, "ssh did not connect to lab"), (127, "not installed"), (1, "exit code 1")]
)
async def test_a_control_centre_that_did_not_open_is_told(ssh: FakeSsh, code: int, says: str) -> None:
    ssh.answer(LAB.destination, code=code)
    with pytest.raises(SparkError) as caught:
        await Hosts((LAB,), shell(ssh)).open(LAB)
    assert says in str(caught.value)


async def test_read_only_goes_along(ssh: FakeSsh) -> None:
    ssh.answer(LAB.destination, code=int(ExitCode.INTERRUPTED))
    await Hosts((LAB,), shell(ssh), read_only=True).open(LAB)
    assert ssh.calls == [["-t", "nv@spark-2", "--", "spark-tui --read-only"]]
