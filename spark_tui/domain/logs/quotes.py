"""Lines as a person pastes them, without what a forum, an editor or a terminal put around them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_QUOTE: Final = re.compile(r"(?:\ufeff)?(?:[ \t]*(?:>|&gt;|▎|│|┃)(?![-=]))+ ?")
_BORDER: Final = re.compile(r" *[│┃] *$")
_BRACKETED: Final = re.compile(r"\[(\d{4}-\d\d-\d\dT[\d:.]{8,18}Z?)\] (?=\S)")
_SPACED: Final = re.compile(  # Docker Desktop's stamps: only in front of what an engine begins with
    r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d{1,9}[+-]\d\d:\d\d)? ?"
    r"(?=time=|\(|\[|INFO|ERROR|WARN|Traceback|  File |[a-z_]+: |\d{4}/)"
)
_SYSLOG: Final = re.compile(  # months as the host's language has them
    r"(?:(?:[^\W\d_]{3,4}\.?|\d{1,2}月) +\d{1,2} )?\d\d:\d\d:\d\d [\w.\-]{1,80} [\w.@\-]{1,80}\[\d+\]: "
)
_GREP: Final = re.compile(
    r"[\w./\-]{1,120}\.(?:log|out|err|txt):(?:\d{1,7}:)?(?=\(\w+ pid=\d|(?:INFO|ERROR|WARNING) \d\d-)"
)
_TAG: Final = re.compile(  # a file of vLLM whose head was cut off, or what a launcher wrote in front
    r"\[(?:\w{1,60}\.py:\d{1,6}|[\w.\- ]{2,40})\] (?=Traceback \(|File \"|\(\w+ pid=|[\w.]{0,80}(?:Error|Exception): )"
)
_BOLD: Final = re.compile(r"\*\*([^*]{3,200})\*\*")
_PROSE: Final = re.compile(r"[^\x00-\x7f]{2,40}[：:] *(?=[a-z(\[])")
_SERVICE: Final = re.compile(r"[\w.@\-]{2,80} +\| ")
_INDENT: Final = re.compile(
    r"(?: {4,12}|\t+| {0,12}\| )(?=\(\w+ pid=\d|(?:INFO|ERROR|WARNING) \d\d-\d\d |\[\d{4}-\d\d-\d\dT)"
)
_MARGIN: Final = re.compile(r" {4,12}|\t+|\| ")
_MARGIN_LINES: Final = 6


class Unquoter:
    """Feed it the lines of one text in their order."""

    def __init__(self) -> None:
        self._service = ""
        """What Compose writes in front of each line of the service that is seen, once it came twice."""
        self._seen = ""
        self._margin = ""
        """The prefix of every line so far."""

    def begin(self, lines: Iterable[str]) -> None:
        """Learns the prefix that all lines of a text begin with, from its first lines."""
        first = [text for text in lines if text.strip(" \t\r|")][:_MARGIN_LINES]
        margins = [found[0] if (found := _MARGIN.match(text)) else "" for text in first]
        least = min(margins, key=len, default="") if len(first) > 1 else ""
        self._margin = least if all(text.startswith(least) for text in first) else ""

    def __call__(self, text: str) -> str:
        """The line as the engine wrote it. One without a sign of quoting is returned as it is."""
        if text[-1:] == "\r":
            text = text.rstrip("\r")
        if self._margin:
            if text.startswith(self._margin):
                text = text[len(self._margin) :]
            elif text.strip(" \t|"):
                self._margin = ""
        first = text[:1]
        if first == "(":
            return text
        if first == "`":  # code in a forum's text
            text = _BOLD.sub(r"\1", text.strip("`"))
        elif first in "\ufeff> \t&▎│┃":
            text = self._unquoted(text)
        if text[:1].isdigit() or text[:1] == "[":
            for stamp in (_BRACKETED, _SPACED):
                if match := stamp.match(text):
                    return f"{'T'.join(match.groups()).rstrip('Z')}Z {text[match.end() :]}"
            if match := _TAG.match(text):
                return text[match.end() :]
        if text[:1].isalnum():
            if match := _SYSLOG.match(text) or _GREP.match(text) or _PROSE.match(text):
                return text[match.end() :]
            return self._without_service(text)
        return text

    def _unquoted(self, text: str) -> str:
        if match := _QUOTE.match(text):
            text = _BORDER.sub("", text[match.end() :]).lstrip("\ufeff")
        if text[:1] == "\ufeff":
            text = text[1:]
        return text[match.end() :] if (match := _INDENT.match(text)) else text

    def _without_service(self, text: str) -> str:
        if self._service and text.startswith(self._service):
            return text[len(self._service) :]
        if " | " in text[:100] and (match := _SERVICE.match(text)):
            if match[0] == self._seen:
                self._service = match[0]
                return text[match.end() :]
            self._seen = match[0]
        return text
