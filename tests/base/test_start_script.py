"""What is known of images whose own script starts the server stands in files: words, variables, defaults."""

from __future__ import annotations

from spark_tui.base.engine.image import StartScript, assumed_entrypoint, newest_possible, start_script, start_scripts
from spark_tui.base.engine.invocation import OPTIONS

AVAROK = "avarok/dgx-vllm-nvfp4-kernel:v22"


def described(image: str) -> StartScript:
    found = start_script(image)
    assert found is not None
    return found


def test_an_image_is_known_by_its_name_whatever_its_tag_or_registry() -> None:
    for image in (AVAROK, "docker.io/avarok/dgx-vllm-nvfp4-kernel", "dgx-vllm:latest", f"{AVAROK}@sha256:{'0' * 64}"):
        assert described(image).default == "serve"
    assert described("ghcr.io/aeon-7/vllm-dflash:latest").model == "MODEL_PATH"
    assert start_script("vllm/vllm-openai:nightly") is None
    assert start_script("not an image") is None


def test_the_variables_of_the_page_are_all_there_with_their_defaults() -> None:
    of_page = {
        "MODEL": None,
        "PORT": "8888",
        "GPU_MEMORY_UTIL": "0.75",
        "MAX_MODEL_LEN": "131072",
        "MAX_NUM_SEQS": "128",
        "TENSOR_PARALLEL_SIZE": "1",
        "VLLM_EXTRA_ARGS": "",
        "VLLM_USE_FLASHINFER_MOE_FP4": "0",
        "VLLM_TEST_FORCE_FP8_MARLIN": "0",
        "VLLM_NVFP4_GEMM_BACKEND": None,
        "PYTORCH_CUDA_ALLOC_CONF": None,
    }
    variables = described(AVAROK).variables
    assert {name: variables[name].default for name in of_page} == of_page
    assert list(described(AVAROK).words) == ["serve", "ray-head", "ray-worker", "bash"]
    assert [word for word, each in described(AVAROK).words.items() if each.nodes] == ["ray-head", "ray-worker"]


def test_an_image_says_its_entrypoint_and_its_vllm() -> None:
    assert assumed_entrypoint(AVAROK) == ("/app/entrypoint.sh",)
    assert newest_possible("dgx-vllm:v22") == (0, 16, 0)


def test_each_description_is_one_that_the_product_can_use() -> None:
    names = [name for each in start_scripts() for name in each.names]
    assert len(names) == len(set(names))
    for script in start_scripts():
        assert script.source
        assert {script.model, script.extra} <= set(script.variables)
        assert set(script.options) <= set(OPTIONS), "an option that can be set"
        assert not script.words or script.default in script.words
        assert all(each.about for each in script.words.values())
        assert all(each.about for each in script.variables.values())


def test_what_the_script_writes_of_its_variables() -> None:
    script = described(AVAROK)
    assert script.arguments({"MAX_NUM_SEQS": "4", "PORT": ""}) == {
        "host": "0.0.0.0",
        "port": "8888",
        "gpu_memory_utilization": "0.75",
        "max_model_len": "131072",
        "max_num_seqs": "4",
    }
    assert script.arguments({"TENSOR_PARALLEL_SIZE": "2"})["tensor_parallel"] == "2"


def test_a_misspelled_variable_is_near_to_the_one_that_is_meant() -> None:
    script = described(AVAROK)
    assert script.near("MAX_NUM_SEQ") == "MAX_NUM_SEQS"
    assert script.near("GPU_MEMORY_UTILS") == "GPU_MEMORY_UTIL"
    assert [script.near(name) for name in ("MAX_NUM_SEQS", "NCCL_DEBUG", "HF_HOME", "VLLM_LOGGING_LEVEL")] == [""] * 4
