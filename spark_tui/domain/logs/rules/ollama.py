"""Rules for Ollama, in outline. Texts were read in 0.2 to 0.12.

It is ready as soon as it listens; a model is loaded with the first request for it, which is its warm-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from spark_tui.domain.logs.line import NUMBER, number
from spark_tui.domain.logs.rules.rule import Enter, Fact, NewStart, Rule, Sign, Table, Warm, found, learn, table
from spark_tui.domain.logs.timeline import PhaseId as P


def _by_go(pattern: str, facts: Callable[[re.Match[str]], Iterable[Fact]]) -> Rule:
    """A rule for lines that a program in Go wrote."""
    return found(pattern, lambda match, known: facts(match) if ".go:" in known.record.source else ())


def memory(match: re.Match[str]) -> Iterator[Fact]:
    """`model weights device=CUDA0 size="18.8 GiB"`, `kv cache device=CUDA0 size="936.0 MiB"`."""
    gib = round(number(match[2]) / (1024 if match[3] == "MiB" else 1), 2)
    yield learn(load_gib=gib) if match[1] == "model weights" else learn(kv_gib=gib)


OLLAMA: Final[Table] = table(
    ("server", _by_go(r"server config env=", lambda _m: (NewStart("ollama"), Enter(P.CONFIG)))),
    ("Listening", _by_go(
        r"Listening on (\S{1,100}) \(version ([\w.\-+]{1,60})\)",
        lambda m: (learn(version=m[2], url=f"http://{m[1]}"), Enter(P.SERVER), Sign.READY),
    )),
    ("model kv", _by_go(rf'(model weights|kv cache) .*?size="{NUMBER} (MiB|GiB)"', memory)),
    ("llama", _by_go(rf"llama runner started in {NUMBER} seconds", lambda m: (Warm(number(m[1])),))),
)  # fmt: skip
