"""man: the manual page that comes with the program."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

import click

import spark_tui
from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.cli.command import command
from spark_tui.cli.session import PROGRAM, Session

_PAGE: Final = Path("share/man/man1") / f"{PROGRAM}.1"
"""Below the prefix that the program is installed in, and below ~/.local."""
EXAMPLES = """\
  spark-tui man --install                       then: man spark-tui
  spark-tui man | man -l -                      read it without installing
"""


@command("man", EXAMPLES)
@click.option("--install", is_flag=True, help="Put it where man finds it: ~/.local/share/man.")
def man(session: Session, install: bool) -> None:
    """Print the manual page, or install it for man.

    One page with all commands. pip and pipx install it with the program; uv does not.
    """
    file = Path(session.environment.get("HOME") or Path.home()) / ".local" / _PAGE
    checkout = Path(spark_tui.__file__).parents[1] / f"assets/{PROGRAM}.1"
    found = (each for each in (checkout, Path(sysconfig.get_path("data")) / _PAGE) if each.exists())
    shipped = next(found, file)  # `pip install --user` puts it there itself
    try:
        page = shipped.read_text(encoding="utf-8")
        if not install:
            session.out.json({"id": PROGRAM, "page": page})
            session.out.write(page)
            return
        if session.options.demo:
            raise RefusedError("A demo changes nothing on this machine.", "Leave out --demo.")
        file.parent.mkdir(parents=True, exist_ok=True)
        if not (file.exists() and file.samefile(shipped)):
            file.unlink(missing_ok=True)
            file.symlink_to(shipped)  # a link follows the program's updates
    except OSError as error:
        what = f"{error.filename or file}: {error.strerror or error}."
        raise SparkError(what, f"The same text, command by command: {PROGRAM} --help") from error
    session.out.answer({"id": PROGRAM, "installed": True, "files": [str(file)]}, str(file))
    session.err.say(f"Installed. Read it: man {PROGRAM}")
