"""tune: what it asks, prints and writes, its exit codes, and what is left of it when it is interrupted."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from spark_tui.app.main import run
from spark_tui.cli.session import Streams
from tests.cli.world import Result, Stream
from tests.manage.tune.kit import TuneKit

QUICK = ("--for", "throughput", "--input", "32", "--output", "8")


class Machine(TuneKit):
    """The same behind the command line. `interrupted` sends a real SIGINT with the first trial of such a value."""

    def command_line(self, *arguments: str, keyboard: str = "", tty: bool = True) -> Result:
        out, err = Stream(), Stream()
        code = run(arguments, Streams(Stream(keyboard, tty=tty), out, err, {}), self.for_command)
        return Result(code, out.getvalue(), err.getvalue())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_search_prints_its_trials_and_saves_the_winner(machine: Machine) -> None:
    done = machine.command_line("tune", "qwen", *QUICK, "--yes", "--save", "qwen-fast", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert (found["settings"]["max_num_seqs"], found["goal"], found["finished"]) == ("16", "throughput", True)
    assert found["speed"]["low"] <= found["speed"]["ratio"] <= found["speed"]["high"]
    assert {trial["outcome"] for trial in found["trials"]} <= {"better", "worse", "same", "failed", "refused"}
    assert Path(found["saved"]).name == "qwen-fast.yaml"
    assert machine.running() == []
    again = machine.command_line("tune", "qwen", "--resume", "--save", "qwen-copy")
    assert again.code == 0 and "max_num_seqs=16" in again.out, "nothing is measured again"
    assert (machine.presets.load().get("qwen-copy")) is not None


def test_it_asks_first_and_a_no_changes_nothing(machine: Machine) -> None:
    assert machine.command_line("tune", "qwen", *QUICK, keyboard="n\n").code == 4
    assert machine.command_line("tune", "qwen", *QUICK, tty=False).code == 4
    assert machine.docker.created == []


def test_interrupted_it_names_the_way_on(machine: Machine) -> None:
    plain = machine.speed

    def interrupt(words: str) -> float:
        if "--max-num-seqs 16" in words:
            machine.speed = plain  # type: ignore[method-assign]
            signal.raise_signal(signal.SIGINT)
        return plain(words)

    machine.speed = interrupt  # type: ignore[method-assign]
    stopped = machine.command_line("tune", "qwen", *QUICK, "--yes")
    assert stopped.code == 130
    assert "--resume" in stopped.err and "--discard" in stopped.err
    assert machine.running() == []
    assert machine.command_line("tune", "qwen", *QUICK, "--yes").code == 4
    done = machine.command_line("tune", "qwen", "--resume", "--json")
    assert (done.code, done.json["settings"]["max_num_seqs"]) == (0, "16")


def test_discard_and_what_cannot_be(machine: Machine) -> None:
    assert machine.command_line("tune", "qwen", "--resume").code == 4
    assert machine.command_line("tune", "qwen", "--discard").code == 4
    assert machine.command_line("tune", "qwen", "--resume", "--discard").code == 2
    assert machine.command_line("tune", "nobody").code == 2
    assert machine.command_line("tune", "qwen", "--minutes", "0").code == 2
    assert machine.command_line("--read-only", "tune", "qwen", "--yes").code == 4
    assert machine.command_line("tune", "qwen", *QUICK, "--minutes", "0.01", "--yes").code in (0, 4)
