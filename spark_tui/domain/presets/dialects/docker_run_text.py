"""`docker run` commands in a text as people share it: a script, a guide, a post, or the command alone.

Found at the start of a line, behind a prompt, `sudo` or variables of its own; up to where its lines end. Comments are
left out, and variables that the text itself sets are filled in. Nothing is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_tui.domain.presets.secret_names import is_secret_name
from spark_tui.domain.presets.shell_words import join_lines
from spark_tui.domain.secret import MASK

HOME: Final = "/~"
"""What `~` and `$HOME` stand for in a command that was found: no folder of a machine, and told apart from all."""

_START = re.compile(
    r"[ \t]*(?:[$>%][ \t]+)?(?:[A-Za-z_]\w*=(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"]*)[ \t]+)*"
    r"(?:sudo[ \t]+(?:-[A-Za-z]+[ \t]+)*)?(?P<command>(?:/\S*/)?docker[ \t]+(?:container[ \t]+)?run(?=[ \t\\]|$))"
)
_ASSIGNMENT = re.compile(
    r"[ \t]*(?:[$>%][ \t]+)?(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)="
    r"(?:'(?P<single>[^'\n]*)'|\"(?P<double>[^\"\n$`\\]*)\"|(?P<plain>[^\s'\"$`\\;&|<>()]*))[ \t]*(?:#.*)?$"
)
_VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<otherwise>[^{}$`'\"\\]*))?\})")
_FILLED_IN = re.compile(r"\$(?:[A-Za-z_]\w*|\{[^}\n]{0,60}\}?|\([^)\n]{0,60}\)?)")
_MADE_KEY = re.compile(r"(?P<name>[A-Za-z_-][\w-]*)(?P<between>[= ]\"?)(?:\$\([^()]*\)|`[^`]*`)")
_IN_QUOTES = re.compile(r'[\\"$`]')
# A backslash that stands alone was the end of a line, before the lines were put into one.
_LOST_LINE_END = re.compile(r"(?<=\s)\\[ \t]+(?=\S)")
_TRAILING_BLANKS = re.compile(r"\\[ \t]+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundCommand:
    """One command: its text from `docker` on, in one line as far as its quotes allow, and the line where it begins."""

    text: str
    line: int


def find_commands(text: str) -> tuple[FoundCommand, ...]:
    """Every `docker run` in a text, in order."""
    return tuple(_commands(with_newlines(text).replace("\N{NO-BREAK SPACE}", " ")))


def with_newlines(text: str) -> str:
    """The text with one kind of line end: terminals paste a carriage return, other systems write both."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _commands(text: str) -> Iterator[FoundCommand]:
    text = _LOST_LINE_END.sub(" ", _TRAILING_BLANKS.sub(lambda match: match[0].rstrip(), text))
    variables: dict[str, str] = {}
    at, line = 0, 1
    while at < len(text):
        end = text.find("\n", at) % (len(text) + 1)
        start = _START.match(text, at, end)
        if start is not None:
            variables |= _assigned(text[at : start.start("command")])
            written, end = _whole(text, start.start("command"))
            yield FoundCommand(_filled(join_lines(written), variables), line)
        elif assignment := _ASSIGNMENT.match(text, at, end):
            variables[assignment["name"]] = assignment["single"] or assignment["double"] or assignment["plain"] or ""
        line += text.count("\n", at, end) + 1
        at = end + 1


def _assigned(before: str) -> dict[str, str]:
    try:
        words = shlex.split(before)
    except ValueError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _whole(text: str, at: int) -> tuple[str, int]:
    """A command from `at` to the end of its last line, without comments, and where that is."""
    out: list[str] = []
    quote = ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            out.append(text[at : at + 2])
            at += 2
            continue
        if not quote and char == "#" and (at == 0 or text[at - 1].isspace()):
            alone = "".join(out).rstrip(" \t").endswith(("\\\n", "\n"))
            at = text.find("\n", at) % (len(text) + 1)
            at += int(alone)  # a line of comment within a command; after words it ends with its line
            continue
        if char == "\n" and not quote:
            break
        if char in "'\"":
            quote = "" if quote == char else quote or char
        out.append(char)
        at += 1
    return "".join(out), min(at, len(text))


def _filled(command: str, variables: Mapping[str, str]) -> str:
    """The command with the variables that are known. Of one that holds a key the name stays, as plain text; what is
    not known stays as it is, and is refused where the command is read."""
    command = _MADE_KEY.sub(_without_made_key, command)
    out: list[str] = []
    quote = ""
    at = 0
    while at < len(command):
        char = command[at]
        found = _VARIABLE.match(command, at) if char == "$" and quote != "'" else None
        value = _value(found, variables) if found else None
        if found is not None and value is not None:
            out.append(_IN_QUOTES.sub(r"\\\g<0>", value) if quote else shlex.quote(value))
            at = found.end()
            continue
        if char == "\\" and quote != "'":
            out.append(command[at : at + 2])
            at += 2
            continue
        if char in "'\"":
            quote = "" if quote == char else quote or char
        if quote or char not in " \t" or out[-1:] != [" "]:
            out.append(" " if char == "\t" and not quote else char)
        at += 1
    return "".join(out).strip()


def with_home(command: str) -> str:
    """A found command with `$HOME` filled in."""
    return _filled(command, {"HOME": HOME})


def _without_made_key(match: re.Match[str]) -> str:
    """`HF_TOKEN=$(cat token)`: what it gives is a key, whatever it runs."""
    return match["name"] + match["between"] + MASK if is_secret_name(match["name"].lstrip("-")) else match[0]


def unknown_variable(command: str) -> str:
    """The first thing in a found command that only a shell can fill in: `$MODEL`, `$(id -u)`; empty for none."""
    quote = ""
    at = 0
    while at < len(command):
        char = command[at]
        if char == "$" and quote != "'" and (found := _FILLED_IN.match(command, at)):
            return found[0]
        if char == "\\" and quote != "'":
            at += 1
        elif char in "'\"":
            quote = "" if quote == char else quote or char
        at += 1
    return ""


def _value(variable: re.Match[str], variables: Mapping[str, str]) -> str | None:
    name = variable["name"] or variable["braced"]
    return f"${name}" if is_secret_name(name) else variables.get(name, variable["otherwise"])
