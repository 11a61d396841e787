"""Records a walk through the demo as an asciinema cast: from Home to a launch, its log, a chat, figures and checks.

python scripts/record.py [FILE]     asciinema play FILE
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import pairwise
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.pty_app import PtyApp, spark_tui  # noqa: E402

TYPING_SECONDS = 0.08
READING_SECONDS = 4.5
IDLE_LIMIT_SECONDS = 3.0
"""A player shortens every longer pause to this."""
TITLE = "spark-tui on a simulated DGX Spark"
PRESET = "gemma-4-26b-a4b-nvfp4"
"""On the demo's disk, so that its launch begins without a download."""
QUESTION = "Why does one memory pool matter?"


def read(app: PtyApp, *texts: str, timeout: float = 60.0, seconds: float = READING_SECONDS) -> None:
    """Waits until the screen shows the texts, then as long as a person reads it."""
    app.wait_for(*texts, timeout=timeout)
    time.sleep(seconds)


def write(app: PtyApp, text: str) -> None:
    """Types as a person does."""
    for letter in text:
        app.send(letter)
        time.sleep(TYPING_SECONDS)


def launch(app: PtyApp) -> None:
    """Finds a preset by its name, looks at its form and launches it."""
    read(app, "[1 Home]", "decode", "docker OK")
    app.send("3")
    read(app, "[3 Presets]", "fits 0")
    app.send("/")
    app.wait_for("filter: ")
    write(app, PRESET[:11])
    read(app, "1 of")
    app.send("enter")
    app.wait_for("l Launch")
    app.send("enter")
    read(app, "^l launch", "docker run")
    app.send("ctrl+l")
    read(app, "[1 Home]", "Weights")


def watch(app: PtyApp) -> None:
    """The log of the start, and Home once it is ready."""
    app.send("4")
    read(app, "[4 Logs]", PRESET)
    app.send("1")
    read(app, f"{PRESET} ready", "url")


def use(app: PtyApp) -> None:
    """A question to the engine that has served for hours, its figures, and a short benchmark."""
    app.send("]")
    app.wait_for("qwen3.6-35b-a3b")
    app.send("6")
    app.wait_for("Message to qwen3.6-35b")
    write(app, QUESTION)
    app.send("enter")
    read(app, "ttft", "drafts")
    app.send("esc", "5")
    read(app, "[5 Metrics]", "KV cache", "TTFT")
    app.send("7")
    app.wait_for("[7 Bench]")
    app.send("b")
    read(app, "^l measure")
    app.send("ctrl+l")
    read(app, "of linear", "done", timeout=180.0)


def record(path: Path) -> None:
    """The whole walk, written to the file."""
    with PtyApp(spark_tui("--demo"), recording=path) as app:
        launch(app)
        watch(app)
        use(app)
        app.send("8")
        read(app, "[8 Doctor]", "Needs attention")
        app.send("q")
        app.wait_end()


def finish(path: Path) -> float:
    """Gives the cast its title and the limit of its pauses. The seconds that a player takes for it."""
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    header = json.loads(first) | {"title": TITLE, "idle_time_limit": IDLE_LIMIT_SECONDS}
    path.write_text("\n".join((json.dumps(header), *lines)) + "\n", encoding="utf-8")
    times = [0.0, *(json.loads(line)[0] for line in lines)]
    return sum(min(IDLE_LIMIT_SECONDS, after - before) for before, after in pairwise(times))


def main() -> None:
    """Records, and says how long and how large the cast is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=REPOSITORY / "assets" / "demo.cast")
    path: Path = parser.parse_args().file
    record(path)
    print(f"{path}  {finish(path):.0f} s  {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
