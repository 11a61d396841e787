"""One word for what an engine does, from its launch to its end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import LABEL_API_KEY_FILE, ContainerFacts, ContainerSpec, ContainerStatus
from spark_tui.base.engine.state import EngineState, EngineWord, Exposure, api_port
from spark_tui.base.jobs import JobView, Step, StepState
from spark_tui.base.launches import Stage
from spark_tui.base.page import Tone
from spark_tui.base.remote import Spread
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.manage.cluster.model.plan import plan_cluster, record_of
from spark_tui.observe.engines.show.engines import docker_command, engine_object, engine_page, engine_status
from spark_tui.observe.explain.model.serving import ServingSample
from spark_tui.observe.explain.model.timeline import BootTimeline, Phase, PhaseId, PhaseState
from spark_tui.observe.explain.model.view import EngineView
from tests.cases import all_cases
from tests.manage.cluster.test_cluster_plan import PATHS, cluster_of, preset


def view_of(state: EngineState, **changes: object) -> EngineView:
    ended = state in (EngineState.STOPPED, EngineState.FAILED)
    facts = ContainerFacts(
        id="0" * 64, name="qwen", image="vllm",
        image_id="", status=ContainerStatus.EXITED if ended else ContainerStatus.RUNNING,
        exit_code=1 if ended else None,
    )  # fmt: skip
    view = EngineView(facts, state, "vllm", Exposure.LOCAL, 8000)
    return replace(view, **changes)  # type: ignore[arg-type]


def created(spec: ContainerSpec) -> ContainerFacts:
    """A container that runs with that network and these labels."""
    return ContainerFacts(
        "0" * 64, spec.name, spec.image, "", ContainerStatus.RUNNING, argv=spec.command, labels=spec.labels,
        network_mode=spec.network,
    )  # fmt: skip


def boot(phase: PhaseId, progress: float | None = None) -> BootTimeline:
    return BootTimeline((Phase(phase, PhaseState.RUNNING, progress=progress),))


def job(step: str, progress: float | None = None, state: StepState = StepState.RUNNING) -> JobView:
    running = (Step(step, step, StepState.RUNNING, progress=progress),) if state is StepState.RUNNING else ()
    return JobView("1", "qwen", running, state=state)


SERVING, STARTING = EngineState.SERVING, EngineState.STARTING


@all_cases(
    ("view", "launch", "text", "tone"),
    [
        (None, JobView("1", "qwen"), "queued", Tone.WARNING),
        (None, job("preflight"), "queued", Tone.WARNING),
        (None, job("fetch", 0.16), "fetching 16%", Tone.WARNING),
        (None, job("pull", 0.41), "pulling 41%", Tone.WARNING),
        (None, job("create"), "starting", Tone.WARNING),
        (None, job("", state=StepState.FAILED), "failed", Tone.BAD),
        (None, job("", state=StepState.CANCELLED), "stopped", Tone.QUIET),
        (view_of(STARTING), job("follow", 0.5), "starting", Tone.WARNING),
        (view_of(STARTING, timeline=boot(PhaseId.WEIGHTS, 0.62)), job("follow"), "loading 62%", Tone.WARNING),
        (view_of(STARTING, timeline=boot(PhaseId.CAPTURE)), None, "compiling", Tone.WARNING),
        (view_of(SERVING), job("warm"), "warming up", Tone.WARNING),
        (view_of(SERVING), job("", state=StepState.DONE), "ready", Tone.GOOD),
        (view_of(SERVING), job("", state=StepState.FAILED), "ready", Tone.GOOD),
        (view_of(SERVING, samples=(ServingSample(running=2),)), None, "busy", Tone.GOOD),
        (view_of(SERVING, stopping=True), None, "stopping", Tone.WARNING),
        (view_of(EngineState.NOT_ANSWERING), None, "stalled", Tone.BAD),
        (view_of(EngineState.STOPPED), None, "stopped", Tone.QUIET),
        (view_of(EngineState.FAILED), None, "failed (exit 1)", Tone.BAD),
    ],
)
def test_state_words(view: EngineView | None, launch: JobView | None, text: str, tone: Tone) -> None:
    status = engine_status(view, launch)
    assert (status.text, status.tone) == (text, tone)
    assert text.startswith(status.word.value)
    if view is not None and launch is None:
        assert engine_object(view, 0.0)["state"] == status.word.value


def test_a_container_that_docker_cannot_end_is_lost() -> None:
    view = view_of(STARTING)
    dead = replace(view, container=replace(view.container, status=ContainerStatus.DEAD))
    assert engine_status(dead).word is EngineWord.LOST


def test_a_rank_without_an_api_is_part_of_its_launch_and_serves_when_that_does() -> None:
    plan = plan_cluster(preset("min_nodes: 2\n"), Overrides(), PATHS, cluster_of(2), launch_id="l1")
    head, worker = (created(each.plan.spec) for each in plan.ranks)
    replicas = plan_cluster(preset(), Overrides(), PATHS, cluster_of(2), launch_id="l1", spread=Spread.REPLICAS)
    assert [each.rank_of for each in (head, worker)] == ["", "r"]
    assert not any(created(each.plan.spec).rank_of for each in replicas.ranks), "each has an API"
    assert (api_port(head), api_port(worker)) == (8000, None), "port 8000 there is another engine's"
    view = view_of(STARTING, container=worker, timeline=boot(PhaseId.WEIGHTS, 0.62))
    assert (engine_status(view).text, engine_status(view).tone) == ("running, rank of r", Tone.GOOD)
    launch = record_of(plan)
    assert engine_status(view, None, (launch,)).word is EngineWord.RUNNING
    assert engine_status(view, None, (replace(launch, stage=Stage.READY),)).text == "ready, rank of r"


@pytest.mark.parametrize(
    ("exposure", "file", "url", "key"),
    [
        (Exposure.LOCAL, "", "http://127.0.0.1:8000/v1   local, no key", None),
        (Exposure.LAN, "/k/qwen", "http://127.0.0.1:8000/v1   network http://192.168.1.40:8000/v1", "in /k/qwen"),
        (Exposure.LAN_NO_KEY, "", "http://127.0.0.1:8000/v1   network http://192.168.1.40:8000/v1", "none: anyone"),
    ],
)
def test_where_clients_reach_an_engine(exposure: Exposure, file: str, url: str, key: str | None) -> None:
    view = view_of(SERVING, exposure=exposure)
    view = replace(view, container=replace(view.container, labels=((LABEL_API_KEY_FILE, file),) if file else ()))
    rows = {row.label: row for section in engine_page(view, 0.0, lan="192.168.1.40") for row in section.rows}
    assert rows["url"].text == url
    assert ("key" not in rows) if key is None else rows["key"].text.startswith(key)
    assert key is None or (rows["key"].tone is Tone.BAD) is (exposure is Exposure.LAN_NO_KEY)


def test_an_engine_that_does_not_serve_has_no_address() -> None:
    (section,) = engine_page(view_of(EngineState.FAILED), 0.0)
    assert [row.label for row in section.rows] == ["state", "engine"]


def test_the_command_for_docker_is_taken_out_of_its_error() -> None:
    assert docker_command("Docker is not running. Start it: sudo systemctl start docker. At every boot: x") == (
        "sudo systemctl start docker"
    )
    assert docker_command("The answer cannot be read.") == ""
