"""What a simulated server counts of one chat while it answers."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.chat import ChatEvent, ContentDelta, Finished, ReasoningDelta, Usage
from spark_tui.services.demo.tally import Tally
from spark_tui.services.ports import Clock

TOKENS_PER_STEP: Final = 2.9


class ChatCount:
    """Feed it every event of an answer; `end` when it is over, however it ended."""

    def __init__(self, tally: Tally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._began = self._last = clock.monotonic()
        self._first = True
        self._reason = "abort"  # the client went away, unless the answer says otherwise
        tally.running += 1

    def event(self, event: ChatEvent) -> None:
        """A token, the end, or the counts."""
        if isinstance(event, ContentDelta | ReasoningDelta) and event.text:
            self._token()
        elif isinstance(event, Finished):
            self._reason = event.reason or "stop"
        elif isinstance(event, Usage):
            self._tally.prompt(event.prompt_tokens, event.cached_tokens or 0)

    def _token(self) -> None:
        now = self._clock.monotonic()
        if self._first:
            self._first = False
            self._tally.ttft.observe(now - self._began)
            self._tally.generated += 1
        else:
            self._tally.step(1.0, 1 / TOKENS_PER_STEP, (now - self._last) * TOKENS_PER_STEP)
        self._last = now

    def end(self) -> None:
        """The slot is free."""
        self._tally.running -= 1
        self._tally.request(self._reason, self._clock.monotonic() - self._began)
