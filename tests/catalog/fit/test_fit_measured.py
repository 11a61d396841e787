"""What an earlier start measured counts for the same launch, and what a change of settings leaves of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.finding import Ok
from spark_tui.base.host.memory import MemInfo
from spark_tui.base.host.vitals import HostPaths
from spark_tui.base.quantities import GIB
from spark_tui.catalog.fit.model.fit import Basis, FitWord, PartId
from spark_tui.catalog.fit.model.request import measured_before, measured_by
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.model.plan import LaunchPlan, plan
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.observe.explain.model.starts import StartRecord, StartSizes
from tests.fit_kit import fit

TOTAL = int(121.69 * GIB)
IMAGE = "vllm/vllm-openai:v0.32"
PRESET = Preset(
    name="odd",
    origin=Origin.USER,
    file="odd.yaml",
    model="org/odd-12b",
    image=IMAGE,
    command="vllm serve {model} --port {port} --max-model-len {max_model_len} "
    "--gpu-memory-utilization {gpu_memory_utilization} --max-num-batched-tokens 8192",
    defaults=(("port", 8000), ("max_model_len", 8192), ("gpu_memory_utilization", 0.6)),
)
SIZES = StartSizes(
    weights_gib=24.0,
    kv_gib=40.0,
    kv_tokens=400_000,
    graphs_gib=0.5,
    utilization=0.6,
    batched_tokens=8192,
    context=8192,
    cache_dtype="auto",
)
START = StartRecord(
    "c", 100.0, "odd", preset="odd", image=IMAGE, model="org/odd-12b", settings="other", ready=True, sizes=SIZES
)
EMPTY_BOX = Ok(MemInfo(total=TOTAL, free=int(117 * GIB), available=int(117 * GIB)), 0.0)


def planned(**changes: str) -> LaunchPlan:
    return plan(PRESET, overrides_from_pairs(changes), HostPaths("/store", "/caches", "/home/x"))


def test_the_whole_of_a_start_is_accounted_for() -> None:
    found = measured_by(SIZES, TOTAL, "x")
    assert found is not None
    assert found.overhead is not None
    assert found.weights == 24 * GIB
    assert found.overhead + 64 * GIB == pytest.approx(TOTAL * 0.6, abs=2)


def test_a_start_that_did_not_load_has_measured_nothing() -> None:
    assert measured_by(StartSizes(kv_gib=1.0), TOTAL, "x") is None
    assert measured_before([replace(START, sizes=StartSizes())], planned(), TOTAL) is None


def test_the_latest_start_counts_and_one_with_the_very_same_settings_before_it() -> None:
    launch = planned()
    same = replace(
        START, at=1.0, settings=launch.spec.label("io.spark-tui.spec-hash"), sizes=replace(SIZES, weights_gib=1.0)
    )
    newer = replace(START, at=200.0, sizes=replace(SIZES, weights_gib=2.0))
    assert measured_before([START, newer], launch, TOTAL).weights == 2 * GIB  # type: ignore[union-attr]
    assert measured_before([START, newer, same], launch, TOTAL).weights == GIB  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changes",
    [{"model": "org/other"}, {"image": "other"}, {"preset": "other"}, {"sizes": replace(SIZES, speculation="mtp")}],
    ids=["model", "image", "preset", "a-drafter-was-loaded-too"],
)
def test_another_launch_tells_nothing(changes: dict[str, object]) -> None:
    assert measured_before([replace(START, **changes)], planned(), TOTAL) is None  # type: ignore[arg-type]


def test_another_quantization_has_other_weights() -> None:
    launch, start = planned(), replace(START, sizes=replace(SIZES, quantization="modelopt_fp4"))
    other = replace(launch, spec=replace(launch.spec, command=(*launch.spec.command, "--quantization", "fp8")))
    assert [measured_before([start], each, TOTAL) is None for each in (launch, other)] == [False, True]


@pytest.mark.parametrize("sizes", [replace(SIZES, eager=True), replace(SIZES, sequences=4)])
def test_other_graphs_are_not_these_graphs(sizes: StartSizes) -> None:
    found = measured_before([replace(START, sizes=sizes)], planned(), TOTAL)
    assert found is not None
    assert (found.weights, found.graphs, found.overhead) == (24 * GIB, None, None)


def test_a_model_that_nobody_knows_has_a_verdict_after_its_first_start() -> None:
    launch = planned()
    assert fit(launch, None, EMPTY_BOX).word is FitWord.UNKNOWN
    found = fit(launch, None, EMPTY_BOX, measured=measured_before([START], launch, TOTAL))
    assert found.word is not FitWord.UNKNOWN
    assert found.unknown == ()
    kv = found.part(PartId.KV)
    assert kv is not None
    assert kv.basis is Basis.MEASURED
    assert kv.size == pytest.approx(8192 * 40 * GIB / 400_000, rel=0.01)
    assert found.kv is not None
    assert found.kv.tokens == pytest.approx(400_000, rel=0.02), "the same start again gives the same cache"


@pytest.mark.parametrize(
    ("changes", "known"),
    [({"max_model_len": "4096"}, False), ({"max_model_len": "16384"}, True)],
)
def test_states_are_spread_more_thinly_over_a_longer_context(changes: dict[str, str], known: bool) -> None:
    launch = planned(**changes)
    found = fit(launch, None, EMPTY_BOX, measured=measured_before([START], launch, TOTAL))
    kv = found.part(PartId.KV)
    assert kv is not None
    assert (kv.size is not None) is known
