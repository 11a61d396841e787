"""Shell completion: names of what there is, quickly and without a word; and the script, installed by one command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.world import in_process

PROGRAM = "import sys; sys.argv[0] = 'spark-tui'; from spark_tui.__main__ import main; main()"


def complete(home: Path, *words: str, code: str = PROGRAM) -> tuple[list[str], str]:
    """What bash is offered for the last word, and what went to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "PATH": os.environ["PATH"], "HOME": str(home), "DOCKER_HOST": f"unix://{home}/none.sock",
            "_SPARK_TUI_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("spark-tui", *words)),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line.startswith("plain,")], done.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("st",), "status"),
        (("models", "ver"), "verify"),
        (("--demo", "up", "gpt-oss-2"), "gpt-oss-20b"),
        (("--demo", "logs", "qwen"), "qwen3.6-35b"),
        (("--demo", "models", "verify", "openai/"), "openai/gpt-oss-120b"),
        (("config", "get", "the"), "theme"),
        (("bench", "--conc"), "--concurrency"),
    ],
)
def test_names_of_every_kind_are_completed_in_silence(words: tuple[str, ...], offered: str, tmp_path: Path) -> None:
    names, err = complete(tmp_path, *words)
    for _ in range(20):  # of a machine that is too busy to answer a person in time nothing is offered
        if names:
            break
        names, err = complete(tmp_path, *words)
    assert offered in names
    assert all(name.startswith(words[-1]) for name in names)
    assert err == ""


def test_without_docker_no_engine_is_offered_and_nothing_is_said(tmp_path: Path) -> None:
    assert complete(tmp_path, "logs", "q") == ([], "")


def test_completion_imports_no_front_end(tmp_path: Path) -> None:
    report = "import atexit, sys; atexit.register(lambda: print('plain,TUI', 'textual' in sys.modules)); "
    assert complete(tmp_path, "--demo", "up", "", code=report + PROGRAM)[0][-1] == "TUI False"


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process(("completion", *arguments), {"PATH": os.environ["PATH"], "HOME": str(home)})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed_or_installed_where_the_shell_finds_it(shell: str, tmp_path: Path) -> None:
    printed = run(tmp_path, shell).stdout
    assert "_SPARK_TUI_COMPLETE" in printed
    for _ in range(2):  # a second time changes nothing
        done = run(tmp_path, shell, "--install", "--json")
        assert done.returncode == 0, done.stderr
    file = Path(json.loads(done.stdout)["files"][0])
    assert file.read_text() == printed
    if shell == "zsh":
        assert (tmp_path / ".zshrc").read_text().count(str(file)) == 1


def test_a_demo_installs_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "bash", "--install", "--demo").returncode == 4
    assert not list(tmp_path.iterdir())
