"""What `--json` prints of the Hub and of downloads."""

from __future__ import annotations

from spark_tui.cli.shapes import Object, maybe, moment, read
from spark_tui.domain.models.download import Download, DownloadPlan
from spark_tui.domain.models.hub import RepoFacts, SearchHit

_NOT_TOLD = "the Hub does not say"


def hit_object(hit: SearchHit) -> Object:
    """One repository of a search. `weights_bytes` are its tensors; `storage_bytes` all that it takes on the Hub."""
    return {
        "id": hit.repo,
        "publisher": hit.publisher,
        "formats": [form.value for form in hit.formats.found],
        "formats_by": hit.formats.basis.value,
        "formats_doubt": hit.formats.doubt,
        **maybe("parameters", hit.parameters, _NOT_TOLD),
        **maybe("weights_bytes", hit.weights, _NOT_TOLD),
        **maybe("storage_bytes", hit.storage, _NOT_TOLD),
        "fits_one_spark": hit.fits.value,
        "access": hit.gating.value,
        "private": hit.private,
        **maybe("downloads", hit.downloads, _NOT_TOLD),
        **maybe("likes", hit.likes, _NOT_TOLD),
        **maybe("modified_at", moment(hit.modified), _NOT_TOLD),
        "task": hit.task,
        "licence": hit.licence,
        "gguf": hit.gguf,
    }


def repo_object(facts: RepoFacts) -> Object:
    """One revision's card."""
    return {
        "id": facts.repo,
        "commit": facts.commit,
        "page": facts.page,
        "publisher": facts.publisher,
        "access": facts.gating.value,
        "private": facts.private,
        "licence": facts.licence,
        "licence_link": facts.licence_link,
        "formats": [form.value for form in facts.formats.found],
        "formats_by": facts.formats.basis.value,
        "formats_doubt": facts.formats.doubt,
        **maybe("size_bytes", facts.size, _NOT_TOLD),
        **maybe("weights_bytes", facts.weights, _NOT_TOLD),
        "fits_one_spark": facts.fits.value,
        **maybe("downloads", facts.downloads, _NOT_TOLD),
        **maybe("likes", facts.likes, _NOT_TOLD),
        **maybe("modified_at", moment(facts.modified), _NOT_TOLD),
        "base_models": list(facts.base_models),
        "task": facts.task,
        "library": facts.library,
    }


def plan_object(plan: DownloadPlan) -> Object:
    """A dry run."""
    return {
        "id": plan.request.id,
        "repo": plan.request.repo,
        "target": plan.request.target,
        "url": plan.request.url,
        **maybe("commit", plan.facts.commit if plan.facts else None, "it is not on the Hub"),
        **maybe("total_bytes", plan.total, _NOT_TOLD),
        **maybe("left_bytes", plan.left, _NOT_TOLD),
        **read("free_bytes", plan.free, int),
        "files": [{"path": file.path, **maybe("size_bytes", file.size, _NOT_TOLD), "here_bytes": file.here}
                  for file in plan.files],
        "left_out": [{"path": each.path, **maybe("size_bytes", each.size, _NOT_TOLD), "why": each.why}
                     for each in plan.left_out],
        "choices": [{"name": name, **maybe("size_bytes", size, _NOT_TOLD)} for name, size in plan.choices],
        "notes": list(plan.notes),
        "refusal": None if plan.refusal is None else
        {"id": plan.refusal.id, "summary": plan.refusal.summary, "remedy": plan.refusal.remedy},
    }  # fmt: skip


def download_object(download: Download, *, files: bool = True) -> Object:
    """A download as it stands."""
    unknown = "not known yet" if download.phase.active else "it rests"
    shape = {
        "id": download.id,
        "repo": download.request.repo,
        "revision": download.request.revision,
        "target": download.request.target,
        "preset": download.request.preset,
        "state": download.phase.value,
        "waiting_for": download.waiting,
        **maybe("commit", download.commit, "it is not settled yet"),
        "done_bytes": download.done,
        **maybe("total_bytes", download.total, "it is not known yet"),
        "files_done": download.files_done,
        "files_total": len(download.files),
        **maybe("bytes_per_second", download.speed and round(download.speed), unknown),
        **maybe("seconds_left", download.eta and round(download.eta), unknown),
        **maybe("limit_bytes_per_second", download.limit and round(download.limit), "there is no cap"),
        **maybe("created_at", moment(download.created or None), "its record is damaged"),
        **maybe("ended_at", moment(download.ended), "it has not ended"),
        "failure": None if download.failure is None else
        {"id": download.failure.id, "summary": download.failure.summary, "remedy": download.failure.remedy,
         "detail": download.failure.detail},
    }  # fmt: skip
    if files:
        shape["files"] = [
            {"path": file.path, **maybe("size_bytes", file.size, _NOT_TOLD), "done_bytes": file.done,
             "state": file.state.value}
            for file in download.files
        ]  # fmt: skip
    return shape
