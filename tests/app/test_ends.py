"""What ends a command from outside: it puts things right as after Ctrl-C, and then ends as the sender expects."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, sys
from pathlib import Path
from types import SimpleNamespace
from spark_tui.cli.session import Session, Streams

restored, closed = Path(sys.argv[1]), Path(sys.argv[2])

async def close():
    closed.touch()

async def work(context):
    try:
        print("under way", flush=True)
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0)  # what is restored takes its time
        assert not closed.exists()
        restored.touch()

context = SimpleNamespace(demo=False, close=close, ports=SimpleNamespace(made=set))
with Session(Streams(None, None, None, {}), lambda *_: context) as session:
    session.run(work)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_restores_what_it_promised_when_a_signal_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    restored, closed = tmp_path / "restored", tmp_path / "closed"
    argv = [sys.executable, "-c", PROGRAM, str(restored), str(closed)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "under way\n"
        command.send_signal(number)
        assert command.wait(60) == -number
    assert restored.exists()
    assert closed.exists()


def test_a_signal_that_the_caller_has_ignored_is_ignored(tmp_path: Path) -> None:
    """As under nohup."""
    restored, closed = tmp_path / "restored", tmp_path / "closed"
    program = PROGRAM.replace("sleep(60)", "to_thread(sys.stdin.readline)")
    argv = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", program, str(restored), str(closed)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdin is not None and command.stdout is not None
        assert command.stdout.readline() == "under way\n"
        command.send_signal(signal.SIGHUP)
        command.stdin.write("go on\n")
        command.stdin.flush()
        assert command.wait(60) == 0
