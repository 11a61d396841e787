"""Variables in texts: the parameter expansion of Compose files and of shells, and files of variables. Nothing is run.

Sources: the Compose specification (interpolation), POSIX 2.6.2 and bash's manual (parameters, arrays, word splitting),
systemd.exec (EnvironmentFile=).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from spark_tui.base.secret import is_secret_name

_PLAIN = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")
_COMPOSE = re.compile(r"\{?[A-Za-z_]")
_BRACED = re.compile(r"(?P<length>#(?=[A-Za-z_]))?(?P<name>[A-Za-z_]\w*|\d+|[@*#?!$-])(?P<all>\[[@*]\])?")
_OPERATOR = re.compile(r":?[-=?+]|%%?|##?|\Z")
BREAK = re.compile(r"\n|;;&?|;&?|&&|\|\|?|&(?![>\d])|\)")
"""What ends a statement of a shell."""
BLANK = re.compile(r"[ \t\n]+")
_LONGEST: Final = 10_000
"""Characters between a dollar and its closing bracket."""
_NEAR: Final = 40
_ARGUMENT: Final = "an argument"
_HERE = re.compile(r"<<-?[ \t]*['\"]?(\w+)['\"]?")
_REDIRECTION = re.compile(r"\d?(?:>>?|<<?<?|&>>?)(?:&?[ \t]*[^\s<>&|;]+)?")
_WHOLE_ARRAY = re.compile(r"\"(?=\$(?:\{[A-Za-z_]\w*\[@\]|@\"))")
_ENV_LINE = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.-]*)[ \t]*=[ \t]*"
    r"(?P<value>'[^']*'|\"(?:[^\"\\]|\\.)*\"|[^\n]*?)(?P<after>(?:(?:[ \t]+|(?<=[ \t]))#[^\n]*)?)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


class Variables:
    """Values by name, and what was asked for and has none.

    `arrays` are lists of words; `unknown` what a variable would need that could not be worked out; `missing` what the
    texts since the last `take_missing` would need, with its author's words. A variable whose name is that of a key is
    never filled in: `$HF_TOKEN` stays, as text.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.arrays: dict[str, list[str]] = {}
        self.unknown: dict[str, dict[str, str]] = {}
        self.reasons: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def take_missing(self) -> dict[str, str]:
        found, self.missing = self.missing, {}
        return {name: why or self.reasons.get(name, "") for name, why in found.items()}

    def compose(self, text: str) -> str:
        """The text by Compose's rules: `$X`, `${X}`, defaults that are texts of their own, `$$` for a dollar."""
        out: list[str] = []
        at = 0
        while at < len(text):
            sign = text.find("$", at) % (len(text) + 1)
            out.append(text[at:sign])
            at = sign + 1
            if text[at : at + 1] == "$":
                out.append("$")
                at += 1
            elif _COMPOSE.match(text, at) and (found := self.parameter(text, sign, self.compose)):
                out += found[0]
                at = found[1]
            else:
                out.append(text[sign:at])
        return "".join(out)

    def parameter(self, text: str, at: int, fill: Callable[[str], str]) -> tuple[list[str], int] | None:
        """The value of the parameter whose dollar is at `at`, one text or the words of an array, and where the text
        continues. `fill` reads the word of an operator. None for what is none."""
        if text[at + 1 : at + 2] != "{":
            plain = _PLAIN.match(text, at + 1)
            if plain is not None and plain[0] in "@*":
                return self.arrays.get(plain[0], []), plain.end()
            return None if plain is None else ([self.value(plain[0], "", fill, "")], plain.end())
        end, depth = at + 2, 1
        close = text.find("}", at, at + _LONGEST)
        if close < 0 or text.count("${", at, close) > _NEAR:
            return None
        while end < min(len(text), at + _LONGEST) and depth:
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1 + (text[end] == "\\")
        inner = text[at + 2 : end - 1]
        named = _BRACED.match(inner)
        operator = _OPERATOR.match(inner, named.end()) if named else None
        if depth or named is None or operator is None:
            return None
        name, word = named["name"], inner[operator.end() :]
        if named["all"] or name in "@*":
            words = self.arrays.get(name, [])
            words = [" ".join(words)] if words and "*" in (name, (named["all"] or "")[1:2]) else words
            return ([str(len(words))] if named["length"] else words or [fill(word)] * (operator[0] in ("-", ":-"))), end
        found = self.value(name, operator[0], fill, word)
        return [str(len(found)) if named["length"] else found], end

    def words(self, text: str, *, split: bool = True) -> list[str]:
        """The words of a shell's command by bash's rules, without its redirections and comment; without `split` at most
        one, as of an assignment."""
        words: list[str] = []
        word: str | None = None
        at, quote = 0, ""
        while at < len(text):
            char, end, parts = text[at], at + 1, [text[at : at + 1]]
            if quote == "'" != char:
                pass
            elif char == "\\":
                end, after = at + 2, text[at + 1 : at + 2]
                parts = [] if after == "\n" else [char + after if quote and after not in '$`"\\' else after]
            elif not quote and _WHOLE_ARRAY.match(text, at) and (found := self._dollar(text, at + 1)):
                parts, end = found[0], found[1] + 1
            elif char in ("'", '"') and quote in ("", char):
                quote, parts = ("" if quote else char), [""]
            elif char in "$`" and (found := self._dollar(text, at)):
                parts, end = found
                if not quote and split:
                    parts = [piece for part in parts for piece in BLANK.split(part)]
                    parts = parts[:-1] if word is None and parts == [""] else parts
            elif quote:
                pass
            elif split and (
                (blank := BLANK.match(text, at)) or (blank := _REDIRECTION.match(text, at) if char in "<>&12" else None)
            ):
                words += [] if word is None else [word]
                word, end, parts = None, blank.end(), []
            elif char == "#" and word is None:
                end, parts = text.find("\n", at) % (len(text) + 1), []
            elif char == "~" and word is None and text[at + 1 : at + 2] in ("", "/", " "):
                parts = [self.values.get("HOME", "~")]
            for nth, part in enumerate(parts):
                if nth and word is not None:
                    words.append(word)
                    word = None
                word = (word or "") + part if part or quote or word is not None or len(parts) == 1 else None
            at = end
        return words if word is None else [*words, word]

    def _dollar(self, text: str, at: int) -> tuple[list[str], int] | None:
        """The parameter, or the output of a command, whose dollar or backquote is at `at`."""
        if text[at] != "`" and not text.startswith("$(", at):
            return self.parameter(text, at, lambda word: " ".join(self.words(word)))
        end, depth = at + 2, 1
        while text[at] == "$" and end < min(len(text), at + _LONGEST) and depth:
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        if text[at] == "`":
            end = text.find("`", at + 1) % (len(text) + 1) + 1
        return [self.output(text[at + 1 + (text[at] == "$") : end - 1])], end

    def output(self, command: str) -> str:
        """What a command within a text prints: unknown, as nothing is run."""
        self._want(f"$({command.strip()})", "the output of a command")
        return ""

    def value(self, name: str, operator: str, fill: Callable[[str], str], word: str) -> str:
        """The value of a parameter with an operator and its word; empty, and noted as missing, where it has none."""
        found, unknown = self.values.get(name), self.unknown.get(name)
        there = self.undecided(name) or (found is not None and (found != "" or ":" not in operator))
        if operator[-1:] == "+":
            return fill(word) if there else ""
        if is_secret_name(name):
            return f"${name}"
        if operator[-1:] in ("-", "=") and not there:
            found = fill(word)
            if operator[-1] == "=":
                self.values[name] = found
            return found
        if unknown is not None:
            self.missing |= unknown
        elif not there:
            self._want(name, fill(word) if operator[-1:] == "?" else _ARGUMENT * name.isdigit())
        return trimmed(found or "", operator, word) if operator[:1] in ("%", "#") else found or ""

    def undecided(self, name: str) -> bool:
        """Whether a variable has a value that only a shell knows; else it has a known one, or is as empty as what it
        was made of."""
        return any(why not in ("", _ARGUMENT) for why in self.unknown.get(name, {}).values())

    def _want(self, name: str, why: str) -> None:
        self.missing[name] = self.missing.get(name) or why
        self.reasons.setdefault(name, why)

    def assign(self, name: str, value: str | list[str]) -> None:
        """Sets a variable or array; what was missing since the last `take_missing` makes it unknown."""
        self.unknown.pop(name, None)
        if missing := self.take_missing():
            self.unknown[name] = missing
        if isinstance(value, str):
            self.values[name] = value
        else:
            self.arrays[name] = value


def trimmed(value: str, operator: str, word: str) -> str:
    """`${X%.gguf}`, `${X##*/}`: without the shortest or longest end or beginning that fits a pattern."""
    sizes = range(len(value) + 1) if len(operator) == 1 else range(len(value), -1, -1)
    if operator[0] == "%":
        cut = next((size for size in sizes if fnmatchcase(value[len(value) - size :], word)), 0)
        return value[: len(value) - cut]
    return value[next((size for size in sizes if fnmatchcase(value[:size], word)), 0) :]


def read_env(text: str, variables: Variables | None = None) -> dict[str, str]:
    """The variables of an `.env` file, by Compose's rules: a line may name those above it and known ones, which count
    more; a comment ends a line.
    Without `variables` by systemd's, where a dollar, and a # behind a value, are part of it."""
    found: dict[str, str] = {}
    known = Variables({}) if variables is None else variables
    inner = Variables(known.values)
    for line in _ENV_LINE.finditer(text.replace("\r\n", "\n")):
        value, quote = line["value"], line["value"][:1]
        if quote in ("'", '"') and len(value) > 1:
            value = value[1:-1]
        elif variables is None:
            value += line["after"]
        if quote == '"':
            value = _ESCAPED.sub(lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), value)
        if variables is not None and quote != "'":
            value = inner.compose(value)
        found[line["name"]] = value
        inner.values.setdefault(line["name"], value)
    return found


def pieces(text: str, breaks: re.Pattern[str]) -> Iterator[tuple[int, str, str]]:
    """A shell's text at each break outside quotes, brackets and comments: line, text, and what ended it. The bodies of
    here-documents are left out."""
    line, begins, quote, here = 1, 0, "", ""
    piece: list[str] = []
    closing: list[str] = []
    at = 0
    while at < len(text):
        char, end = text[at], at + 1
        if char == "\\" and quote != "'":
            end = at + 2
            if text[at:end] == "\\\n":
                line, at = line + 1, end
                continue
        elif quote:
            quote = "" if char == quote else quote
        elif char in ("'", '"', "`"):
            quote = char
        elif char == "#" and (at == 0 or text[at - 1] in " \t\n;("):
            alone = text[max(0, at - _NEAR) : at].rstrip(" \t").endswith("\\\n")  # within a command
            at = text.find("\n", at) % (len(text) + 1) + alone
            line += alone
            continue
        elif char == "<" and (document := _HERE.match(text, at)):
            here, end = document[1], document.end()
        elif char == "(" and (closing or "".join(piece[-_NEAR:]).strip()):
            closing.append(")")
        elif char == "{" and text[at - 1 : at] == "$":
            closing.append("}")
        elif closing and char == closing[-1]:
            closing.pop()
        elif not closing and (found := breaks.match(text, at)):
            yield begins or line, "".join(piece).strip(), found[0]
            piece, begins, end = [], 0, found.end()
            if here and "\n" in found[0]:
                body = re.compile(rf"^[ \t]*{here}[ \t]*$", re.MULTILINE).search(text, end)
                end, here = body.end() if body else len(text), ""
            line += text.count("\n", at, end)
            at = end
            continue
        elif char == "(":
            at = end
            continue
        piece.append(text[at:end])
        begins = begins or (0 if char.isspace() else line)
        line += text.count("\n", at, end)
        at = end
    yield begins or line, "".join(piece).strip(), ""
