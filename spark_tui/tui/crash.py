"""What is left on the terminal when the control centre breaks: where it broke, and no value of any variable."""

from __future__ import annotations

import traceback

from rich.text import Text

from spark_tui.domain.secret import mask_secrets
from spark_tui.domain.text import clean

REMEDY = "spark-tui has broken; containers go on. Please report this: spark-tui doctor --report FILE writes the rest."


def crash_text(error: BaseException) -> Text:
    """The traceback without locals, which may hold keys, prompts and answers; keys in its messages are masked."""
    told = clean(mask_secrets("".join(traceback.format_exception(error))))
    return Text.assemble(told.rstrip(), "\n\n", (REMEDY, "bold"), "\n")
