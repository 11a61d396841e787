"""The recorded answers of a real vLLM."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "fixtures" / "api"


def stream(name: str) -> bytes:
    """The bytes of a chat stream, what curl said after it cut off."""
    return (FOLDER / f"{name}.sse").read_bytes().partition(b"\ncurl_exit=")[0]


STREAMS = sorted(path.stem for path in FOLDER.glob("*.sse") if b"chat.completion.chunk" in path.read_bytes()[:400])


def answer(name: str) -> tuple[int, str]:
    """Status and body of an answer; 500 where the file holds the body alone."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    head, _, body = text.partition("\n\n")
    if not head.startswith("HTTP"):
        return 500, text
    return int(head.split()[1]), body


def error(name: str) -> tuple[int, str]:
    """Status and body of an error answer."""
    return answer(f"errors/{name}")
