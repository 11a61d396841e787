"""The manual page: complete, the same as the one in the wheel, plain roff, and installed where man finds it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from runpy import run_path

import click
import pytest

from spark_tui.app.main import cli
from tests.app.test_manners import COMMANDS, told
from tests.pty_app import REPOSITORY

SHIPPED = REPOSITORY / "assets/spark-tui.1"
page_of = run_path(str(REPOSITORY / "scripts/man_page.py"))["page_of"]
PAGE = page_of(cli)


def sections(heading: str) -> list[str]:
    """What stands below that heading, as often as it is there."""
    return [part.partition("\n.S")[0] for part in PAGE.split(heading)[1:]]


def test_the_page_in_the_wheel_is_the_one_that_the_commands_make(tmp_path: Path) -> None:
    assert SHIPPED.read_text() == PAGE, "make it again: .venv/bin/python scripts/man_page.py > assets/spark-tui.1"
    assert told("man", tmp_path, COLUMNS="40") == (0, PAGE, "")


def test_every_command_is_there_with_every_option() -> None:
    [common] = sections(".SH OPTIONS\n")
    faults = []
    for path, command in COMMANDS:
        found = sections(f".SS {' '.join(path)}\n".replace("-", "\\-"))
        shown = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        names = [f"\\fB{name}\\fR".replace("-", "\\-") for each in shown for name in each.opts]
        missing = [name for name in names if found and name not in found[0] + common]
        helped = not found or (command.help or "").split()[0] in found[0]
        faults += [] if len(found) == (not command.hidden) and not missing and helped else [(path, len(found), missing)]
    assert faults == []


def test_texts_cannot_give_orders_to_roff() -> None:
    @click.command("odd", help=".so /etc/passwd\n\n'br\n\n\\fBx\n\n\b\nLines:\n  .rm\n  a\\", epilog=cli.epilog)
    @click.option("--odd", help=".ex")
    def odd(odd: str) -> None: ...

    page = page_of(odd)
    ours = (".TH", ".SH", ".PP", ".RS", ".RE", ".nf", ".fi", ".TP", ".BR", ".nh", ".ad", '.\\"')
    assert [line for line in page.splitlines() if line[:1] in (".", "'") and line.split()[0] not in ours] == []
    assert all(f"\n{line}\n" in page for line in ("\\&.so /etc/passwd", "\\(aqbr", "\\efBx", "\\&.rm", "a\\e"))


@pytest.mark.parametrize("words", [("groff", "-man", "-ww", "-z"), ("mandoc", "-Tlint", "-Wwarning")])
def test_roff_has_no_warning(words: tuple[str, ...]) -> None:
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run([*words, str(SHIPPED)], capture_output=True, text=True, check=False)
    found = (done.stdout + done.stderr).splitlines()
    assert [line for line in found if "missing date" not in line] == []  # its version is its date


def test_it_is_installed_as_a_link_to_the_programs_own(tmp_path: Path) -> None:
    file = tmp_path / ".local/share/man/man1/spark-tui.1"
    assert told("man --install --demo", tmp_path)[0] == 4
    assert not file.exists()
    for _ in range(2):  # a second time changes nothing
        code, out, _ = told("man --install --json", tmp_path)
        assert (code, json.loads(out)["files"]) == (0, [str(file)])
        assert file.readlink() == SHIPPED
    file.unlink()
    file.write_text("of another installation")
    assert told("man --install", tmp_path)[0] == 0
    assert file.read_text() == PAGE


def test_the_program_finds_its_page_where_its_wheel_is_installed(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=REPOSITORY, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = tmp_path.glob("*.whl")
    prefix = tmp_path / "tool"
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            files.extract(name, prefix / "lib")
    [data] = (prefix / "lib").glob("*.data/data/share")
    shutil.move(data, prefix / "share")
    code = (
        f"import sys, sysconfig; sysconfig.get_path = lambda _: {str(prefix)!r}; sys.argv[0] = 'spark-tui'; "
        "from spark_tui.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "man"], env={"PYTHONPATH": str(prefix / "lib"), "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (PAGE, "")


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("")
    code, _, err = told("man --install", tmp_path)
    assert code == 1
    assert str(tmp_path / ".local") in err
