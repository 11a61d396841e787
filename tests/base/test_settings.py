"""Defaults, then the file, then the environment; and every mistake named with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_tui.base.errors import ExitCode
from spark_tui.base.settings import (
    KEYS,
    ExposureChoice,
    Folders,
    SettingOrigin,
    Settings,
    SettingsError,
    SettingSource,
    defaults,
    folders_of,
    hub_caches,
    read_value,
    variable_of,
)
from spark_tui.machine.settings import load_settings


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return folders_of({}, tmp_path)


def write(folders: Folders, text: str | bytes) -> None:
    folders.settings_file.parent.mkdir(parents=True, exist_ok=True)
    folders.settings_file.write_bytes(text if isinstance(text, bytes) else text.encode())


# --- where things are -----------------------------------------------------------------------------------


def test_a_person_who_has_set_nothing(folders: Folders, tmp_path: Path) -> None:
    settings = load_settings({}, folders)
    assert settings == defaults(folders)
    assert settings.model_roots == ()
    assert settings.store == tmp_path / "vllm"
    assert settings.presets == tmp_path / ".config/spark-tui/presets"
    assert settings.caches == tmp_path / ".cache/spark-tui/kernels"
    assert (settings.docker_host, settings.refresh_seconds) == ("", 1.0)
    assert (settings.exposure, settings.read_only) == (ExposureChoice.LOCAL, False)
    assert all(settings.origin(key) == SettingOrigin(SettingSource.DEFAULT) for key in KEYS)


def test_xdg_folders_are_honoured_when_absolute() -> None:
    home = Path("/home/u")
    found = folders_of({"XDG_CONFIG_HOME": "/etc/u", "XDG_STATE_HOME": "relative", "XDG_CACHE_HOME": ""}, home)
    assert found.config == Path("/etc/u/spark-tui")
    assert found.state == home / ".local/state/spark-tui"
    assert found.cache == home / ".cache/spark-tui"


# --- precedence -----------------------------------------------------------------------------------------


def test_the_environment_comes_before_the_file_and_each_value_knows_its_origin(
    folders: Folders, tmp_path: Path
) -> None:
    write(folders, 'refresh_seconds = 2\nread_only = true\n\nstore = "~/models"\n')
    settings = load_settings({"SPARK_TUI_READ_ONLY": "off", "SPARK_TUI_EXPOSURE": "lan"}, folders)
    assert settings.store == tmp_path / "models"
    assert settings.refresh_seconds == 2.0
    assert not settings.read_only
    assert settings.exposure is ExposureChoice.LAN
    assert settings.origin("store") == SettingOrigin(SettingSource.FILE, f"{folders.settings_file}:4")
    assert settings.origin("read_only") == SettingOrigin(SettingSource.ENVIRONMENT, "SPARK_TUI_READ_ONLY")
    assert settings.origin("caches") == SettingOrigin(SettingSource.DEFAULT)


def test_every_setting_can_be_set_in_both_places(folders: Folders) -> None:
    values = {
        "store": "/m",
        "model_roots": "/data/models,/mnt/hub",
        "presets": "/p",
        "caches": "/c",
        "docker_host": "unix:///run/d.sock",
        "refresh_seconds": "5",
        "exposure": "lan",
        "read_only": "yes",
        "guard_serving_gib": "1.5",
        "guard_loading_gib": "4",
        "guard_auto": "no",
        "stop_crash_loops": "no",
        "memory_share": "preset",
        "theme": "spark-light",
        "glyphs": "ascii",
        "notify": "bell,osc9",
        "keymap": "stop=X",
        "hosts": "lab=nv@spark-2",
        "engines": "lab=http://192.168.1.7:8000 http://10.0.0.9:30000",
        "clusters": "duo=nv@spark-1,fabric=10.0.0.1,if=enp1s0f0np0;nv@spark-2,fabric=10.0.0.2,if=enp1s0f0np0",
    }
    assert set(values) == set(KEYS)
    from_environment = load_settings({variable_of(key): value for key, value in values.items()}, folders)
    text = "\n".join(
        f'{key} = "{value}"' for key, value in values.items() if key not in ("refresh_seconds", "read_only")
    )
    write(folders, f"{text}\nrefresh_seconds = 5\nread_only = true\n")
    assert replace(load_settings({}, folders), origins=from_environment.origins) == from_environment
    assert from_environment != defaults(folders)


# --- where models lie -----------------------------------------------------------------------------------


def test_models_go_where_the_hubs_own_tools_keep_them(folders: Folders, tmp_path: Path) -> None:
    settings = load_settings({"HF_HOME": "/data/hf"}, folders)
    assert (settings.store, settings.origin("store")) == (
        Path("/data/hf"), SettingOrigin(SettingSource.ENVIRONMENT, "HF_HOME"),
    )  # fmt: skip
    assert load_settings({"HF_HOME": "~/hf"}, folders).store == tmp_path / "hf"
    assert load_settings({"HF_HOME": "/data/hf", "SPARK_TUI_STORE": "/own"}, folders).store == Path("/own")
    write(folders, 'store = "~/mine"\n')
    assert load_settings({"HF_HOME": "/data/hf"}, folders).store == tmp_path / "mine"


@pytest.mark.parametrize("home", ["", "relative", "/a:b", "/a\nb", "~other/x"])
def test_a_home_of_the_hub_that_no_container_can_mount_is_passed_over(folders: Folders, home: str) -> None:
    assert load_settings({"HF_HOME": home}, folders) == defaults(folders)


def test_hub_caches_are_searched_in_one_order_each_once(tmp_path: Path) -> None:
    settings = Settings(store=Path("/s"), model_roots=(Path("/d"),)).resolved(tmp_path)
    environ = {"HF_HUB_CACHE": "/c", "HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "~/c"}
    usual = f"{tmp_path}/.cache/huggingface/hub"
    guide = f"{tmp_path}/vllm/hub"
    assert hub_caches(settings, environ, tmp_path) == ("/c", f"{tmp_path}/c", "/h/hub", usual, guide, "/d/hub", "/d")
    plain = Settings().resolved(tmp_path)
    assert hub_caches(plain, {}, tmp_path) == (usual,), "the store itself is none of them"
    assert hub_caches(plain, {"HF_HOME": "relative", "XDG_CACHE_HOME": "/x"}, tmp_path) == ("/x/huggingface/hub",)


# --- mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("# c\nread_onyl = true\n", 2, "no setting `read_onyl`. Did you mean `read_only`?"),
        ("colour = 1\n", 1, "no setting `colour`. The settings are: store,"),
        ("\n[store]\nx = 1\n", 2, "store must be a path"),
        ("[sotre]\nx = 1\n", 1, "Did you mean `store`?"),
        ("read_only = 3\n", 1, "read_only must be true or false; it is 3"),
        ("refresh_seconds = 0\n", 1, "refresh_seconds must be a number of seconds from 0.2 to 60; it is 0"),
        ('refresh_seconds = "fast"\n', 1, "it is 'fast'"),
        ("refresh_seconds = nan\n", 1, "it is nan"),
        ("refresh_seconds = true\n", 1, "it is True"),
        ('exposure = "everyone"\n', 1, "exposure must be local or lan; it is 'everyone'"),
        ('docker_host = "/run/docker.sock"\n', 1, "(write unix:///run/docker.sock)"),
        ('docker_host = "ssh://nv@spark-2"\n', 1, "(another machine: spark-tui --host nv@spark-2)"),
        ('\n[hosts]\nlab = "-oProxyCommand=id"\n', 2, "hosts must be an address as for ssh"),
        ('[host]\nlab = "nv@spark-2"\n', 1, "Did you mean `hosts`?"),
        ("\n[clusters]\nduo = { nodes = [] }\n", 2, "clusters must have 2 to 8 nodes; duo has 0"),
        ('[clusters.duo]\nnodes = [{ ssh = "-a" }, { ssh = "b" }]\n', 1, "clusters must be an address as for ssh"),
        ('store = ""\n', 1, "store must be a path"),
        ('store = "/a:b"\n', 1, "without a colon"),
        ('store = "~other/x"\n', 1, "must begin with / or ~/"),
        ('store = "/a\\nb"\n', 1, "store must be a path"),
        ("store = /models\n", 1, "is not valid TOML"),
        ("read_only = true\nread_only = false\n", 2, "is not valid TOML"),
        ("read_only = \n", 1, "is not valid TOML"),
    ],
)
def test_a_mistake_names_file_line_and_what_was_meant(folders: Folders, text: str, line: int, says: str) -> None:
    write(folders, text)
    with pytest.raises(SettingsError) as caught:
        load_settings({}, folders)
    assert f"{folders.settings_file}:{line}" in str(caught.value)
    assert says in str(caught.value)
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"read_only = true\nstore = '\xff'\n", r"settings\.toml:2 is not UTF-8"),
        (b"#" * 1_000_000, "too large"),
        (b"store = " + b"[" * 100_000, "settings"),
        (None, "cannot be read"),
    ],
    ids=["not text", "too large", "too deep", "a folder"],
)
def test_a_file_that_cannot_be_read_is_an_error_and_no_default(folders: Folders, raw: bytes | None, says: str) -> None:
    if raw is None:
        folders.settings_file.mkdir(parents=True)
    else:
        write(folders, raw)
    with pytest.raises(SettingsError, match=says):
        load_settings({}, folders)


@pytest.mark.timeout(20)
def test_a_pipe_or_a_device_in_its_place_hangs_nothing(folders: Folders) -> None:
    folders.settings_file.parent.mkdir(parents=True)
    os.mkfifo(folders.settings_file)
    with pytest.raises(SettingsError, match="Not a plain file"):
        load_settings({}, folders)
    folders.settings_file.unlink()
    folders.settings_file.symlink_to("/dev/zero")
    with pytest.raises(SettingsError, match="Not a plain file"):
        load_settings({}, folders)


def test_windows_line_ends_and_a_byte_order_mark_are_no_mistake(folders: Folders) -> None:
    write(folders, b"\xef\xbb\xbfread_only = true\r\nrefresh_seconds = 3\r\n")
    settings = load_settings({}, folders)
    assert settings.refresh_seconds == 3.0
    typed = settings.changed(SettingOrigin(SettingSource.OPTION, "--read-only"), read_only=False)
    assert typed.origin("read_only") == SettingOrigin(SettingSource.OPTION, "--read-only"), (
        "a typed option comes before all"
    )
    assert (typed.read_only, settings.read_only) == (False, True)


@pytest.mark.parametrize("name", ["SPARK_TUI_READONLY", "SPARK_TUI_READ_ONYL", "SPARK_TUI_STORES"])
def test_a_misspelt_variable_is_a_mistake(folders: Folders, name: str) -> None:
    with pytest.raises(SettingsError, match="Did you mean SPARK_TUI_"):
        load_settings({name: "1"}, folders)


def test_variables_of_other_programs_are_left_alone(folders: Folders) -> None:
    environ = {"SPARK_TUI_LAB": "/x", "SPARK_TUI_REAL": "required", "SPARK_HOME": "/spark"}
    assert load_settings(environ, folders) == defaults(folders)


@given(st.binary(max_size=200))
def test_no_file_raises_anything_but_a_settings_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folders = folders_of({}, tmp_path_factory.mktemp("home"))
    write(folders, raw)
    try:
        load_settings({}, folders)
    except SettingsError as error:
        assert str(folders.settings_file) in str(error)


@given(st.sampled_from(KEYS), st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none()))
def test_reading_a_value_gives_a_value_or_a_sentence(key: str, value: object) -> None:
    try:
        read = read_value(key, value)
    except ValueError as error:
        assert str(error).startswith("must ")
    else:
        assert read_value(key, read) == read, "a read value reads as itself"
