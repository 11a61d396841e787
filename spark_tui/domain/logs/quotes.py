"""Lines as a person pastes them, without what a forum, an editor or a terminal put around them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_tui.domain.logs.line import OUTER
from spark_tui.domain.text import lazy_pattern

_QUOTE: Final = lazy_pattern(r"(?:\ufeff)?(?:[ \t]*(?:>|&gt;|▎|│|┃)(?![-=]))+ ?")
_BORDER: Final = lazy_pattern(r" *[│┃] *$")
_BRACKETED: Final = lazy_pattern(r"\[(\d{4}-\d\d-\d\dT[\d:.]{8,18}Z?)\] (?=\S)")
_SPACED: Final = lazy_pattern(  # Docker Desktop's stamps: only in front of what an engine begins with
    r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d{1,9}(?:[+-]\d\d:\d\d)?)? ?(?=time=|\(|\[|INFO|ERROR|WARN|Traceback|"
    r"  File |[a-z_]+: |[\w.]{1,80}Error: |\d{4}/)"
)
_DESKTOP: Final = lazy_pattern(  # its window's own form, and no logger's of Python with a level in a column
    r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d\.\d{3}) \| (?![A-Z]{4,8} +\|)"
)
_LINK: Final = lazy_pattern(r"\[([^\[\]]{1,40})\]\(tel:[^()]{1,40}\)")
"""A time that a browser took for a telephone number."""
_WRAPPED: Final = lazy_pattern(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - __main__ - [A-Z]{4,8} - ?")
"""A script that repeats what its child says."""
_SYSLOG: Final = lazy_pattern(  # months as the host's language has them
    r"(?:(?:[^\W\d_]{3,4}\.?|\d{1,2}月) +\d{1,2} )?\d\d:\d\d:\d\d [\w.\-]{1,80} [\w.@\-]{1,80}\[\d+\]: "
)
_GREP: Final = lazy_pattern(
    r"[\w./\-]{1,120}\.(?:log|out|err|txt):(?:\d{1,7}:)?(?=\(\w+ pid=\d|(?:INFO|ERROR|WARNING) \d\d-|"
    r"\[\d{4}-\d\d-\d\d |Traceback \(|  File |[\w.]{1,80}Error: )"
)
_TAG: Final = lazy_pattern(  # a file of vLLM whose head was cut off, or what a launcher wrote in front
    r"\[(?:\w{1,60}\.py:\d{1,6}|[\w.\- ]{2,40})\] (?=Traceback \(|File \"|\(\w+ pid=|[\w.]{0,80}(?:Error|Exception): )"
)
_LAUNCHED: Final = lazy_pattern(  # a launcher's own stamp or stream: `[14:51:59] `, `[router stdout] [52717] `
    r"\[\d\d:\d\d:\d\d\] (?=\S)|\[[\w.\- ]{1,60} std(?:out|err)\] ?(?:\[\d{1,10}\] ?)?|"
    r"\[\d{4,5}\] (?=(?:cmn|srv|slot|que) +\w|CUDA error|  \w|\w+_\w+: |main: |terminate called|\S{0,200}ggml)"
)
_SERVERS: Final = lazy_pattern(  # LocalAI's and LM Studio's own heads
    r"[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d (?:DEBUG|INFO|WARN|ERROR) +(?=\S)|"
    r"\d{1,2}:\d\d[AP]M (?:TRC|DBG|INF|WRN|ERR|FTL) |"
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?\] ?\[(?:INFO|DEBUG|WARN|"
    r"ERROR)\] ?(?:\[(?!LM )[^\[\]]{1,80}\] ?)?(?=\S)"
)
_EMPHASIS: Final = lazy_pattern(
    r"(?:[*_]{2,3}|[*+\-\u2022] )(?=\(\w+ pid=|(?:INFO|ERROR|WARNING) \d\d-|[\w.]{1,80}Error: )"
)
_NUMBERED: Final = lazy_pattern(  # by grep, or by srun: the task's number
    r"\d{1,7}(?:[:\-]|: )(?=\(\w+ pid=\d|(?:INFO|ERROR|WARNING) \d\d-|\[\d{4}-\d\d-\d\d |[\w.]{1,80}Error: |"
    r"Traceback \(|  File )"
)
_BEHEADED: Final = lazy_pattern(
    r"\w{1,40} pid=\d{1,10}\) ?|"
    r"(?:\w{0,40}\.?py:\d{1,6}|:?\d{0,6})\] (?=[\w.]{1,80}(?:Error|Exception): |Traceback \(|  File )"
)
_BOLD: Final = lazy_pattern(r"\*\*([^*]{3,200})\*\*")
_PROSE: Final = lazy_pattern(r"[^\x00-\x7f]{2,40}[：:] *(?=[a-z(\[])")
_SERVICE: Final = lazy_pattern(r"[\w.@\-]{2,80} +\| ")
_ENGINE: Final = lazy_pattern(r"vllm|sglang|llama|trtllm")
"""In the name of a service: an engine's."""
_INDENT: Final = lazy_pattern(
    r"(?: {4,12}|\t+| {0,12}\| )(?=\(\w+ pid=\d|(?:INFO|ERROR|WARNING) \d\d-\d\d |\[\d{4}-\d\d-\d\dT)"
)
_EMBEDDED: Final = lazy_pattern(  # whatever a collector of logs put in front of a process of vLLM's
    r"(?:\(\w+ pid=\d{1,10}(?:, ip=[\w.:]{1,40})?\) ?){1,3}(?=(?:INFO|ERROR|WARNING|CRITICAL|DEBUG) \d\d-\d\d |"
    r"Traceback \(|  File )"
)
_NATIVE: Final = lazy_pattern(  # llama.cpp within another server: `DEBUG GRPC(model-127.0.0.1:38219): stderr llama_...`
    r".{0,200}?[:\]\- ] ?(?:std(?:err|out)|MODEL_LOG|\(Process\)) (?:- )?(?=\d{1,5}\.\d\d\.\d{3}\.\d{3} [EWID] |"
    r"[A-Za-z_][\w.]{1,100}(?:Error|Exception): |  File |Cannot access |Access to model |    |\w+: |\S{0,120}ggml|"
    r"CUDA error|error |terminate called|Traceback)"
)
_BROKEN_COLOUR: Final = lazy_pattern(
    r"(?:\ufffd|\u2190|\u241b|\^\[|\\x1b|\\033|\\u001b)\[[\d;]{0,12}m|(?<![\w\]\x1b])\[(?:0;0|[01];3\d|3\d|0)m|"
    r"(?<=\))\[0(?:;0)?m"
)
"""Colours whose first sign was lost on the way: `[1;36m(EngineCore pid=7)[0;0m `."""
_MARGIN: Final = lazy_pattern(r" {4,12}|\t+|\| ")
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
        if text[:2] == "^C":  # what a terminal shows of Ctrl-C
            text = text[2:]
        if ("[" in text[:8] and "m" in text[:16]) or "^[[" in text:
            text = _BROKEN_COLOUR.sub("", text)
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
        elif first in "*_-+\u2022" and (match := _EMPHASIS.match(text)):
            text = text[match.end() :].rstrip("*_")
        elif first in "\ufeff> \t&▎│┃":
            text = self._unquoted(text)
        if text[:1].isdigit() or text[:1] == "[":
            if match := _WRAPPED.match(text) or _SERVERS.match(text):
                return _without_collector(text[match.end() :])
            if "](tel:" in text:
                text = _LINK.sub(r"\1", text)
            for stamp in (_BRACKETED, _SPACED, _DESKTOP):
                if match := stamp.match(text):
                    return f"{'T'.join(match.groups()).rstrip('Z')}Z {text[match.end() :]}"
            if match := _TAG.match(text) or _LAUNCHED.match(text) or _NUMBERED.match(text):
                return text[match.end() :]
        headless = "] " in text[:60] or " pid=" in text[:48]  # a prefix whose head was cut off
        if headless and (match := _BEHEADED.match(text)):
            return text[match.end() :]
        if text.startswith("Message: '"):  # how Python's logging shows what it could not write
            return text[10:].rstrip("'")
        if text[:1].isalnum():
            if match := _SYSLOG.match(text) or _GREP.match(text) or _PROSE.match(text) or _SERVERS.match(text):
                return text[match.end() :]
            plain = self._without_service(text)
            return _without_collector(plain) if plain is text else plain
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
            if match[0] == self._seen or _ENGINE.search(match[0]):
                self._service = match[0]
                return text[match.end() :]
            self._seen = match[0]
        return text


def unglued(text: str) -> list[str]:
    """The lines that a paste has lost its line breaks between: one process's prefix comes again and again, a line
    follows a bar, or an exception a person's words."""
    bars = _BAR_END.split(text) if "/s]" in text or "/it]" in text else [text]
    return [line for each in bars for line in _sentences(each)]


def _sentences(text: str) -> list[str]:
    """Of a piece between two bars: a person's words and the engine's, or the lines of one process."""
    if not _LOGGED.match(text) and (inline := _INLINE.search(text, 1)):
        before = text[: inline.start()]
        return [text] if _SUPPOSED.search(before) else [before, inline[1] or inline[2]]
    if text.count(" pid=") < _GLUED or (found := _PROCESS.search(text)) is None or text.count(found[0]) < _GLUED:
        return [text]
    first, *others = text.split(found[0])
    return [line for line in (first, *(found[0] + each for each in others)) if line.strip()]


_BAR_END: Final = lazy_pattern(
    r"(?:(?<=/s\])|(?<=/it\]))(?=\[\d{4}-\d\d-\d\d |\(\w+ pid=\d|(?:INFO|ERROR|WARNING) \d\d-\d\d )"
)
_INLINE: Final = lazy_pattern(
    r"(?:(?:```|[\"“]|[^\x00-\x7f][：:] ?)((?:[A-Za-z_][\w.]{0,80}(?:Error|Exception): |"
    r"[\w.]{1,60}: error: (?:unrec|argument -))[^`\"”]{3,2000})|"
    r"[`\"“]{1,3}((?:\(\w{1,40} pid=\d|(?:INFO|ERROR|WARNING) \d\d-\d\d |Engine \d{3}: Avg prompt)[^`\"”]{3,2000}))"
)
"""A line of an engine's within a person's sentence, in quotation marks or behind a colon of Chinese."""
_LOGGED: Final = lazy_pattern(
    r"\s|\[|\(|\{|[A-Za-z]{1,10}=|\d|[A-Z]{4,8}[: ]|[\w.]{1,80}(?:Error|Exception):|[!-~]{1,80}: |\S{1,60} +\| "
)
"""With what lines of programs begin, and no sentence."""
_SUPPOSED: Final = lazy_pattern(r"\b(?:[Ii]f|[Uu]nless|may|might|can|could|would|should|no longer|fixed|instead of)\b")
_GLUED: Final = 3
_PROCESS: Final = lazy_pattern(r"\(\w{1,40} pid=\d{1,10}\)")


def _without_collector(text: str) -> str:
    """Without the words of a collector or of a server around the engine, where no other reader knows their form."""
    if " pid=" in text:
        match = _EMBEDDED.search(text, 1, 400)
        return text[match.start() :] if match and not OUTER.match(text) else text
    match = (
        _NATIVE.match(text)
        if (" std" in text[:200] or "MODEL_LOG" in text[:200] or "(Process)" in text[:200])
        else None
    )
    return text[match.end() :] if match else text
