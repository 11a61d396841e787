"""`spark-tui`, and `python -m spark_tui`."""

from __future__ import annotations

import gc
import sys
from types import TracebackType


def tell_crash(_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A fault of this program on standard error, keys and tokens in its messages masked."""
    import traceback

    from spark_tui.base.secret import mask_secrets

    sys.stderr.write(mask_secrets("".join(traceback.format_exception(type(error), error, trace))))


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    sys.excepthook = tell_crash
    # The many objects of a start are all kept: one look for garbage among them costs a short command a seventh. What
    # runs for long looks more often: `Session`, and the screen by its own clock.
    gc.set_threshold(500_000)
    try:
        from spark_tui.app.main import run
    except KeyboardInterrupt:  # pressed while the program was still being loaded
        sys.exit(130)
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        gc.freeze()  # what is left goes with the process: the interpreter's last collections read none of it


if __name__ == "__main__":
    main()
