"""A command as people write it in a recipe, as the words that a container gets.

Recipes are written for bash. Almost all of them are one program with its arguments, and those become plain words:
nothing is interpreted, and PID 1 is the server, which then receives the signal that stops it. A command that uses
the shell (`&&`, pipes, variables, several lines) is found out, and runs as `bash -c` as it is.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

_TRAILING_BLANKS = re.compile(r"\\[ \t]+\n")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE = re.compile(r"\$[A-Za-z_{(0-9@*#?!$'\"-]")
_ESCAPED_IN_QUOTES: Final = ("$", "`", '"', "\\", "\n")
_OPERATORS: Final = frozenset("|&;<>()")
_BUILTINS: Final = frozenset(
    ("exec", "export", "source", ".", "cd", "set", "eval", "ulimit", "trap", "if", "for", "while")
)
SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "zsh"))


def join_lines(command: str) -> str:
    """One text without line continuations, by bash's rules: none within single quotes.

    A continuation with blanks after its backslash is taken as meant, and a last one that continues nothing is dropped.
    """
    text = _TRAILING_BLANKS.sub("\\\\\n", command.strip())
    out: list[str] = []
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            following = text[at + 1 : at + 2]
            if following not in ("\n", ""):
                out.append(char + following)
            at += 2
            continue
        if char in "'\"":
            quote = "" if quote == char else quote or char
        out.append(char)
        at += 1
    return "".join(out).strip()


def shell_construct(command: str) -> str:
    """The first thing in a joined command that only a shell understands, or an empty string."""
    quote = ""
    at = 0
    word_start = True
    while at < len(command):
        char = command[at]
        if char == "\\" and quote != "'":
            at, word_start = at + 2, False
            continue
        found = _special(command, at, quote, word_start)
        if found:
            return found
        if char in "'\"":
            quote = "" if quote == char else quote or char
        word_start = not quote and char.isspace()
        at += 1
    first = command.split(maxsplit=1)[0] if command.strip() else ""
    return first if _ASSIGNMENT.match(first) or first in _BUILTINS else ""


def _special(command: str, at: int, quote: str, word_start: bool) -> str:
    """The shell construct that begins at `at`, if any."""
    char = command[at]
    if quote == "'":
        return ""
    if char == "`" or (char == "$" and _VARIABLE.match(command, at)):
        return char
    if quote:
        return ""
    if char in _OPERATORS:
        return command[at : at + 2] if command[at : at + 2] in ("&&", "||", ">>", "<<") else char
    if char == "\n":
        return "several lines"
    return char if char in "#~" and word_start else ""


def split_words(command: str) -> tuple[str, ...]:
    """A joined command without shell constructs as bash would pass its words. Raises ValueError for an open quote.

    `shlex` differs: it keeps the backslash of `\\$` and `` \\` `` within double quotes.
    """
    words: list[str] = []
    word: list[str] = []
    begun = False
    quote = ""
    at = 0
    while at < len(command):
        char = command[at]
        at += 1
        if char == "\\" and quote != "'":
            following = command[at : at + 1]
            word.append(following if not quote or following in _ESCAPED_IN_QUOTES else char + following)
            at += 1
            begun = True
        elif char == quote or (not quote and char in "'\""):
            quote = "" if quote else char
            begun = True
        elif quote or not char.isspace():
            word.append(char)
            begun = True
        elif begun:
            words.append("".join(word))
            word, begun = [], False
    if quote:
        raise ValueError(f"no closing {quote}")
    return (*words, "".join(word)) if begun else tuple(words)


def is_shell(argv: tuple[str, ...]) -> bool:
    """Whether a command is a script for a shell: `bash -c ...`, `bash -lc ...`."""
    return len(argv) > 2 and argv[0].rpartition("/")[2] in SHELLS and re.fullmatch(r"-[a-z]*c", argv[1]) is not None


def words_of(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The words to look for options in: the command's own, or those of its script as far as they can be read."""
    if not is_shell(argv):
        return argv
    lexer = shlex.shlex(join_lines(argv[2]), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        return tuple(argv[2].split())
    return tuple(words)
