"""Copies of images and models between nodes."""

from __future__ import annotations

from typing import Final

from spark_tui.base.page import Object, known
from spark_tui.base.quantities import human_bytes, human_duration
from spark_tui.catalog.models.show.downloads import percent
from spark_tui.manage.cluster.model.copying import CopyPhase, CopyProgress
from spark_tui.manage.cluster.use.copying import Copied

_PHASES: Final = {
    CopyPhase.SENDING: "receiving", CopyPhase.LOADING: "unpacking in Docker", CopyPhase.CHECKING: "checking",
}  # fmt: skip


def copy_progress_text(node: str, progress: CopyProgress) -> str:
    """`spark-2  receiving  41% of 18.4 GiB  1.1 GiB/s  10s left`."""
    done, total = progress.done, progress.total
    size = f"{percent(done / total)} of {human_bytes(total)}" if total else human_bytes(done) if done else ""
    speed = f"{human_bytes(progress.speed)}/s" if progress.speed else ""
    left = f"{human_duration(progress.left)} left" if progress.left else ""
    return "  ".join(filter(None, (node, _PHASES[progress.phase], size, speed, left)))


def copy_progress_object(node: str, progress: CopyProgress) -> Object:
    speed, left = progress.speed, progress.left
    return {
        "type": "progress",
        "node": node,
        "phase": progress.phase.value,
        "done_bytes": progress.done,
        **known("not known yet", total_bytes=progress.total, bytes_per_second=speed and round(speed),
                seconds_left=left and round(left)),
    }  # fmt: skip


def copied_text(copied: Copied) -> str:
    """`spark-2: copied, 12 files, 18.4 GiB in 17s (1.1 GiB/s), 18.3 GiB verified`."""
    if copied.had:
        return f"{copied.node}: already has it"
    files = f", {copied.files} file{'s' * (copied.files != 1)}" if copied.files else ""
    speed = f" ({human_bytes(copied.bytes / copied.seconds)}/s)" if copied.seconds else ""
    hashed = f", {human_bytes(copied.hashed)} verified" if copied.hashed else ""
    took = human_duration(copied.seconds)
    return f"{copied.node}: copied{files}, {human_bytes(copied.bytes)} in {took}{speed}{hashed}"


def copied_object(copied: Copied) -> Object:
    return {
        "id": copied.node,
        "state": "had" if copied.had else "copied",
        "files": copied.files,
        "bytes": copied.bytes,
        "seconds": round(copied.seconds, 1),
        "hashed_bytes": copied.hashed,
    }
