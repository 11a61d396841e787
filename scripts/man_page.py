#!/usr/bin/env python3
"""Prints the manual page, made of the commands themselves: .venv/bin/python scripts/man_page.py > assets/spark-tui.1

A test compares that file with what this prints.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from spark_tui import __version__
from spark_tui.app.main import cli
from spark_tui.base.settings import KEYS, Folders, defaults, folders_of, variable_of
from spark_tui.cli.session import PROGRAM

_ESCAPES: Final = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", "|": "|\\:"}
"""What a terminal would show otherwise (typographic quotes, hyphens, accents), and a place to break a line."""
_VARIABLES: Final = (
    (", ".join(map(variable_of, KEYS[:3])) + " ...", "A setting each, before the settings file. See: spark-tui config"),
    ("DOCKER_HOST, DOCKER_CONTEXT", "Which Docker is used, unless --docker-host or the setting names one."),
    ("HF_TOKEN, HF_TOKEN_PATH", "The Hugging Face token, or its file; else that of: hf auth login"),
    ("HF_HOME, HF_ENDPOINT", "The folder of the Hub's tools, and the Hub's address."),
    ("XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME, XDG_CACHE_HOME", "Other places for the folders under FILES."),
    ("NO_COLOR", "Print without colours."),
)


def page_of(program: click.Command) -> str:
    """The page in roff's man macros; the same on every machine."""
    context = click.Context(program, info_name=PROGRAM, **program.context_settings)
    examples, output, exit_codes = (program.epilog or "").split("\n\n\b\n")
    first = (program.help or "").partition(":")[0]
    lines = [
        '.\\" Made by scripts/man_page.py.',
        f'.TH {PROGRAM.upper()} 1 "" "{PROGRAM} {__version__}" "User Commands"',
        *(".nh", ".ad l"),  # a command that is broken or stretched cannot be copied
        *(".SH NAME", _roff(PROGRAM) + " \\- " + _roff(first[:1].lower() + first[1:])),
        *(".SH SYNOPSIS", _usage(program, context)),
        *(".SH DESCRIPTION", *_paragraphs(program.help)),
        *(".SH OPTIONS", "These stand before the command, and except for \\-\\-host and \\-\\-version also after it."),
        *_options(program, context),
        *(".SH COMMANDS", *_commands(program, context)),
        *(".SH OUTPUT", _roff(output.replace("\n", " "))),
        *(".SH EXIT STATUS", *_terms(re.findall(r"(\d+) (.+?)[,.](?= \d|$)", " ".join(exit_codes.split())))),
        *(".SH ENVIRONMENT", *_terms(_VARIABLES)),
        *(".SH FILES", *_terms(sorted(_files()))),
        *(".SH EXAMPLES", *_verbatim(examples.splitlines()[2:])),
        *(".SH SEE ALSO", ".BR docker (1),", ".BR systemctl (1),", ".BR ssh (1)"),
    ]
    return "\n".join(lines) + "\n"


def _commands(group: click.Command, context: click.Context) -> Iterator[str]:
    """Every command below, each with its own after it."""
    names = group.list_commands(context) if isinstance(group, click.Group) else ()
    for name in names:
        found = group.get_command(context, name) if isinstance(group, click.Group) else None
        if found is not None and not found.hidden:
            own = click.Context(found, info_name=name, parent=context)
            yield f".SS {_roff(own.command_path.removeprefix(PROGRAM + ' '))}"
            yield from (_usage(found, own), ".PP", *_paragraphs(found.help), *_options(found, own))
            yield from (*(_paragraphs(found.epilog) if found.epilog else ()), *_commands(found, own))


def _usage(found: click.Command, context: click.Context) -> str:
    return f"\\fB{_roff(context.command_path)}\\fR {_roff(' '.join(found.collect_usage_pieces(context)))}"


def _options(found: click.Command, context: click.Context) -> Iterator[str]:
    """Those in its help; of a command without the ones that the program itself has."""
    root = context.find_root()
    common = [] if context is root else [each.opts for each in root.command.get_params(root)]
    for each in found.get_params(context):
        record = None if each.opts in common else each.get_help_record(context)
        if record and (record[1] or isinstance(each, click.Option)):  # an argument's name is in the usage
            yield from _terms([record])


def _terms(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in pairs:
        words = (f"\\fB{_roff(word)}\\fR" if word[:1] == "-" else _roff(word) for word in re.split(r"([ ,/]+)", term))
        yield from (".TP", "".join(words), _roff(text))


def _paragraphs(text: str | None) -> Iterator[str]:
    """As click reads them: after a line with \\b a paragraph keeps its lines."""
    for number, paragraph in enumerate((text or "").split("\n\n")):
        lines = paragraph.strip("\n").splitlines()
        if number:
            yield ".PP"
        if lines[:1] == ["\b"]:
            yield from (".PP", _roff(lines[1]), *_verbatim(lines[2:]))
        else:
            yield _roff(" ".join(" ".join(lines).split()))


def _verbatim(lines: Iterable[str]) -> tuple[str, ...]:
    return (".RS 2", ".nf", *(_roff(line.removeprefix("  ")) for line in lines), ".fi", ".RE")


def _files() -> Iterator[tuple[str, str]]:
    home = Path("~")
    folders = folders_of({}, home)
    for name, each in vars(Folders).items():
        if isinstance(each, property):
            yield str(getattr(folders, name)), each.__doc__ or ""
    found = defaults(folders)
    yield str(found.presets), "The user's own presets, `*.yaml`."
    yield str(found.caches), "Kernels that engines have compiled."
    yield str(found.store), "Models."
    yield "~/.config/systemd/user/spark-tui-*", "Units and timers that start engines."


def _roff(text: str) -> str:
    escaped = re.sub(r"[\\'`^~|-]", lambda found: _ESCAPES[found[0]], text)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    sys.stdout.write(page_of(cli))
