"""Pictures and sounds for a question: what they are is told by their first bytes, never by their name."""

from __future__ import annotations

from typing import Final

from spark_tui.domain.chat import Attachment, MediaKind
from spark_tui.domain.errors import RefusedError, UsageError
from spark_tui.domain.quantities import MIB, human_bytes
from spark_tui.domain.text import clean_line, truncate

MOST_BYTES: Final = {MediaKind.IMAGE: 20 * MIB, MediaKind.AUDIO: 25 * MIB}
"""Of one file: what the hosted APIs allow. A larger picture is scaled down by the model's processor anyway."""
MOST_OF_A_QUESTION: Final = 64 * MIB
MOST_FILES: Final = 16

_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", MediaKind.IMAGE, "image/png"),
    (b"\xff\xd8\xff", MediaKind.IMAGE, "image/jpeg"),
    (b"GIF87a", MediaKind.IMAGE, "image/gif"),
    (b"GIF89a", MediaKind.IMAGE, "image/gif"),
    (b"fLaC", MediaKind.AUDIO, "audio/flac"),
    (b"OggS", MediaKind.AUDIO, "audio/ogg"),
    (b"ID3", MediaKind.AUDIO, "audio/mp3"),
    (b"\xff\xfb", MediaKind.AUDIO, "audio/mp3"),
    (b"\xff\xf3", MediaKind.AUDIO, "audio/mp3"),
    (b"\xff\xf2", MediaKind.AUDIO, "audio/mp3"),
)
_RIFF: Final = {b"WEBP": (MediaKind.IMAGE, "image/webp"), b"WAVE": (MediaKind.AUDIO, "audio/wav")}
READABLE: Final = "PNG, JPEG, GIF and WebP pictures, and WAV, MP3, FLAC and Ogg sounds"


def kind_of(data: bytes) -> tuple[MediaKind, str] | None:
    """Kind and media type by the first bytes; None for anything else."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    return next(((kind, name) for start, kind, name in _STARTS if data.startswith(start)), None)


def attachment_of(data: bytes, name: str) -> Attachment:
    """A file's bytes as something to send. Raises UsageError for another kind of file, RefusedError for its size."""
    shown = truncate(clean_line(name), 80)
    if not data:
        raise UsageError(f"{shown} is empty.", f"Choose another: {READABLE}.")
    found = kind_of(data)
    if found is None:
        raise UsageError(f"{shown} is neither a picture nor a sound that can be sent.", f"These can: {READABLE}.")
    kind, media_type = found
    if len(data) > MOST_BYTES[kind]:
        raise RefusedError(
            f"{shown} has {human_bytes(len(data))}; {human_bytes(MOST_BYTES[kind])} are the most for "
            f"{'a picture' if kind is MediaKind.IMAGE else 'a sound'}.",
            "Make it smaller: the model sees far fewer pixels than that." if kind is MediaKind.IMAGE else "Shorten it.",
        )
    return Attachment(kind, media_type, shown, data)


def check_together(attachments: tuple[Attachment, ...]) -> None:
    """Raises RefusedError when they are too many, or too large together, for one question."""
    total = sum(len(each.data) for each in attachments)
    if len(attachments) > MOST_FILES:
        raise RefusedError(f"{len(attachments)} files are too many for one question.", f"Send at most {MOST_FILES}.")
    if total > MOST_OF_A_QUESTION:
        raise RefusedError(
            f"The files have {human_bytes(total)} together; {human_bytes(MOST_OF_A_QUESTION)} are the most.",
            "Send them with several questions, or make them smaller.",
        )


def check_taken(attachments: tuple[Attachment, ...], modalities: tuple[str, ...], model: str) -> None:
    """Raises RefusedError when the model is known not to take one of these. `modalities` empty: not known, it is tried.

    They are those of the preset: `text`, `image`, `video`, `audio`.
    """
    if not modalities:
        return
    for kind in dict.fromkeys(each.kind for each in attachments):
        if kind.value not in modalities:
            raise RefusedError(
                f"{model} takes no {'pictures' if kind is MediaKind.IMAGE else 'sounds'}: it takes "
                f"{', '.join(modalities)}.",
                "Ask without them, or talk to a model that does; nothing was sent.",
            )
