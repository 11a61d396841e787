"""What stands in front of a line because somebody carried it: journald, syslog, compose, Kubernetes, Docker's stamps.

An engine never writes these. They are taken off before a line is read, several of them in a row if need be.
"""

from __future__ import annotations

import re
from typing import Final

_LEVELS = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_CLOCK = r"\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_FROM = r"\S{1,80} [^\s:\[\]]{1,120}"
"""Host and program, as syslog names them."""

OUTER: Final = re.compile(
    # journald and syslog: `Nov 21 02:16:18 spark docker[812]: `, with a priority in front, or with a full date
    rf"(?:(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} +\d{{1,2}} {_CLOCK} {_FROM}(?:\[\d+\])?: "
    rf"|[A-Z][a-z]{{2}} \d{{4}}-\d\d-\d\d {_CLOCK} \S{{1,6}} {_FROM}\[\d+\]: "
    # RFC 5424: `<30>1 2026-11-21T02:16:18.123Z spark docker 812 - - `
    r"|<\d{1,3}>1 \S{20,40} \S{1,80} \S{1,120} \S{1,20} \S{1,80} (?:-|\[[^\]]{0,200}\]) "
    # compose `vllm-1  | `, a swarm's `vllm.1.k2j@spark    | `; other names only before what an engine begins with
    r"|[\w.@\-]{0,120}?(?:[\-_]\d{1,3}|\.\d{1,3}\.\w{1,40}(?:@[\w.\-]{1,80})?) +\| "
    rf"|[\w.@\-]{{1,80}} +\| (?=[({{\[]|(?:{_LEVELS})\b|Traceback |  File |[\w.]{{1,80}}(?:Error|Exception): "
    r"|[\w.\-]{1,80} +\|)"
    # kubectl --prefix
    r"|\[pod/[\w.\-/]{1,200}\] "
    # Docker's and Kubernetes' stamps, CRI's stream and flag behind them; journald's ISO form
    r"|(?P<stamp>\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:?\d\d))(?: std(?:out|err) [FP])? "
    rf"(?:{_FROM}\[\d+\]: )?)+"
)
"""`stamp` is an RFC 3339 time among what it takes, if there is one."""
OWN_BEGINNINGS: Final = ("(", "INFO", "WARN", "ERRO", "DEBU", "CRIT", " ", "[0", "[1", "[2", "[T", "[r")
"""How nearly every line of an engine begins. Nobody has put anything in front of such a line: `OUTER` need not look."""
