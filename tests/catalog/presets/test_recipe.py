"""A recipe file becomes a preset, or an error that names the line, the key, what was expected and what was found."""

from __future__ import annotations

import shlex

import pytest

from spark_tui.base.engine.image import is_image_reference, repository
from spark_tui.base.errors import PresetError
from spark_tui.base.secret import is_secret_name
from spark_tui.catalog.presets.adapter.store import parse
from spark_tui.catalog.presets.model.preset import (
    Origin,
    Preset,
    PublishedSpeed,
    RequiredFile,
    RequiredStep,
    engine_of,
    fetch_command,
    plain,
)
from spark_tui.catalog.presets.model.recipe import Dialect, dialect_of, preset_from
from tests import TESTS
from tests.cases import all_cases

FIXTURES = TESTS / "fixtures" / "presets"
MINIMAL = "model: org/m\ncontainer: vllm/vllm-openai:nightly\n"


def read(text: str) -> Preset:
    return preset_from(parse(text, "r.yaml"), name="r", origin=Origin.USER, file="r.yaml")


def fixture(name: str) -> Preset:
    return read((FIXTURES / name).read_text())


def test_a_model_and_an_image_are_a_recipe() -> None:
    assert read(MINIMAL) == Preset("r", Origin.USER, "r.yaml", "org/m", "vllm/vllm-openai:nightly")


def test_a_sparkrun_recipe_is_read_whole() -> None:
    preset = fixture("sparkrun-solo.yaml")
    assert preset.model == "example-org/Otter-30B-A3B-NVFP4"
    assert preset.runtime == "vllm"
    assert preset.default("gpu_memory_utilization") == 0.82
    assert preset.env[:2] == (("VLLM_MARLIN_USE_ATOMIC_ADD", "1"), ("OMP_NUM_THREADS", "8"))
    assert preset.command.startswith("vllm serve {model} \\\n  --trust-remote-code")
    assert preset.facts.description == "Otter 30B-A3B, NVFP4, one Spark"
    assert preset.facts.quantization == "NVFP4 (compressed-tensors, mixed precision)"
    assert preset.facts.total_parameters is None, "prose in sparkrun's metadata is no mistake"
    assert preset.ready_timeout_seconds == 2400 + 900
    assert preset.unknown == (
        ("scheduler", "occupancy-sparse"),
        ("readiness.inference", "False"),
        ("metadata.maintainer", "someone <someone@example.org>"),
    )


def test_a_cluster_recipe_keeps_its_hooks_mods_and_options() -> None:
    preset = fixture("sparkrun-cluster.yaml")
    assert preset.min_nodes == 2
    assert preset.mods == ("mods/heron-loader-patch",)
    assert preset.hooks == (
        'pre_exec: echo "before {container_name}"',
        "post_commands: curl http://{head_ip}:{port}/v1/models",
    )
    assert preset.options.entrypoint == ""
    assert preset.options.shm_size == int(10.24 * 1024**3)
    assert preset.options.ulimits == ("nofile=1048576:1048576",)
    assert preset.default("compilation_config") == '{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}'
    assert preset.unknown == (("executor_config.auto_remove", "True"),)


def test_our_facts_stand_under_metadata() -> None:
    preset = read(
        MINIMAL
        + """
metadata:
  category: cpu
  model_params: 36B
  spark_tui:
    title: Otter
    licence: Apache-2.0
    gated: true
    total_parameters: 35B
    active_parameters: 3.5B
    weights: 19GB
    context: 262144
    modalities: [text, image]
    notes: one note
    cautions: [first, second]
    sampling: {temperature: 0.6, top_p: 0.95}
    published: [{tokens_per_second: 43, conditions: one stream, source: someone}]
    required_files: [{target: p/x.py, repo: org/m, file: x.py}]
    mounts: ["notes:/notes:ro"]
    moon_phase: full
"""
    )
    facts = preset.facts
    assert (facts.title, facts.licence, facts.gated, facts.category) == ("Otter", "Apache-2.0", True, "cpu")
    assert (facts.total_parameters, facts.active_parameters) == (35e9, 3.5e9)
    assert (facts.weights_bytes, facts.context_tokens) == (19_000_000_000, 262144)
    assert (facts.modalities, facts.notes, facts.cautions) == (("text", "image"), ("one note",), ("first", "second"))
    assert facts.sampling == (("temperature", 0.6), ("top_p", 0.95))
    assert facts.published == (PublishedSpeed(43.0, "one stream", "someone"),)
    assert facts.required_files == (RequiredFile("p/x.py", "org/m", "x.py"),)
    assert preset.mounts == ("notes:/notes:ro",)
    assert preset.unknown == (("metadata.spark_tui.moon_phase", "full"),)


MISTAKES = [
    ("container: vllm/vllm-openai:nightly\n", 1, "`model` is missing"),
    ("model: org/m\n", 1, "`container` is missing"),
    ("model:\ncontainer: x\n", 1, "`model` is missing"),
    ("model: 7\ncontainer: x\n", 1, "`model` must be text; found the number 7"),
    ("container: x\nmodel: [a]\n", 2, "`model` must be text; found a list"),
    ("model: --trust-remote-code\ncontainer: x\n", 1, "`model` must be a Hugging Face repository"),
    ("model: /models/../etc\ncontainer: x\n", 1, "leaves the model store"),
    ("model: org/m\ncontainer: 'Not An Image'\n", 2, "`container` must be the name of an image"),
    ("model: org/m\ncontainer: -v/etc:/etc\n", 2, "`container` must be the name of an image"),
    (MINIMAL + "defaults: 5\n", 3, "`defaults` must be a mapping; found the number 5"),
    (MINIMAL + "defaults:\n  port: eight\n", 4,
        '`defaults.port` must be a whole number from 1 to 65,535; found the text "eight"'),
    (MINIMAL + "defaults:\n  gpu_memory_utilization: 85\n", 4,
        "`defaults.gpu_memory_utilization` must be a fraction"),
    (MINIMAL + "defaults:\n  max_num_seqs: true\n", 4, "found true"),
    (MINIMAL + "defaults: {api_key: sk-secret}\n", 3, "`defaults.api_key` holds a key"),
    (MINIMAL + "env: {HF_TOKEN: hf_secret}\n", 3, "`env.HF_TOKEN` holds a key"),
    (MINIMAL + "env:\n  A: 1\n  B: [x]\n", 5, "`env.B` must be text; found a list"),
    (MINIMAL + "env: {1A: x}\n", 3, "not the name of an environment variable"),
    (MINIMAL + "command: [vllm, serve]\n", 3, "`command` must be text; found a list"),
    (MINIMAL + "command: vllm serve m --api-key secret\n", 3, "API key as an argument"),
    (MINIMAL + "command: |\n  vllm serve m --api-key=secret\n", 3, "API key as an argument"),
    (MINIMAL + 'command: "vllm serve m \\e[31m"\n', 3, "control characters"),
    (MINIMAL + "runtime: trtllm\n", 3, "`command` is missing"),
    (MINIMAL + "recipe_version: 5\n", 3, "`recipe_version` must be 2"),
    (MINIMAL + "include: base\n", 3, "builds on another recipe"),
    (MINIMAL + "executor: k8s\n", 3, "`executor` must be docker"),
    (MINIMAL + "min_nodes: 0\n", 3, "`min_nodes` must be a whole number from 1"),
    (MINIMAL + "min_nodes: 3\nmax_nodes: 2\n", 4, "`max_nodes` is less than the 3 nodes"),
    (MINIMAL + "solo_only: maybe\n", 3, '`solo_only` must be true or false; found the text "maybe"'),
    (MINIMAL + "executor_config:\n  shm_size: lots\n", 4, "`executor_config.shm_size` must be a size"),
    (MINIMAL + "executor_config:\n  restart_policy: often\n", 4, "`executor_config.restart_policy` must be"),
    (MINIMAL + "executor_config:\n  gpus: many\n", 4, "`executor_config.gpus` must be all"),
    (MINIMAL + "executor_config:\n  ulimit: [stack]\n", 4, '`executor_config.ulimit` holds "stack"'),
    (MINIMAL + "executor_config:\n  volumes: ['a:/b:rx']\n", 4, '`executor_config.volumes` holds "a:/b:rx"'),
    (MINIMAL + "executor_config:\n  volumes: ['../x:/b']\n", 4, "`executor_config.volumes` holds"),
    (MINIMAL + "metadata:\n  spark_tui:\n    weights: heavy\n", 5, "`metadata.spark_tui.weights` must be a size"),
    (MINIMAL + "metadata:\n  spark_tui:\n    context: 1M\n", 5,
        "`metadata.spark_tui.context` must be a whole number"),
    (MINIMAL + "metadata:\n  spark_tui:\n    published:\n      - source: x\n", 6,
        "published[0].tokens_per_second` is missing"),
    (MINIMAL + "readiness:\n  port_timeout_s: soon\n", 4, "`readiness.port_timeout_s` must be a number"),
    ("- a\n- b\n", 1, "this file holds a list"),
    ("just words\n", 1, 'this file holds the text "just words"'),
]  # fmt: skip


@all_cases(("text", "line", "says"), MISTAKES, ids=[says[:40] for _, _, says in MISTAKES])
def test_a_mistake_is_named_with_line_key_and_finding(text: str, line: int, says: str) -> None:
    with pytest.raises(PresetError) as raised:
        read(text)
    error = raised.value
    assert says in error.summary
    assert (error.file, error.line) == ("r.yaml", line)
    assert error.remedy
    assert "secret" not in f"{error}{error.detail}", "a key in a file is never repeated"


def test_all_mistakes_of_a_file_are_told_at_once() -> None:
    with pytest.raises(PresetError) as raised:
        read("model: org/m\ncontainer: X Y\nmin_nodes: none\ndefaults:\n  port: x\n")
    assert raised.value.line == 2
    assert "(2 more in this file)" in raised.value.summary
    assert [line.split(": ")[0] for line in raised.value.detail.splitlines()] == ["r.yaml:2", "r.yaml:3", "r.yaml:5"]


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("engines: {vllm: {}}\n", Dialect.SPARK_PULSE),
        ("recipe_version: '2'\nparams: {a: 1}\n", Dialect.SPARK_PULSE),
        ("recipe_version: '1'\n", Dialect.EUGR),
        ("recipe_version: 1\n", Dialect.EUGR),
        ("name: a\ncontainer: b\ncommand: x '{{\"a\":1}}'\n", Dialect.EUGR),
        ("name: a\ncontainer: b\ncommand: x '{\"a\":1}'\n", Dialect.SPARKRUN),
        ("recipe_version: '2'\ncommand: x '{{\"a\":1}}'\n", Dialect.SPARKRUN),
        ("model: a\n", Dialect.SPARKRUN),
    ],
)  # fmt: skip
def test_dialects_are_told_apart_by_their_keys(text: str, dialect: Dialect) -> None:
    document = parse(text, "r.yaml")
    assert isinstance(plain(document), dict)
    assert dialect_of(document) is dialect  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "says", "line"), [("eugr-solo.v1.yaml", "eugr", 2), ("spark-pulse.v2.yaml", "spark-pulse", 7)]
)
def test_other_tools_recipes_are_recognised_and_refused(name: str, says: str, line: int) -> None:
    with pytest.raises(PresetError, match=says) as raised:
        fixture(name)
    assert raised.value.line == line
    assert "rewrite it" in raised.value.remedy


@pytest.mark.parametrize(
    ("extra", "nodes"),
    [
        ("", (1, None)),
        ("min_nodes: 3", (3, None)),
        ("min_nodes: 2\nmax_nodes: 4", (2, 4)),
        ("cluster_only: true", (2, None)),
        ("mode: cluster\nmax_nodes: 2", (2, 2)),
        ("min_nodes: 4\nsolo_only: true", (1, 1)),
        ("min_nodes: 4\nmode: solo", (1, 1)),
    ],
)
def test_how_many_machines_it_needs(extra: str, nodes: tuple[int, int | None]) -> None:
    found = read(MINIMAL + extra)
    assert (found.min_nodes, found.max_nodes) == nodes


@pytest.mark.parametrize(
    ("command", "runtime"),
    [
        ("vllm serve m", "vllm"),
        ("sglang serve m", "sglang"),
        ("python3 -m sglang.launch_server --x", "sglang"),
        ("llama-server -m x", "llama-cpp"),
        ("trtllm-serve m", "trtllm"),
        ('bash -lc "vllm serve m"', "vllm"),
    ],
)
def test_the_runtime_follows_from_the_command(command: str, runtime: str) -> None:
    assert read(MINIMAL + f"command: {command!r}").runtime == runtime


def test_sparkruns_four_vllms_are_one_engine() -> None:
    assert {engine_of(name) for name in ("vllm", "vllm-ray", "vllm-distributed", "eugr-vllm")} == {"vllm"}
    assert engine_of("sglang") == "sglang"


def test_what_yaml_and_other_tools_write_otherwise_means_the_same() -> None:
    assert read(MINIMAL + "executor_config: {restart_policy: no}").options.restart_policy == "no"
    assert read(MINIMAL + "executor_config: {accelerator_vendor: cpu}").cpu_only
    assert read(MINIMAL + "executor_config: {gpus: none}").cpu_only
    assert not read(MINIMAL).cpu_only
    empty = "defaults:\nenv:\nmetadata:\nexecutor_config:\nmods:\npre_exec:\nreadiness:\n"
    assert read(MINIMAL + empty) == read(MINIMAL)
    assert read(MINIMAL + "defaults: {c: '{{\"a\": 1}}'}").default("c") == '{"a": 1}', "doubled braces are single"


def test_values_that_may_be_secret_are_masked_where_unknown_keys_are_shown() -> None:
    preset = read(
        MINIMAL + "builder_config: {ngc_api_key: sekrit, note: fine}\npost_exec: curl -H hf_abcdefghijklmnopqrstu\n"
    )
    assert "sekrit" not in str(preset)
    assert "hf_abc" not in str(preset)
    assert "fine" in str(preset.unknown)


def test_text_for_the_screen_is_clean() -> None:
    preset = read(MINIMAL + 'metadata: {spark_tui: {title: "a\\e[31mb", notes: ["\\e]0;x\\a"]}}\n"x\\e[1m": 1\n')
    assert preset.facts.title == "ab"
    assert "\x1b" not in str(preset)


@all_cases(
    ("reference", "valid"),
    [
        ("vllm/vllm-openai:nightly", True),
        ("nvcr.io/nvidia/vllm:25.12.post1-py3", True),
        ("localhost:5000/x/y@sha256:" + "0" * 64, True),
        ("vllm-node", True),
        ("127.0.0.1:5000/x:1", True),
        ("", False),
        ("org/UPPER", False),
        ("a b", False),
        ("x:", False),
        ("x:tag:tag", False),
        ("--privileged", False),
        ("x@sha256:short", False),
        ("x\n", False),
        ("a/" * 300 + "b", False),
    ],
)  # fmt: skip
def test_image_names(reference: str, valid: bool) -> None:
    assert is_image_reference(reference) is valid


def test_the_repository_is_the_name_without_tag_and_digest() -> None:
    assert repository("localhost:5000/x/y:1@sha256:" + "0" * 64) == "localhost:5000/x/y"


@all_cases(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("HUGGING_FACE_HUB_TOKEN", True),
        ("VLLM_API_KEY", True),
        ("api-key", True),
        ("NGC_API_KEY", True),
        ("DB_PASSWORD", True),
        ("eos_token", False),
        ("max_tokens", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("num_speculative_tokens", False),
    ],
)  # fmt: skip
def test_names_that_hold_keys(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


# --- what it needs in the model store ---------------------------------------------------------------------


def own(block: str) -> Preset:
    return read(f"{MINIMAL}metadata:\n  spark_tui: {block}\n")


@pytest.mark.parametrize(
    ("file", "command"),
    [
        (RequiredFile("a.py", "org/m", "a.py"), "hf download org/m a.py --local-dir /store"),
        (RequiredFile("p/a.py", "org/m", "a.py"), "hf download org/m a.py --local-dir /store/p"),
        (RequiredFile("p/q/a.py", "org/m", "q/a.py"), "hf download org/m q/a.py --local-dir /store/p"),
        (
            RequiredFile("p/b.py", "org/m", "a.py"),
            "hf download org/m a.py --local-dir /store/p && mv /store/p/a.py /store/p/b.py",
        ),
        (RequiredFile("folder", "org/m"), "hf download org/m --local-dir /store/folder"),
        (
            RequiredFile("fix.py", url="https://example.org/f.py"),
            "curl -fL --create-dirs -o /store/fix.py https://example.org/f.py",
        ),
    ],
)
def test_each_kind_is_fetched_to_its_place(file: RequiredFile, command: str) -> None:
    assert fetch_command(file, "/store") == command


def test_a_store_with_a_blank_in_its_path_is_quoted() -> None:
    command = fetch_command(RequiredFile("folder", "org/m"), "/home/ada/my models")
    assert shlex.split(command)[-1] == "/home/ada/my models/folder"


def test_a_recipe_says_what_it_needs() -> None:
    facts = own(
        "{required_files: [{target: f, repo: org/m}, {target: s.py, url: 'https://e.org/s.py'}, "
        "{target: P.txt, repo: org/m, file: P.txt, for_chat: true}], "
        "required_steps: [{summary: it installs x, command: pip install x}], runs_as_is: true, wants_key: true}"
    ).facts
    assert facts.required_files == (
        RequiredFile("f", "org/m"),
        RequiredFile("s.py", url="https://e.org/s.py"),
        RequiredFile("P.txt", "org/m", "P.txt", for_chat=True),
    )
    assert facts.required_steps == (RequiredStep("it installs x", "pip install x"),)
    assert facts.runs_as_is and facts.wants_key


@all_cases(
    ("block", "said"),
    [
        ("{required_files: [{target: f}]}", "repo"),
        ("{required_files: [{repo: org/m}]}", "target"),
        ("{required_files: [{target: f, repo: org/m, url: 'https://e.org/s'}]}", "not both"),
        ("{required_files: [{target: ../f, repo: org/m}]}", "leaves the model store"),
        ("{required_files: [{target: f, repo: 'org/m; reboot'}]}", "cannot be used"),
        ("{required_files: [{target: f, repo: '-x'}]}", "cannot be used"),
        ("{required_files: [{target: f, repo: org/m, file: '$(reboot)'}]}", "cannot be used"),
        ("{required_files: [{target: f, url: 'http://e.org/s'}]}", "cannot be used"),
        ("{required_files: [{target: f, url: 'https://e.org/s`reboot`'}]}", "cannot be used"),
        ("{required_steps: [{summary: x}]}", "command"),
        ("{image_digest: latest}", "must be a digest"),
        ("{runs_as_is: maybe}", "true or false"),
    ],
)
def test_what_cannot_be_used_is_named(block: str, said: str) -> None:
    with pytest.raises(PresetError) as raised:
        own(block)
    assert said in str(raised.value)
    assert raised.value.remedy
