"""`cluster install`: this program is really installed into a home folder, through an ssh that runs what it is given."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_tui import __version__
from spark_tui.app.opening import open_context
from spark_tui.base.context import Context
from spark_tui.catalog.presets.adapter.store import builtin_directory
from spark_tui.cli.session import Options
from spark_tui.manage.cluster.use.install import ProgramBundle
from tests.cli.world import in_process
from tests.node_ssh import NodeSsh, packed_small

NODE = "nv@spark-2"
NOISE = """echo "Welcome to $HOME"; echo '{"step": 1}'; echo '{"ended": {}'; echo '{"a": {}}'; echo careful >&2"""
COMMANDS = {"bash -s", "spark-tui --version", "~/.local/bin/spark-tui --version"}
OLDER = "#!/bin/sh\necho spark-tui 0.0.1\n"
TOKEN = "hf_" + "a" * 34


@pytest.fixture
def ssh(tmp_path: Path) -> NodeSsh:
    return NodeSsh(tmp_path / "ssh")


@pytest.fixture
def home(ssh: NodeSsh) -> Path:
    return ssh.node(NODE)


class PackedOnce:
    """A small program, which all of these tests send but the first."""

    @staticmethod
    @cache
    def pack() -> ProgramBundle:
        return packed_small(builtin_directory())


def opened(options: Options, environment: Mapping[str, str]) -> Context:
    context = open_context(options, environment)
    context.ports.program = PackedOnce()
    return context


def start(ssh: NodeSsh, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """As a process, which packs and sends all of itself."""
    return subprocess.Popen(
        [sys.executable, "-m", "spark_tui", *arguments], env=ssh.environment | variables, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def process(ssh: NodeSsh, *arguments: str, **variables: str) -> tuple[int, str, str]:
    with start(ssh, *arguments, **variables) as child:
        out, err = child.communicate(timeout=110)
        return child.returncode, out, err


def run(ssh: NodeSsh, *arguments: str) -> tuple[int, str, str]:
    done = in_process(arguments, ssh.environment, opener=opened)
    return done.returncode, done.stdout, done.stderr


def install(ssh: NodeSsh) -> Any:
    code, out, err = run(ssh, "cluster", "install", NODE, "--json")
    assert code == 0, err
    return json.loads(out)[0]


def refused(ssh: NodeSsh) -> Any:
    code, out, _ = run(ssh, "cluster", "install", NODE, "--json")
    found = json.loads(out)[0]
    assert (code, found["installed"]) == (1, False)
    assert found["error"]["remedy"]
    return found["error"]


def programs(home: Path) -> list[str]:
    """The folders of programs there, finished or not."""
    return [each.name for each in (home / ".local/share/spark-tui").glob("[0-9]*")]


def older(home: Path) -> Path:
    """A spark-tui that is there already, as a package manager's link."""
    (home / ".local/bin").mkdir(parents=True)
    (home / "older").write_text(OLDER)
    (home / "older").chmod(0o755)
    (home / ".local/bin/spark-tui").symlink_to(home / "older")
    return home / ".local/bin/spark-tui"


def test_a_node_gets_this_version_and_runs_it_and_nothing_private_goes_there(ssh: NodeSsh, home: Path) -> None:
    code, out, err = process(ssh, "cluster", "install", NODE, "--json", HF_TOKEN=TOKEN, VLLM_API_KEY=TOKEN)
    assert code == 0, err
    [done] = json.loads(out)
    assert (done["id"], done["version"], done["copied"]) == ("spark-2", __version__, True)
    assert done["earlier_version"] is None
    assert Path(done["path"]) == (home / ".local/bin/spark-tui").readlink()
    settings = tomllib.loads((Path(ssh.environment["HOME"]) / ".config/spark-tui/settings.toml").read_text())
    assert settings["hosts"]["spark-2"] == {"ssh": NODE, "command": "~/.local/bin/spark-tui"}, "not on the PATH there"
    assert process(ssh, "--host", "spark-2", "--version")[:2] == (0, f"spark-tui {__version__}\n")
    code, out, _ = process(ssh, "--host", "spark-2", "presets", "list", "--json")
    assert (code, len(json.loads(out)) > 20) == (0, True), "its presets went along"
    assert programs(home) == [Path(done["path"]).parents[1].name]

    assert not [line for line in ssh.calls(NODE) if TOKEN in line]
    names = {path.name for path in (home / ".local/share/spark-tui").rglob("*")}
    assert not names & {"direct_url.json", "RECORD"}, "they name folders and addresses of this machine"
    marks = (TOKEN.encode(), ssh.environment["HOME"].encode())
    texts = [path.read_bytes() for path in (home / ".local").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert not [text for text in texts if any(mark in text for mark in marks)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_any_login_shell_may_print_what_it_likes(ssh: NodeSsh, home: Path, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    ssh.logs_in(NODE, found, NOISE)
    assert install(ssh)["copied"]
    assert set(ssh.calls(NODE)) == COMMANDS


def test_an_earlier_version_is_replaced_by_one_that_answers(ssh: NodeSsh, home: Path) -> None:
    link = older(home)
    (home.parent / "path").write_text(f"{home}/.local/bin:{home.parent}/bin")
    assert install(ssh)["earlier_version"] == "0.0.1"
    assert link.is_symlink()
    assert (home / "older").read_text() == OLDER
    assert not (Path(ssh.environment["HOME"]) / ".config/spark-tui/settings.toml").exists(), "found on the PATH there"


def test_an_earlier_version_stays_where_the_new_one_does_not_start(ssh: NodeSsh, home: Path) -> None:
    link = older(home)
    (home / "lib").mkdir()
    (home / "lib/click.py").write_text("raise SystemExit('not on this machine')")
    ssh.logs_in(NODE, "/bin/sh", f"export PYTHONPATH={home}/lib")
    error = refused(ssh)
    assert "not on this machine" in error["summary"]
    assert (link.readlink(), programs(home)) == (home / "older", [])


def test_a_full_disk_leaves_nothing_behind(ssh: NodeSsh, home: Path) -> None:
    link = older(home)
    ssh.logs_in(NODE, "/bin/sh", "ulimit -f 200")
    error = refused(ssh)
    assert "no space left" in error["summary"]
    assert (link.readlink(), programs(home)) == (home / "older", [])
    ssh.logs_in(NODE, "/bin/sh", "")
    assert install(ssh)["copied"]


def test_a_copy_that_is_cut_off_is_repeated(ssh: NodeSsh, home: Path) -> None:
    ssh.program(NODE, "cut", f'"{shutil.which("head")}" -c 300000 | /bin/sh "$@"')
    ssh.logs_in(NODE, str(home.parent / "bin/cut"), "")
    assert "cut off" in refused(ssh)["summary"]
    assert programs(home) == []
    ssh.logs_in(NODE, "/bin/sh", "")
    left = home / ".local/share/spark-tui/0.0.9-0123456789ab"
    left.mkdir()
    (left / "unfinished").touch()  # as after a power failure
    assert install(ssh)["copied"]
    assert left.name not in programs(home)


def test_an_interrupted_installation_is_repeated(ssh: NodeSsh, home: Path) -> None:
    with start(ssh, "cluster", "install", NODE) as child:
        assert child.stderr is not None
        assert "copying" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    code, out, err = process(ssh, "cluster", "install", NODE, "--json")  # the same program: it may have arrived whole
    assert code == 0, err
    assert json.loads(out)[0]["version"] == __version__
    assert len(programs(home)) == 1


def test_two_installers_at_once_make_one_program_and_a_third_changes_nothing(ssh: NodeSsh, home: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(install, (ssh, ssh)))
    assert sorted(each["copied"] for each in both) == [False, True]
    again = install(ssh)
    assert (again["copied"], again["path"], again["earlier_version"]) == (False, both[0]["path"], __version__)
    assert len(programs(home)) == 1
    assert process(ssh, "--host", "spark-2", "--version")[1] == f"spark-tui {__version__}\n"


def test_a_node_without_python_says_how_to_get_one(ssh: NodeSsh, home: Path) -> None:
    (home.parent / "bin/python3").unlink()
    assert "apt install python3" in refused(ssh)["remedy"]
    assert not (home / ".local").exists()


def test_a_node_without_bash_or_ssh_fails_alone(ssh: NodeSsh, home: Path) -> None:
    (home.parent / "bin/bash").unlink()
    code, out, _ = run(ssh, "cluster", "install", NODE, "b@nowhere", "--json")
    assert code == 3
    assert [each["error"]["id"] for each in json.loads(out)] == ["install_failed", "host_unreachable"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("cluster", "install"), 2),
        (("cluster", "install", "spark-2"), 2),
        (("--read-only", "cluster", "install", NODE), 4),
        (("--demo", "cluster", "install", NODE), 4),
    ],
)
def test_what_cannot_be_is_refused_before_ssh(ssh: NodeSsh, home: Path, arguments: tuple[str, ...], code: int) -> None:
    assert run(ssh, *arguments)[0] == code
    assert not (home.parent / "calls").exists()
