"""Other boxes from the command line, and an ssh that keeps how it was called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.world import World, in_process
from tests.fake_ssh import FakeSsh
from tests.pty_app import PtyApp, spark_tui

TOKEN = "hf_" + "a" * 34


@pytest.fixture
def ssh(tmp_path: Path) -> FakeSsh:
    fake = FakeSsh(tmp_path / "ssh")
    fake.hosts('lab = "nv@spark-2"\nattic = { ssh = "nv@10.0.0.7", command = "~/spark-tui/.venv/bin/spark-tui" }')
    return fake


def process(ssh: FakeSsh, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`--host` makes the process the command there."""
    return subprocess.run(
        [sys.executable, "-m", "spark_tui", *arguments],
        env=ssh.environment | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


def run(ssh: FakeSsh, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return in_process(arguments, ssh.environment | variables)


# --- --host ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (("--host", "lab", "ps"), ["nv@spark-2", "--", "spark-tui ps"]),
        (("--host=attic", "ps", "-a"), ["nv@10.0.0.7", "--", "~/spark-tui/.venv/bin/spark-tui ps -a"]),
        (("--json", "--host", "lab", "status"), ["nv@spark-2", "--", "spark-tui --json status"]),
        (("--store", "/m s", "--host", "lab", "ps"), ["nv@spark-2", "--", "spark-tui --store '/m s' ps"]),
        (("--store", "--host", "--host", "lab"), ["nv@spark-2", "--", "spark-tui --store --host"]),
        (("--host", "lab"), ["nv@spark-2", "--", "spark-tui"]),
        (("--host", "lab", "--help"), ["nv@spark-2", "--", "spark-tui --help"]),
        (("--host", "nv@spark-9", "chat", "x", "-m", "it's $HOME; `id`"),
         ["nv@spark-9", "--", "spark-tui chat x -m 'it'\"'\"'s $HOME; `id`'"]),
        (("--host", "lab", "serve", "--host", "127.0.0.1"), ["nv@spark-2", "--", "spark-tui serve --host 127.0.0.1"]),
    ],
)  # fmt: skip
def test_the_command_line_goes_there_as_it_was_typed(ssh: FakeSsh, arguments: tuple[str, ...], call: list[str]) -> None:
    code = len(arguments)
    ssh.answer(call[0], "out\n", err="err\n", code=code)
    done = process(ssh, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (code, "out\n", "err\n")
    assert ssh.calls == [call], "and without a terminal there, in a pipe"


def test_at_a_terminal_there_is_a_terminal_there(ssh: FakeSsh) -> None:
    ssh.answer("nv@spark-2", "the other control centre\n", act="read key", code=5)
    with PtyApp(spark_tui("--host", "lab"), env=ssh.environment) as app:
        app.send("q", "enter")
        app.wait_for("the other control centre", timeout=60)
        assert app.wait_end(60) == 5
    assert ssh.calls == [["-t", "nv@spark-2", "--", "spark-tui"]]


def test_no_key_goes_along_on_the_command_line(ssh: FakeSsh) -> None:
    ssh.answer("nv@spark-2")
    process(ssh, "--host", "lab", "models", "pull", "x", HF_TOKEN=TOKEN)
    assert all(TOKEN not in word for call in ssh.calls for word in call)
    assert all("SendEnv" not in word and "SetEnv" not in word for call in ssh.calls for word in call)


def test_who_may_only_look_here_only_looks_there(ssh: FakeSsh) -> None:
    ssh.answer("nv@spark-2")
    process(ssh, "--host", "lab", "down", "x", SPARK_TUI_READ_ONLY="yes")
    assert ssh.calls == [["nv@spark-2", "--", "spark-tui --read-only down x"]]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--host", "lba", "ps"), 2, "Did you mean `lab`?"),
        (("--host", "spark", "ps"), 2, "Known: attic, lab."),
        (("--host", "lba", "ps", "--json"), 2, '"id": "usage"'),
        (("--host", "", "ps"), 2, "Unknown host ''"),
        (("--host=-oProxyCommand=touch@x", "ps"), 2, "must be an address as for ssh"),
        (("--host", "nv@-oProxyCommand=x", "ps"), 2, "must be an address as for ssh"),
        (("--host",), 2, "requires an argument"),
        (("--host", "lab", "--host", "attic", "ps"), 2, "was given twice"),
        (("ps", "--host", "lab"), 2, "before the command"),
        (("--demo", "--host", "lab"), 4, "not available in the demo"),
        (("--host", "lab", "status", "--demo"), 4, "not available in the demo"),
        (("--demo", "hosts"), 4, "not available in the demo"),
    ],
)
def test_what_leads_nowhere_is_refused_and_ssh_is_not_called(
    ssh: FakeSsh, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = run(ssh, *arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert ssh.calls == []


def test_without_ssh_it_says_what_to_install(ssh: FakeSsh, tmp_path: Path) -> None:
    done = process(ssh, "--host", "lab", "ps", PATH=str(tmp_path))
    assert done.returncode == 3
    assert "openssh-client" in done.stderr


# --- hosts ----------------------------------------------------------------------------------------------


def test_each_host_is_listed_with_what_it_serves_or_why_that_is_not_known(ssh: FakeSsh) -> None:
    ssh.serves("nv@spark-2")
    ssh.answer("nv@10.0.0.7", err="\x1b]0;x\x07bash: line 1: spark-tui: command not found\n", code=127)
    done = run(ssh, "hosts")
    assert done.returncode == 3
    heading, attic, lab = done.stdout.splitlines()
    assert heading.split() == ["NAME", "HOST", "AVAILABLE", "SERVES"]
    assert attic.split()[:3] == ["attic", "nv@10.0.0.7", "n/a"]
    assert lab.split("  ")[-1] == "qwen3 :8000; 1 not serving"
    assert "60.0 of 119.7 GiB" in lab
    assert "hosts.attic 'nv@10.0.0.7,~/.local/bin/spark-tui'" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_hosts_are_data_too_and_unknown_is_null_with_its_reason(ssh: FakeSsh) -> None:
    ssh.serves("nv@spark-2", memory=None, memory_reason="/proc is gone")
    ssh.answer("nv@10.0.0.7", err="ssh: connect to host 10.0.0.7 port 22: Connection refused\r\n", code=255)
    attic, lab = json.loads(run(ssh, "hosts", "--json").stdout)
    assert (lab["reachable"], attic["reachable"]) == (True, False)
    assert (lab["available_bytes"], lab["available_bytes_reason"]) == (None, "/proc is gone")
    assert [engine["state"] for engine in lab["engines"]] == ["ready", "starting"]
    assert attic["engines"] is None
    assert "Connection refused" in attic["engines_reason"]
    assert attic["error"]["id"] == "host_unreachable"


def test_without_hosts_it_says_how_to_name_one(ssh: FakeSsh) -> None:
    ssh.hosts("")
    done = run(ssh, "hosts")
    assert (done.returncode, done.stdout) == (0, "")
    assert "spark-tui config set hosts.NAME" in done.stderr
    assert run(ssh, "hosts", "--json").stdout == "[]\n"
    ssh.serves("nv@spark-2")
    assert run(ssh, "hosts", SPARK_TUI_HOSTS="lab=nv@spark-2").returncode == 0, "all answer"


# --- config ---------------------------------------------------------------------------------------------


def config(home: Path, *arguments: str) -> str:
    result = World().run("config", *arguments, environment={"HOME": str(home)})
    return result.out + result.err


def test_a_host_is_set_looked_at_and_taken_out(tmp_path: Path) -> None:
    config(tmp_path, "set", "hosts.lab", "nv@spark-2")
    config(tmp_path, "set", "hosts.attic", "nv@10.0.0.7,~/.local/bin/spark-tui")
    path = tmp_path / ".config/spark-tui/settings.toml"
    assert path.read_text() == (
        '[hosts]\nlab = "nv@spark-2"\nattic = {ssh = "nv@10.0.0.7", command = "~/.local/bin/spark-tui"}\n'
    )
    assert "nv@10.0.0.7,~/.local/bin/spark-tui\n" in config(tmp_path, "get", "hosts.attic")
    assert f"{path}:1" in config(tmp_path, "get", "hosts.lab")
    assert "attic=nv@10.0.0.7,~/.local/bin/spark-tui lab=nv@spark-2" in config(tmp_path, "get", "hosts")
    config(tmp_path, "unset", "hosts.attic")
    assert "Did you mean `hosts.lab`?" in config(tmp_path, "get", "hosts.lob")
    config(tmp_path, "set", "hosts", "x=box")
    assert path.read_text() == '[hosts]\nx = "box"\n'
    config(tmp_path, "unset", "hosts")
    assert path.read_text() == "[hosts]\n"


@pytest.mark.parametrize(("key", "value"), [("hosts.a b", "box"), ("hosts.lab", "--x"), ("hosts", "box")])
def test_a_mistake_changes_nothing(tmp_path: Path, key: str, value: str) -> None:
    assert "Nothing was changed." in config(tmp_path, "set", key, "--", value) + config(
        tmp_path, "set", "--", key, value
    )
    assert not (tmp_path / ".config/spark-tui/settings.toml").exists()
