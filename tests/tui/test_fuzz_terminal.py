"""Whatever a terminal sends, on every screen: the control centre lives, answers a key, and leaves the terminal whole.

`SPARK_TUI_FUZZ_SECONDS` is how long all rounds take together (default 60), `SPARK_TUI_FUZZ_SEED` the seed of the
first one, as a failure prints it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pty_app import PtyApp, spark_tui

ROUNDS = 3
SECONDS = float(os.environ.get("SPARK_TUI_FUZZ_SECONDS", "60")) / ROUNDS
SEED = int(os.environ.get("SPARK_TUI_FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
PATIENCE = 240.0
SCREENS = "12345678mM"
LAID_OUT = (120, 36)
PIECES = 15
F1 = "\x1bOP"
KEYS_SHOWN = "Keys "
QUITS = bytes.maketrans(b"qQ\x03\x11\x1a", b"xX\x05\x12\x0b")
"""Keys that end the program are left out of noise: a new start takes longer than what it would find."""
KEYS = (b"\r", b"\r", b"\t", b"\x1b", b"\x7f", b" ", b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D", b"\x1b[5~", b"\x1b[6~",
        b"\x1b[H", b"\x1b[F", b"\x1b[Z", b"\x1b[3~", b"\x1bOP", b"\x1bOQ", b"\x1b[24~", b"\x1b[1;5C")  # fmt: skip
PASTED = (b"caf\xe9", b"a\nb\r\nc", b"\xff\xfe\x00[/]", "é漢字🙂\u202e".encode(), b"\x1b[31mred", b"9" * 5000,
          b"docker run --gpus all vllm/vllm-openai --model x", b"\xe2\x82", b"{\"a\": [[[")  # fmt: skip
REPORTS = (b"\x1b[I", b"\x1b[O", b"\x1b[?2026;2$y", b"\x1b[?2048;1$y", b"\x1b[?2048;2$y", b"\x1b[12;40R",
           b"\x1b[?62;22c", b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", b"\x1bP1+r\x1b\\", b"\x1b[48;0;0;0;0t",
           b"\x1b[48;9999;9999;1;1t", b"\x1b[48;999999999;999999999;0;0t", b"\x1b[4294967296u", b"\x1b[97:65;2u",
           b"\x1b[55296u", b"\x1b[:;u", b"\x1b[1;999999999999A", b"\x1b[", b"\x1b[<", b"\x1bO", b"\x1b[200~",
           b"\x1b[201~")  # fmt: skip


class Noise:
    """What a terminal may send, at random."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._kinds: tuple[Callable[[], bytes], ...] = (
            self.raw, self.raw, self.keys, self.keys, self.keys, self.click, self.click, self.old_click, self.paste,
            self.report, self.sequence,
        )  # fmt: skip

    def next(self) -> bytes:
        """Some bytes."""
        return self.chance.choice(self._kinds)()

    def raw(self) -> bytes:
        return self.chance.randbytes(self.chance.randint(1, 24)).translate(QUITS)

    def keys(self) -> bytes:
        printable = bytes(self.chance.randrange(32, 127) for _ in range(self.chance.randint(0, 3))).translate(QUITS)
        return printable + self.chance.choice(KEYS)

    def click(self) -> bytes:
        button, x, y = (
            self.chance.choice((0, 1, 2, 32, 35, 64, 65)),
            self.chance.randint(-3, 300),
            self.chance.randint(-3, 90),
        )
        return b"\x1b[<%d;%d;%dM\x1b[<%d;%d;%dm" % (button, x, y, button, x, y)

    def old_click(self) -> bytes:
        return b"\x1b[M" + self.chance.randbytes(3).translate(QUITS)

    def paste(self) -> bytes:
        return b"\x1b[200~" + self.chance.choice(PASTED) + b"\x1b[201~"

    def report(self) -> bytes:
        return self.chance.choice(REPORTS)

    def sequence(self) -> bytes:
        inside = bytes(self.chance.choice(b"0123456789;:<?") for _ in range(self.chance.randint(0, 14)))
        return b"\x1b[" + inside + bytes([self.chance.choice(b"ABCDEFHMPRSZcmnrtuy~")])


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A new user's home."""
    folders = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    return {"HOME": str(tmp_path), **folders, "TMUX": ""}


def answers(app: PtyApp) -> None:
    """In a window of an ordinary size, F1 shows the keys of the place, and Esc closes them."""
    app.send_bytes(b"\x1b[201~")
    app.resize(*LAID_OUT)
    for key, shown in ((F1, True), ("esc", False)):
        until = time.monotonic() + PATIENCE
        while app.alive and (KEYS_SHOWN in app.text()) is not shown:
            assert time.monotonic() < until, app.text()
            app.send(key)
            with suppress(AssertionError):
                app.wait_until(lambda app: (KEYS_SHOWN in app.text()) is shown, 3.0)  # noqa: B023 - called at once
        assert "Restart spark-tui" not in app.text()


def leaves(app: PtyApp) -> None:
    """By the key for it, and `y` where a dialog asks."""
    until = time.monotonic() + PATIENCE
    while app.alive:
        assert time.monotonic() < until, app.text()
        app.send("ctrl+q")
        with suppress(AssertionError):
            app.wait_end(3.0)
        if app.alive:
            app.send("y", "esc")


def on_screens(chance: random.Random) -> Iterator[str]:
    while True:
        yield from chance.sample(SCREENS, len(SCREENS))


@pytest.mark.timeout(SECONDS * 5 + 600)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_whatever_the_terminal_sends_the_program_lives(environ: dict[str, str], tmp_path: Path, number: int) -> None:
    seed = SEED + number
    print(f"SPARK_TUI_FUZZ_SEED={seed}")
    chance, recording = random.Random(seed), tmp_path / "bytes.cast"
    noise, screens, end = Noise(chance), on_screens(chance), time.monotonic() + SECONDS
    with PtyApp(spark_tui("--demo"), columns=120, rows=36, env=environ, recording=recording) as app:
        app.wait_for("1 Home", "qwen3.6-35b", timeout=PATIENCE)
        while app.alive and time.monotonic() < end:
            app.send(next(screens))
            for _ in range(PIECES):
                if chance.random() < 0.3:
                    for _ in range(chance.choice((1, 1, 20))):
                        app.resize(chance.randint(1, 240), chance.randint(1, 70))
                        time.sleep(0.005)
                else:
                    app.send_bytes(noise.next())
                time.sleep(chance.choice((0.0, 0.005, 0.03)))
            answers(app)
        leaves(app)
        assert app.wait_end() == 0, app.text()
    written = recording.read_text("utf-8").replace("\\u001b", "\x1b")
    assert "Traceback" not in written[written.rindex("\x1b[?1049l") :], "what is left on the terminal"
    for mode in ("1049", "1000", "1003", "1004", "2004"):
        assert written.rindex(f"\x1b[?{mode}l") > written.rindex(f"\x1b[?{mode}h"), mode
