"""The key that frees the page cache: one press where that is allowed, a question where it needs an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from spark_tui.core.cache import Prospect
from spark_tui.domain.errors import RefusedError, SparkError
from spark_tui.domain.quantities import human_bytes

if TYPE_CHECKING:
    from spark_tui.tui.app import SparkApp

UNCHANGED = "Usable memory stays as it is; what CUDA counts as free grows."


async def drop_cache(app: SparkApp) -> None:
    """Asks where something is to be asked, drops, and says what came of it."""
    cache = app.context.cache
    try:
        prospect = await cache.prospect()
        question = question_of(prospect)
        if question and not await _agreed(app, prospect, question):
            return
        consent = prospect.route is None and prospect.consent is not None
        result = await cache.drop(consent=consent, on_terminal=lambda argv: _on_terminal(app, argv))
    except SparkError as error:
        app.report(error)
    else:
        app.notify(result.sentence, timeout=10, markup=False)


def question_of(prospect: Prospect) -> str:
    """What a person must agree to first; empty when nothing stands against it."""
    words = [prospect.warning] if prospect.warning else []
    if prospect.route is None:
        if prospect.consent is not None:
            words.append(f"It needs root: a container of {prospect.consent.image} may do it, and ends at once.")
        elif prospect.terminal is not None:
            words.append("It needs root: sudo asks for your password on this terminal. spark-tui never sees it.")
        words.append("To allow it for good: spark-tui drop-caches --install")
    return "\n".join(words)


async def _agreed(app: SparkApp, prospect: Prospect, question: str) -> bool:
    from spark_tui.tui.screens.modals import ConfirmScreen

    size = f" About {human_bytes(prospect.droppable)} of it." if prospect.droppable else ""
    screen = ConfirmScreen(f"Free the page cache?{size}", f"{UNCHANGED}\n{question}", verb="Free")
    answer = await app.push_screen_wait(screen)
    return answer is True


async def _on_terminal(app: SparkApp, argv: Sequence[str]) -> int:
    """Raises what the program's start raises once the screen is back: an error that left the block would leave it
    suspended."""
    problem: SparkError | None = None
    code = 0
    try:
        with app.suspend():
            try:
                code = app.context.cache.dropper.on_terminal(argv)
            except SparkError as error:
                problem = error
    except SuspendNotSupported:
        raise RefusedError(
            "This terminal cannot be lent to sudo.", "Run it in a shell: spark-tui drop-caches"
        ) from None
    if problem is not None:
        raise problem
    return code
