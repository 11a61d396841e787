"""A command as people write it in a recipe, as the words that a container gets; and `docker run` commands in texts.

Recipes are written for bash. Almost all of them are one program with its arguments, and those become plain words:
nothing is interpreted, and PID 1 is the server, which then receives the signal that stops it. A command that uses
the shell (`&&`, pipes, variables, several lines) is recognised, and runs as `bash -c` as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from spark_tui.base.secret import SECRET_MASK, is_secret_name
from spark_tui.base.text import lazy_pattern

_TRAILING_BLANKS = re.compile(r"\\[ \t]+\n")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_RUN = re.compile(r"""[^\\'"]+|\\.|.""", re.DOTALL)
_BLANKS = re.compile(r"(\s+)")
_VARIABLE = r"\$(?=[A-Za-z_{(0-9@*#?!$'\"-])"
_IN_DOUBLE = re.compile(rf"`|{_VARIABLE}")
_UNQUOTED = lazy_pattern(rf"[`|&;<>()\n]|{_VARIABLE}|(?:(?<=\s)|\A)[#~]")
_ESCAPED_IN_QUOTES: Final = ("$", "`", '"', "\\", "\n")
_OPERATORS: Final = frozenset("|&;<>()")
_BUILTINS: Final = frozenset(
    ("exec", "export", "source", ".", "cd", "set", "eval", "ulimit", "trap", "if", "for", "while")
)
SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "zsh"))


def scan(text: str) -> Iterator[tuple[int, str, str]]:
    """Each character with its place and the quote that it is in (`'`, `"` or none), by bash's rules. A backslash
    comes together with the character that it escapes; within single quotes it is a character like any other."""
    at, quote = 0, ""
    while at < len(text):
        piece = text[at : at + 2] if text[at] == "\\" and quote != "'" else text[at]
        yield at, piece, quote
        if piece in ("'", '"'):
            quote = "" if quote == piece else quote or piece
        at += len(piece)


def runs(text: str) -> Iterator[tuple[int, int, str]]:
    """`scan` in long steps: where each run begins and ends, and its quote. A run is a quotation mark, a backslash with
    what it escapes, or all text up to the next of them."""
    at, quote = 0, ""
    while at < len(text):
        if quote == "'":
            end = text.find("'", at)
            end = at + 1 if end == at else end % (len(text) + 1)
        else:
            run = _RUN.match(text, at)
            end = run.end() if run is not None else len(text)
        yield at, end, quote
        if end == at + 1 and text[at] in ("'", '"'):
            quote = "" if quote == text[at] else quote or text[at]
        at = end


def join_lines(command: str) -> str:
    """One text without line continuations, by bash's rules: none within single quotes.

    A continuation with blanks after its backslash is taken as meant, and a last one that continues nothing is dropped.
    """
    text = _TRAILING_BLANKS.sub("\\\\\n", command.strip())
    pieces = ((text[at:end], quote) for at, end, quote in runs(text))
    return "".join(piece for piece, quote in pieces if quote == "'" or piece not in ("\\\n", "\\")).strip()


def shell_construct(command: str) -> str:
    """The first thing in a joined command that only a shell understands, or an empty string."""
    for at, end, quote in runs(command):
        if quote == "'" or command[at] == "\\":
            continue
        pattern = _IN_DOUBLE if quote else _UNQUOTED
        found = pattern.search(command, at)
        if found is not None and found[0] in ("#", "~") and found.start() == at > 0:  # behind a quote or an escape
            found = pattern.search(command, at + 1)
        if found is None or found.start() >= end:
            continue
        piece = found[0]
        if piece in _OPERATORS and command[found.start() : found.start() + 2] in ("&&", "||", ">>", "<<"):
            return piece * 2
        return "several lines" if piece == "\n" else piece
    first = command.split(maxsplit=1)[0] if command.strip() else ""
    return first if _ASSIGNMENT.match(first) or first in _BUILTINS else ""


def split_words(command: str) -> tuple[str, ...]:
    """A joined command without shell constructs as bash would pass its words. Raises ValueError for an open quote.

    `shlex` differs: it keeps the backslash of `\\$` and `` \\` `` within double quotes.
    """
    words: list[str] = []
    word: list[str] | None = None
    opened = ""
    for at, end, quote in runs(command):
        piece = command[at:end]
        if not quote and piece[0] not in ("\\", "'", '"'):
            for part in filter(None, _BLANKS.split(piece)):
                if part.isspace():
                    words += [] if word is None else ["".join(word)]
                    word = None
                else:
                    word = [*(word or ()), part]
            continue
        word = [] if word is None else word
        if piece[0] == "\\" and quote != "'":
            word.append(piece[1:] if not quote or piece[1:] in _ESCAPED_IN_QUOTES else piece)
        elif quote and piece != quote:
            word.append(piece)
        else:
            opened = "" if quote else piece
    if opened:
        raise ValueError(f"no closing {opened}")
    return tuple(words) if word is None else (*words, "".join(word))


def is_shell(argv: tuple[str, ...]) -> bool:
    """Whether a command is a script for a shell: `bash -c ...`, `bash -lc ...`."""
    return len(argv) > 2 and argv[0].rpartition("/")[2] in SHELLS and re.fullmatch(r"-[a-z]*c", argv[1]) is not None


def words_of(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The words to look for options in: the command's own, or those of its script as far as they can be read, with the
    command that it runs at its end as "$@"."""
    before: list[str] = []
    while is_shell(argv):
        lexer = shlex.shlex(join_lines(argv[2]), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            found = list(lexer)
        except ValueError:
            found = argv[2].split()
        if found[-1:] != ["$@"]:
            return (*before, *found)
        before, argv = [*before, *found[:-1]], argv[4:]
    return (*before, *argv)


# --- docker run commands in a text ------------------------------------------------------------------------

_START = lazy_pattern(
    r"[ \t]*(?:[$>%][ \t]+)?(?:[A-Za-z_]\w*=(?:'[^'\n]*'|\"[^\"\n]*\"|(?!\"?(?:\$\(|`))[^\s'\"]*)[ \t]+)*"
    r"(?P<within>(?:[A-Za-z_]\w*=)?\"?(?:\$\(|`)[ \t]*)?"
    r"(?:(?:exec|nohup|time|command|env|sudo(?:[ \t]+-[A-Za-z]+)*)[ \t]+)*"
    r"(?P<command>(?:/\S*/)?(?P<program>docker|podman)[ \t]+(?:container[ \t]+)?(?:run|create)(?=[ \t\\]|$))"
)
_SSH = lazy_pattern(
    r"[ \t]*(?:[$>%][ \t]+)?ssh(?:[ \t]+(?:-[46AaCfGgKkMNnqTtVvXxYy]+|-[A-Za-z][ \t]*[^\s'\"]+))*"
    r"[ \t]+[^\s'\"-][^\s'\"]*[ \t]+(?=['\"]?[^\n]*\b(?:docker|podman)\b)"
)
"""A command for another machine, up to its first word there."""
_SET_BEFORE = lazy_pattern(
    r"[ \t]*(?:[$>%][ \t]+)?(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)="
    r"(?:'(?P<single>[^'\n]*)'|\"(?P<double>[^\"\n$`\\]*)\"|(?P<plain>[^\s'\"$`\\;&|<>()]*))[ \t]*(?:#.*)?$"
)
_REFERENCE = lazy_pattern(
    r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<otherwise>[^{}$`'\"\\]*))?\})"
)
_FILLED_IN = lazy_pattern(r"\$(?:[A-Za-z_]\w*|\{[^}\n]{0,60}\}?|\([^)\n]{0,60}\)?)")
_MADE_KEY = lazy_pattern(r"(?P<name>[A-Za-z_-][\w-]*)(?P<between>[= ]\"?)(?:\$\([^()]*\)|`[^`]*`)")
_IN_QUOTES = re.compile(r'[\\"$`]')
# A backslash that stands alone was the end of a line, before the lines were put into one.
_LOST_LINE_END = lazy_pattern(r"(?<=\s)\\[ \t]+(?=\S)")
_TO_BACKGROUND = lazy_pattern(
    r"(?:[ \t]+(?:[12]?>>?|&>>?)[ \t]*(?:&[12]|[^\s'\"&|;<>()$`]+))*[ \t]*(?:(?<=\s)&)?[ \t]*\Z"
)
"""`> log 2>&1 &` at a command's end."""
_QUOTED = lazy_pattern(r"(?:^[ \t]*>[^\n]*(?:\n|\Z)){2,}", re.MULTILINE)
"""Quoted lines of a mail or post, or a shell's prompt for further lines."""
_QUOTE_MARK = lazy_pattern(r"^[ \t]*>[ \t]?", re.MULTILINE)
_BLANKS_AT_END = re.compile(r"\\[ \t]+$", re.MULTILINE)


class FoundCommand(Struct, frozen=True):
    """One command: its text from `docker` on, in one line as far as its quotes allow, and the line where it begins."""

    text: str
    line: int


def with_newlines(text: str) -> str:
    """The text with one kind of line end: terminals paste a carriage return, other systems write both."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def unquoted(text: str) -> str:
    """The text without the marks of lines that are quoted, two or more together: one alone may be a redirection."""
    return _QUOTED.sub(lambda lines: _QUOTE_MARK.sub("", lines[0]), text)


def find_commands(text: str) -> tuple[FoundCommand, ...]:
    """Every `docker run` or `docker create`, or podman's, in a text, in order, with the variables that the lines above
    it set; also behind `exec`, `nohup`, `ssh HOST`, in `$(...)` and in quoted lines."""
    text = unquoted(with_newlines(text))
    text = _BLANKS_AT_END.sub("\\\\", text.replace("\N{NO-BREAK SPACE}", " "))
    text = _LOST_LINE_END.sub(" ", text)
    found: list[FoundCommand] = []
    variables: dict[str, str] = {}
    at, line = 0, 1
    while at < len(text):
        end = text.find("\n", at) % (len(text) + 1)
        if remote := _SSH.match(text, at, end):
            written, end = _whole(text, remote.end())
            if written[:1] in ("'", '"'):
                with suppress(ValueError):
                    written = next(iter(shlex.split(written, posix=True)), "")
            found += [FoundCommand(fill_in(each.text, variables), line) for each in find_commands(written)]
        elif start := _START.match(text, at, end):
            with suppress(ValueError):
                before = shlex.split(text[at : start.start("within" if start["within"] else "command")])
                variables |= dict(word.split("=", 1) for word in before if "=" in word)
            opening = (start["within"] or "").strip()[-1:]
            written, end = _whole(text, start.start("command"), {"(": ")", "`": "`"}.get(opening, ""))
            written = start["program"].replace("podman", "docker").join(written.split(start["program"], 1))
            found.append(FoundCommand(fill_in(join_lines(written), variables), line))
        elif given := _SET_BEFORE.match(text, at, end):
            variables[given["name"]] = given["single"] or given["double"] or given["plain"] or ""
        line += text.count("\n", at, end) + 1
        at = end + 1
    return tuple(found)


def _whole(text: str, at: int, closing: str = "") -> tuple[str, int]:
    """A command from `at` to the end of its last line, without comments, and where that is. `closing` ends it too,
    outside quotes: inside `$(...)`. What keeps it in the background or its output in a file is left out."""
    out: list[str] = []
    quote, depth = "", 0
    while at < len(text):
        char = text[at]
        if closing and not quote:
            depth += (char == "(") - (char == ")")
            if char == closing and depth <= 0 and (closing == "`" or depth < 0):
                break
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
    return _TO_BACKGROUND.sub("", "".join(out)), min(at, len(text))


def fill_in(command: str, variables: Mapping[str, str]) -> str:
    """The command with the variables that are known. Of one that holds a key the name stays, as plain text, and what
    makes a key (`HF_TOKEN=$(cat token)`) is masked; a variable that is not known stays as it is."""
    command = _MADE_KEY.sub(
        lambda made: (
            made["name"] + made["between"] + SECRET_MASK if is_secret_name(made["name"].lstrip("-")) else made[0]
        ),
        command,
    )
    out: list[str] = []
    filled = 0
    for at, piece, quote in scan(command):
        if at < filled:
            continue
        reference = _REFERENCE.match(command, at) if piece == "$" and quote != "'" else None
        if reference is not None:
            name = reference["name"] or reference["braced"]
            value = f"${name}" if is_secret_name(name) else variables.get(name, reference["otherwise"])
            if value is not None:
                out.append(_IN_QUOTES.sub(r"\\\g<0>", value) if quote else shlex.quote(value))
                filled = reference.end()
                continue
        if quote or piece not in (" ", "\t"):
            out.append(piece)
        elif out[-1:] != [" "]:
            out.append(" ")
    return "".join(out).strip()


def first_variable(command: str) -> str:
    """The first thing in a found command that only a shell can fill in: `$MODEL`, `$(id -u)`; empty for none."""
    for at, piece, quote in scan(command):
        if piece == "$" and quote != "'" and (found := _FILLED_IN.match(command, at)):
            return found[0]
    return ""
