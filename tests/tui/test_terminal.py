"""What terminals do to a program: windows of any size at any moment, Ctrl-Z, tmux, a connection that is lost."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spark_tui.tui.textual_private import ENDING_SIGNALS
from tests.pty_app import PtyApp, spark_tui

pytestmark = pytest.mark.timeout(300)

PATIENCE = 60.0
DEMO = spark_tui("--demo")
HOME = ("1 Home", "qwen3.6-35b")
STORM = ((80, 24), (300, 80), (41, 11), (160, 50), (60, 15), (299, 12), (40, 10), (120, 36))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A new user's home, and no tmux around it."""
    folders = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "STATE", "CACHE", "DATA")}
    return {"HOME": str(tmp_path), **folders, "TMUX": "", "TMUX_TMPDIR": str(tmp_path), "PS1": "shell> "}


def test_a_storm_of_window_sizes_does_no_harm_on_any_screen(environ: dict[str, str]) -> None:
    with PtyApp(DEMO, columns=80, rows=24, env=environ) as app:
        app.wait_for(*HOME, timeout=PATIENCE)
        for screen in "1234578m":
            app.send(screen)
            for size in STORM:
                app.resize(*size)
        app.resize(40, 10)
        app.wait_for("40x10 is too small", timeout=PATIENCE)
        app.resize(120, 36)
        app.wait_for("Memory by owner", timeout=PATIENCE)
        app.send("1")
        app.wait_for(*HOME, "Events", "docker OK", timeout=PATIENCE)
        app.send("q")
        assert app.wait_end(PATIENCE) == 0


def test_a_size_that_the_shell_exported_does_not_hold_against_the_window_s(environ: dict[str, str]) -> None:
    with PtyApp(DEMO, columns=120, rows=36, env={**environ, "COLUMNS": "80", "LINES": "24"}) as app:
        app.wait_for(*HOME, "Events", timeout=PATIENCE)
        assert any(len(line.rstrip()) > 100 for line in app.text().splitlines()), "the whole window is used"
        app.resize(40, 10)
        app.wait_for("40x10 is too small", timeout=PATIENCE)


def test_after_ctrl_z_and_fg_the_screen_is_whole_again(environ: dict[str, str]) -> None:
    with PtyApp(["bash", "--norc", "--noprofile", "-i"], env=environ) as shell:
        shell.send(shlex.join(DEMO), "enter")
        shell.wait_for(*HOME, "Events", timeout=PATIENCE)
        shell.send("ctrl+z")
        shell.wait_for("Stopped", timeout=PATIENCE)
        shell.send("echo in the $((40 + 2))nd shell", "enter")
        shell.wait_for("in the 42nd shell", timeout=PATIENCE)
        shell.send("fg", "enter")
        shell.wait_gone("42nd", timeout=PATIENCE)
        shell.wait_for(*HOME, "Events", "docker OK", timeout=PATIENCE)
        shell.send("3")
        shell.wait_for("Overview", timeout=PATIENCE)
        shell.send("q")
        shell.wait_for("shell>", timeout=PATIENCE)


@pytest.mark.parametrize("before", ["", "trap '' HUP; "], ids=["from a shell", "under nohup"])
def test_when_the_connection_is_lost_the_program_ends(environ: dict[str, str], before: str) -> None:
    app = PtyApp(["sh", "-c", f"{before}exec {shlex.join(DEMO)}"], env=environ)
    app.wait_for(*HOME, timeout=PATIENCE)
    program = psutil.Process(app.pid)
    app.hang_up()
    program.wait(PATIENCE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_leaves_the_terminal_as_it_was(
    environ: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    recording = tmp_path / "bytes.cast"
    with PtyApp(["bash", "--norc", "--noprofile", "-i"], env=environ, recording=recording) as shell:
        shell.send(shlex.join(DEMO), "enter")
        shell.wait_for(*HOME, "Events", timeout=PATIENCE)
        (program,) = psutil.Process(shell.pid).children()
        program.send_signal(number)
        shell.wait_for("shell>", timeout=PATIENCE)
        shell.send("echo code $?; stty -a | grep -o ' echo '", "enter")
        shell.wait_for(f"code {128 + number}", "\n echo", timeout=PATIENCE)
    written = recording.read_text("utf-8").replace("\\u001b", "\x1b")
    for mode in ("1049", "1000", "1003", "1004"):
        assert written.rindex(f"\x1b[?{mode}l") > written.rindex(f"\x1b[?{mode}h"), mode


def test_no_signal_that_ends_a_program_is_left_out() -> None:
    """But those that cannot be handled, that its own faults raise, that Python ignores, or that nobody sends."""
    own, ignored = {"ILL", "TRAP", "BUS", "FPE", "SEGV", "SYS"}, {"PIPE", "XFSZ"}
    others = {"KILL", "STOP", "CHLD", "CONT", "TSTP", "TTIN", "TTOU", "URG", "WINCH", "IO", "PWR", "STKFLT"}
    every = {each.name.removeprefix("SIG") for each in signal.Signals if not each.name.startswith("SIGRT")}
    assert {each.name.removeprefix("SIG") for each in ENDING_SIGNALS} == every - own - ignored - others


@pytest.fixture
def tmux(environ: dict[str, str]) -> Iterator[list[str]]:
    """tmux on a server of its own, with the control centre in it."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    words = ["tmux", "-L", "spark-tui-test", "-f", "/dev/null"]
    everything = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8", **environ}
    start = [*words, "new-session", "-d", "-s", "spark", "-x", "120", "-y", "36", shlex.join(DEMO)]
    subprocess.run(start, env=everything, check=True)
    yield words
    subprocess.run([*words, "kill-server"], env=everything, check=False)


def test_in_tmux_it_can_be_left_and_found_again_from_another_window(tmux: list[str], environ: dict[str, str]) -> None:
    attach = [*tmux, "attach", "-t", "spark"]
    with PtyApp(attach, columns=120, rows=37, env=environ) as first:
        first.wait_for(*HOME, timeout=PATIENCE)
        first.send("3")
        first.wait_for("Overview", timeout=PATIENCE)
        first.send("ctrl+b", "d")
        assert first.wait_end(PATIENCE) == 0, "detached"
    with PtyApp(attach, columns=80, rows=25, env=environ) as second:
        second.wait_for("[3 Presets]", "Overview", timeout=PATIENCE)
        second.send("1")
        second.wait_for("[1 Home]", *HOME, timeout=PATIENCE)
        second.send("q")
        second.wait_end(PATIENCE)
