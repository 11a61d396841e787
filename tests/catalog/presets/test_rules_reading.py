"""How rules read a command: every spelling of a flag, what the image's name says, and options taken out again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spark_tui.base.engine.container import EnvVar
from spark_tui.base.engine.image import newest_possible, ngc_release, tag_of
from spark_tui.base.engine.invocation import json_object, mappings_in, parse
from spark_tui.base.errors import UsageError
from spark_tui.base.host.vitals import HostPaths
from spark_tui.catalog.presets.model.overrides import Overrides, overrides_from_pairs
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.preset import Origin, Preset
from spark_tui.catalog.presets.model.rules.check import check
from spark_tui.catalog.presets.model.rules.context import LaunchContext
from tests.cases import all_cases

PATHS = HostPaths("/home/ada/vllm", "/home/ada/.cache/spark-tui", "/home/ada")
NIGHTLY = "vllm/vllm-openai:nightly"


def preset(command: str, *, model: str = "Qwen/Qwen3.5-35B-A3B", image: str = NIGHTLY) -> Preset:
    return Preset("mine", Origin.USER, "mine.yaml", model, image, command=command)


def situation(command: str, **changes: str) -> LaunchContext:
    return LaunchContext(plan(preset(command, **changes), Overrides(), PATHS))


def ids(command: str, **changes: str) -> set[str]:
    return {finding.id for finding in check(situation(command, **changes))}


# --- spellings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "--kv-cache-dtype fp8",
        "--kv-cache-dtype=fp8",
        "--kv_cache_dtype fp8",
        "--kv_cache_dtype=fp8_e5m2",
        "--kv-cache-dtype auto --kv-cache-dtype FP8",
    ],
)
def test_an_option_is_recognised_in_every_spelling(words: str) -> None:
    assert "fp8_kv_qwen3_5" in ids(f"vllm serve {{model}} {words}")


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("--enable-chunked-prefill", True),
        ("--enable_chunked_prefill", True),
        ("--enable-chunked-prefill=true", True),
        ("--enable-chunked-prefill=False", False),
        ("--no-enable-chunked-prefill", False),
        ("--enable-chunked-prefill --no-enable-chunked-prefill", False),
        ("--no-enable-chunked-prefill --enable-chunked-prefill", True),
        ("", None),
    ],
)  # fmt: skip
def test_a_switch_is_on_off_or_unsaid(words: str, state: bool | None) -> None:
    assert situation(f"vllm serve {{model}} {words}").switch("enable_chunked_prefill") is state


@pytest.mark.parametrize(
    "words",
    [
        """--speculative-config '{"method":"dflash","model":"a/b-dflash","num_speculative_tokens":7}'""",
        """--speculative-config='{"method": "dflash", "model": "a/b-dflash", "num_speculative_tokens": "7"}'""",
        """--speculative_config '{"num_speculative_tokens":7,"model":"a/b-dflash"}'""",
        """-sc '{"method":"DFlash","model":"a/b-dflash","num_speculative_tokens":7}'""",
        "--speculative-config.method dflash --speculative-config.model=a/b-dflash "
        "--speculative_config.num_speculative_tokens 7",
        "--spec-method dflash --spec-model a/b-dflash --spec-tokens 7",
    ],
)
def test_speculation_is_read_from_every_spelling(words: str) -> None:
    spec = situation(f"vllm serve {{model}} {words}").speculation
    assert spec is not None
    assert (spec.method, spec.drafter, spec.tokens) == ("dflash", "a/b-dflash", 7)


def test_speculation_within_a_script_is_read() -> None:
    spec = situation("""pip install x && vllm serve {model} --speculative-config '{"method":"mtp"}'""").speculation
    assert spec is not None
    assert spec.is_mtp and spec.tokens is None


@all_cases(
    "words",
    [
        "--enforce-eager",
        "--enforce_eager",
        "-O0",
        "-O 0",
        "-O=0",
        "-O.mode=0",
        "-O.cudagraph_mode NONE",
        """-O '{"level":0}'""",
        """-cc '{"cudagraph_mode":"NONE"}'""",
        """--compilation-config='{"mode": 0}'""",
        "--compilation-config.cudagraph_mode=none",
        "--optimization-level 0",
    ],
)
def test_graphs_turned_off_are_seen_in_every_spelling(words: str) -> None:
    assert "cuda_graphs_off" in ids(f"vllm serve {{model}} {words}")


@pytest.mark.parametrize("words", ["", "-O3", "-O.mode=3", "-O 2", """-cc '{"cudagraph_mode":"FULL"}'"""])
def test_graphs_left_on_are_not_reproached(words: str) -> None:
    assert "cuda_graphs_off" not in ids(f"vllm serve {{model}} {words}")


@pytest.mark.parametrize(
    ("text", "number"), [("64k", 64000), ("64K", 65536), ("1M", 1048576), ("1.5m", 1500000), ("-1", -1), ("auto", None)]
)
def test_lengths_are_read_as_vllm_reads_them(text: str, number: int | None) -> None:
    assert situation(f"vllm serve {{model}} --max-model-len {text}").integer("max_model_len") == number


def test_yarn_is_found_wherever_the_overrides_put_it() -> None:
    yarn = """--hf-overrides '{"text_config":{"rope_parameters":{"rope_type":"yarn","factor":4.0}}}'"""
    dotted = "--hf-overrides.rope_scaling.rope_type yarn --hf-overrides.rope_scaling.factor=4"
    for words in (yarn, dotted):
        own = replace(preset(f"vllm serve {{model}} {words} --max-model-len 32768"))
        own = replace(own, facts=replace(own.facts, context_tokens=262144))
        found = check(LaunchContext(plan(own, Overrides(), PATHS)))
        assert "yarn_without_need" in {finding.id for finding in found}


def test_a_folder_in_the_store_is_known_by_what_the_preset_calls_it() -> None:
    own = preset("vllm serve {model} --kv-cache-dtype fp8", model="/models/coder")
    own = replace(own, facts=replace(own.facts, title="Qwen3.5-35B-A3B, ours"))
    found = {finding.id for finding in check(LaunchContext(plan(own, Overrides(), PATHS)))}
    assert "fp8_kv_qwen3_5" in found


def test_settings_that_an_image_takes_from_its_environment_count() -> None:
    assert {"utilization_high", "many_sequences", "fp8_kv_qwen3_5"} <= from_environment(("serve",))


def test_a_command_of_its_own_does_not_read_them() -> None:
    found = from_environment(("vllm", "serve", "m", "--gpu-memory-utilization", "0.8"))
    assert not {"utilization_high", "many_sequences", "fp8_kv_qwen3_5"} & found


def from_environment(command: tuple[str, ...]) -> set[str]:
    launch = plan(preset("vllm serve m", image="avarok/dgx-vllm-nvfp4-kernel:v22"), Overrides(), PATHS)
    env = (
        EnvVar("GPU_MEMORY_UTIL", "0.93"),
        EnvVar("MAX_NUM_SEQS", "128"),
        EnvVar("VLLM_EXTRA_ARGS", "--kv-cache-dtype fp8"),
    )
    spec = replace(launch.spec, command=command, env=env)
    return {finding.id for finding in check(LaunchContext(replace(launch, spec=spec)))}


def test_json_is_read_within_bounds() -> None:
    deep, too_deep = ('{"a":' * levels + "{}" + "}" * levels for levels in (90, 900))
    assert json_object('{"a":' + " " * 70_000 + "1}") == {}
    assert json_object("[1]") == {}
    assert len(list(mappings_in(json_object(deep)))) == 9
    assert json_object(too_deep) == {}
    assert list(mappings_in({"a": 1, "b": {"c": 2}})) == [{"a": 1, "b": {"c": 2}}, {"c": 2}]


# --- images -----------------------------------------------------------------------------------------------


@all_cases(
    ("image", "version"),
    [
        ("nvcr.io/nvidia/vllm:26.04-py3", (0, 19, 0)),
        ("nvcr.io/nvidia/vllm:25.12.post1-py3", (0, 19, 0)),
        ("nvcr.io/nvidia/vllm:26.05-py3", None),
        ("vllm/vllm-openai:v0.20.2-ubuntu2404", (0, 20, 2)),
        ("docker.io/vllm/vllm-openai:v0.19.1", (0, 19, 1)),
        ("vllm/vllm-openai:nightly", None),
        ("vllm/vllm-openai:nightly-0.19.1", None),
        ("vllm/vllm-openai:gemma4-cu130", None),
        ("vllm/vllm-openai", None),
        ("localhost:5000/spark-tui/vllm-cpu:0.32.0", (0, 32, 0)),
        ("avarok/dgx-vllm-nvfp4-kernel:v22", (0, 16, 0)),
        ("ghcr.io/aeon-7/vllm-dflash:0.14.1", None),
        ("lmsysorg/sglang:v0.5.8", None),
        ("not an image", None),
    ],
)  # fmt: skip
def test_an_image_says_which_vllm_it_holds_at_most(image: str, version: tuple[int, int, int] | None) -> None:
    assert newest_possible(image) == version


@pytest.mark.parametrize(
    ("image", "tag"),
    [("a/b", "latest"), ("a/b:c", "c"), ("host:5000/a/b", "latest"), ("a/b@sha256:" + "0" * 64, ""), ("a:v1@x", "v1")],
)
def test_the_tag_of_an_image(image: str, tag: str) -> None:
    assert tag_of(image) == tag


def test_releases_are_nvidias_and_what_an_engine_said_of_itself_counts_more_than_a_name() -> None:
    assert newest_possible("vllm/vllm-openai:nightly", "0.25.1.dev12+gabc") == (0, 25, 1)
    assert ngc_release("nvcr.io/nvidia/vllm:26.04-py3") == (26, 4)
    assert ngc_release("nvcr.io/nvidia/pytorch:26.04-py3") is None
    assert ngc_release("nvcr.io/nvidia/vllm:latest") is None


# --- options taken out ------------------------------------------------------------------------------------


@all_cases(
    ("words", "key", "left"),
    [
        ("vllm serve m --quantization modelopt --port 1", "quantization", "vllm serve m --port 1"),
        ("vllm serve m -q=modelopt --port 1", "quantization", "vllm serve m --port 1"),
        ("vllm serve m --no-enable-chunked-prefill --port 1", "enable_chunked_prefill", "vllm serve m --port 1"),
        ("vllm serve m --enable_chunked_prefill --port 1", "enable_chunked_prefill", "vllm serve m --port 1"),
        ("vllm serve m --speculative-config.method mtp -sc {}", "speculative_config", "vllm serve m"),
        ("vllm serve m --max-model-len -1 --port 1", "max_model_len", "vllm serve m --port 1"),
        ("vllm serve m --unheard-of --port 1", "unheard_of", "vllm serve m --port 1"),
        ("vllm serve m --unheard-of 5 --port 1", "unheard_of", "vllm serve m --port 1"),
        ("vllm serve m --unheard-of", "unheard_of", "vllm serve m"),
        ("vllm serve m --port 1", "quantization", "vllm serve m --port 1"),
    ],
)  # fmt: skip
def test_an_option_is_taken_out_in_every_spelling(words: str, key: str, left: str) -> None:
    assert parse(tuple(words.split())).without(key).argv == tuple(left.split())


def test_a_launch_leaves_out_what_the_person_takes_out() -> None:
    own = preset("vllm serve {model} --quantization {quantization} --port 8000")
    own = replace(own, defaults=(("quantization", "modelopt"),))
    overrides = overrides_from_pairs({"without": "--quantization, seed", "extra_args": "--seed 1"})
    assert overrides.without == ("quantization", "seed")
    spec = plan(own, overrides, PATHS).spec
    assert not {"--quantization", "--seed"} & set(spec.command)
    assert "8000" in spec.command


@pytest.mark.parametrize("text", ["port", "host", "a;b", "9"])
def test_what_is_no_option_to_leave_out_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="can remove"):
        overrides_from_pairs({"without": text})


def test_a_script_is_not_rewritten_to_leave_something_out() -> None:
    own = preset("pip install x && vllm serve {model} --enforce-eager")
    with pytest.raises(UsageError, match="shell script"):
        plan(own, overrides_from_pairs({"without": "enforce_eager"}), PATHS)
    assert plan(own, overrides_from_pairs({"without": "seed"}), PATHS).spec.command[0] == "bash"
