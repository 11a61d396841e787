"""Where tokens are found, and how keys are kept."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.errors import SparkError, UsageError
from spark_tui.base.files import PrivateFolder
from spark_tui.base.secret import Secret
from spark_tui.machine.secrets import FileSecrets


def store(tmp_path: Path, **environ: str) -> FileSecrets:
    return FileSecrets(PrivateFolder(tmp_path / "config" / "secrets"), environ, tmp_path)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# --- Hugging Face ---------------------------------------------------------------------------------------


def test_the_environment_comes_before_the_files(tmp_path: Path) -> None:
    put(tmp_path / ".cache/huggingface/token", "hf_home")
    put(tmp_path / "hub/token", "hf_hub")
    put(tmp_path / "xdg/huggingface/token", "hf_xdg")
    put(tmp_path / "own", "hf_own")
    layers = [
        ({"HF_TOKEN": "hf_env\n"}, "hf_env"),
        ({"HUGGING_FACE_HUB_TOKEN": "hf_old"}, "hf_old"),
        ({"HF_TOKEN_PATH": "~/own"}, "hf_own"),
        ({"HF_HOME": str(tmp_path / "hub")}, "hf_hub"),
        ({"XDG_CACHE_HOME": str(tmp_path / "xdg")}, "hf_xdg"),
        ({}, "hf_home"),
    ]
    for number, (_, expected) in enumerate(layers):
        environ = {key: value for layer, _ in layers[number:] for key, value in layer.items()}
        assert store(tmp_path, **environ).hf_token() == Secret(expected)


def test_a_token_file_that_cannot_be_read_is_noted_and_does_not_stop_a_launch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".cache/huggingface/token").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        assert store(tmp_path).hf_token() is None
    assert "cannot be read" in caplog.text
    (tmp_path / ".cache/huggingface/token").rmdir()
    put(tmp_path / ".cache/huggingface/token", "\n")
    assert store(tmp_path, HF_TOKEN=" ").hf_token() is None, "an empty token is none"


# --- env files ------------------------------------------------------------------------------------------


def test_an_env_file_is_private_and_gives_its_key_back(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        secrets = store(tmp_path)
        path = secrets.env_file("qwen", {"HF_TOKEN": Secret("hf_x"), "VLLM_API_KEY": Secret("k=1 #2")})
    finally:
        os.umask(before)
    assert path == secrets.path("qwen")
    assert path.read_text() == "HF_TOKEN=hf_x\nVLLM_API_KEY=k=1 #2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert secrets.api_key(str(path)) == Secret("k=1 #2")
    other = secrets.env_file("other", {"HF_TOKEN": Secret("hf_x")})
    assert (secrets.api_key(str(other)), secrets.api_key(str(secrets.path("absent")))) == (None, None)


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "", "relative", "config/secrets/x", "\x00", "config/secrets/../stolen"]
)
def test_a_path_from_a_label_opens_nothing_outside_our_folder(tmp_path: Path, path: str) -> None:
    put(tmp_path / "config/stolen", "VLLM_API_KEY=stolen\n")
    given_path = str(tmp_path / path) if path.startswith("config") else path
    assert store(tmp_path).api_key(given_path) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, "x") for name in ("", "A B", "1A", "A=B", "A\nB")]
    + [("VLLM_API_KEY", value) for value in ("a\nB=c", "a\r", "\x00", "a\u2028b", "a\x0bb")],
)
def test_a_bad_name_and_a_value_with_a_line_break_are_refused_and_not_shown(
    tmp_path: Path, name: str, value: str
) -> None:
    secrets = store(tmp_path)
    with pytest.raises(UsageError) as caught:
        secrets.env_file("qwen", {name: Secret(value)})
    assert "B=c" not in str(caught.value)
    assert not secrets.path("qwen").exists()


@given(value=st.text(min_size=1))
def test_whatever_is_written_is_one_line_and_reads_back(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    secrets = store(tmp_path_factory.mktemp("secrets"))
    try:
        path = secrets.env_file("qwen", {"VLLM_API_KEY": Secret(value), "LAST": Secret("x")})
    except UsageError:
        return
    assert path.read_bytes().count(b"\n") == 2
    assert secrets.api_key(str(path)) == Secret(value)


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    put(tmp_path / "config/secrets", "a file in the way")
    with pytest.raises(SparkError, match="cannot be written") as caught:
        store(tmp_path).env_file("qwen", {"VLLM_API_KEY": Secret("hidden")})
    assert caught.value.remedy
    assert "hidden" not in str(caught.value)


def test_new_keys_are_long_and_never_the_same(tmp_path: Path) -> None:
    keys = {store(tmp_path).new_key().reveal() for _ in range(50)}
    assert len(keys) == 50
    assert all(len(key) == 48 and set(key) <= set("0123456789abcdef") for key in keys)
