"""Settings of other programs: our keys go in and out, every other byte stays; what cannot be done safely is refused."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.errors import RefusedError, SparkError
from spark_tui.base.secret import Secret
from spark_tui.use.connect.adapter import (
    ClientFileNotEditable,
    ClientFileUnreadable,
    HomeFiles,
    JsonText,
    edited,
    parsed,
    value_at,
)
from spark_tui.use.connect.model import CLIENTS, ClientFile, FileFormat, Named, Served, keys_of
from tests.cases import all_cases
from tests.ordinary_user import ordinary_user

JSON, TOML, YAML, ENV, TEXT = FileFormat
SERVED = Served("qwen", "http://127.0.0.1:8000", 131072, Secret("0123456789abcdef"), "/keys/qwen.env")


@all_cases(
    ("kind", "before", "path", "after"),
    [
        (JSON, "", ("a", "b"), '{\n  "a": {\n    "b": "v"\n  }\n}\n'),
        (JSON, "{}", ("a",), '{\n  "a": "v"\n}'),
        (JSON, '{"x": 1}', ("a",), '{"x": 1, "a": "v"}'),
        (JSON, '{\n\t"x": 1 // why\n}\n', ("a",), '{\n\t"x": 1, // why\n\t"a": "v"\n}\n'),
        (JSON, '{\n  "x": 1, // why\n}\n', ("a",), '{\n  "x": 1, // why\n  "a": "v",\n}\n'),
        (JSON, '{ "a": "old" /* c */ }', ("a",), '{ "a": "v" /* c */ }'),
        (JSON, '{"a": {"x": [1, {}]}, "z": 0}', ("a", "b"), '{"a": {"x": [1, {}], "b": "v"}, "z": 0}'),
        (JSON, "{ // mine\n}", ("a",), '{ // mine\n  "a": "v"\n}'),
        (JSON, '{"a": null}', ("a", "b"), '{"a": {\n  "b": "v"\n}}'),
        (JSON, '{\r\n  "x": 1\r\n}\r\n', ("a",), '{\r\n  "x": 1,\r\n  "a": "v"\r\n}\r\n'),
        (JSON, '{\r\n  "a": 1,\n  "x": 1\r\n}', ("a",), '{\r\n  "a": "v",\n  "x": 1\r\n}'),
        (TOML, "# mine\nx = 1\n\n[t]\ny = 2\n", ("a",), '# mine\nx = 1\na = "v"\n\n[t]\ny = 2\n'),
        (TOML, 'a = "old" # c\n', ("a",), 'a = "v" # c\n'),
        (TOML, "x = 1\n", ("t", "s", "a"), 'x = 1\n\n[t.s]\na = "v"\n'),
        (YAML, "# mine\nx: 1  # c\n", ("a",), "# mine\nx: 1  # c\na: v\n"),
        (YAML, "a: old  # c\nx: 1\n", ("a",), "a: v  # c\nx: 1\n"),
        (ENV, "# mine\nexport a=old\nX=1", ("a",), "# mine\nexport a=v\nX=1"),
        (ENV, "X=1", ("a",), "X=1\na=v\n"),
        (ENV, "a=old # c\n", ("a",), "a=v # c\n"),
        (ENV, "a = 'x # y'\t# c\r\nX=1\n", ("a",), "a=v\t# c\r\nX=1\n"),
        (ENV, "a= # c\n", ("a",), "a=v # c\n"),
        (TEXT, "", (), "v\n"),
    ],
)
def test_a_value_is_set_and_everything_else_stays(
    kind: FileFormat, before: str, path: tuple[str, ...], after: str
) -> None:
    assert edited(before, kind, ((path, "v"),)) == after


@all_cases(
    ("before", "after"),
    [
        ('{"a": 1}', "{}"),
        ('{"a": 1, "x": 1}', '{ "x": 1}'),
        ('{"x": 1, "a": 1}', '{"x": 1}'),
        ('{\n  "x": 1,\n  "a": 1,\n}\n', '{\n  "x": 1,\n}\n'),
        ('{\n  "x": 1, // why\n  "a": 1\n}\n', '{\n  "x": 1 // why\n}\n'),
        ('{\n  "x": 1 /* , */,\n  "a": 1\n}\n', '{\n  "x": 1 /* , */\n}\n'),
        ('{\n  "a": 1 /* , */,\n  "x": 1\n}\n', '{\n  "x": 1\n}\n'),
        ('{\r\n  "a": 1,\r\n  "x": 1\r\n}\r\n', '{\r\n  "x": 1\r\n}\r\n'),
        ('{\r\n  "a": 1,\r\n  "x": 1\n}\n', '{\r\n  "x": 1\n}\n'),
        ('{"x": {"y": ["a", "}"]}, "a": {"b": 1}}', '{"x": {"y": ["a", "}"]}}'),
    ],
)
def test_a_member_is_removed_and_everything_else_stays(before: str, after: str) -> None:
    assert edited(before, JSON, ((("a",), None),)) == after


@all_cases(
    ("line", "value"),
    [
        ("a=b c  ", "b c"), ("a=b # c", "b"), ("a=b#c", "b#c"), ("a=#c", "#c"), ("a= #c", ""), ("a=", ""),
        ("export a = 'b # c' # d", "b # c"), ('a="b\'s"', "b's"), ("a='b", "'b"), ("a=b=c\xa0d", "b=c\xa0d"),
        ("a=" + " " * 200_000 + "x", "x"), ("a=" + " #" * 100_000, ""),
    ],
    ids=lambda each: each[:20],
)  # fmt: skip
def test_a_variable_is_read_as_its_clients_read_it(line: str, value: str) -> None:
    assert parsed(f"X=1\n{line}\r\nY=2", ENV) == {"X": "1", "a": value, "Y": "2"}


MODELS = """\
name: Mine # kept
models:
  # the first
  - name: Other
    model: gpt  # c
    roles: [chat]
  # after
context: []
"""


def test_an_entry_of_a_yaml_list_is_added_replaced_and_removed() -> None:
    path = ("models", Named("DGX Spark"))
    once = edited(MODELS, YAML, ((path, {"name": "DGX Spark", "model": "a", "roles": ["chat"]}),))
    twice = edited(once, YAML, ((path, {"name": "DGX Spark", "model": "b"}),))
    assert [each["model"] for each in yaml.safe_load(twice)["models"]] == ["gpt", "b"]
    assert [line for line in MODELS.splitlines() if line not in twice.splitlines()] == []
    assert edited(twice, YAML, ((path, None),)) == MODELS


@pytest.mark.parametrize("text", ["", "name: x\n", "models: []\n", "models:\nname: x\n"])
def test_the_first_entry_of_a_yaml_list(text: str) -> None:
    path = ("models", Named("a"))
    if "[]" in text or "models:\n" in text:
        with pytest.raises(ClientFileNotEditable):
            edited(text, YAML, ((path, {"name": "a"}),))
        return
    after = edited(text, YAML, ((path, {"name": "a", "x": 1}),))
    assert yaml.safe_load(after)["models"] == [{"name": "a", "x": 1}]
    assert edited(after, YAML, ((path, None),)) == text


FOREIGN = {
    JSON: '// head\n{\n    "env": { "X": "1" }, /* c */\n    "list": [1, 2, // two\n    ],\n}\n',
    TOML: '# head\nx = 1 # c\n\n[mcp.a]\ny = [1, # one\n  2]\n\n[[list]]\nz = "1"\n',
    YAML: "# head\nx: 1 # c\nmodels:\n- name: Other\n  model: m # c\n\n# tail\nlist:\n  - a\n",
    ENV: "# head\nX='1' # c\n\nexport Y=2\n",
    TEXT: "",
}


@all_cases("client", [client for client in CLIENTS.values() if client.files], ids=lambda each: each.id)
@all_cases("fresh", [True, False])
def test_every_clients_keys_go_in_and_out_again(client: object, fresh: bool) -> None:
    assert hasattr(client, "files")
    for file in client.files:
        before = "" if fresh else FOREIGN[file.format]
        keys = tuple(keys_of(file.keys_for(SERVED)))
        text = edited(before, file.format, keys)
        for path, value in keys:
            found = value_at(parsed(text, file.format), path)
            assert found == (value.reveal() if isinstance(value, Secret) else value)
        again = edited(text, file.format, keys)
        assert again == text
        out = edited(text, file.format, tuple((path, None) for path, _ in keys))
        assert parsed(out, file.format) == parsed(before, file.format)
        assert not [line for line in before.splitlines() if line not in out.splitlines()]


@all_cases(
    ("kind", "text", "line"),
    [
        (JSON, '{\n  "a": 1\n  "b": 2\n}', 3), (JSON, '{"a": }', 1), (JSON, '{\n"a": "x', 2), (JSON, "{} {}", 1),
        (JSON, "[" * 5000, 1), (JSON, "\n" + "[" * 61 + "]" * 61, 2), (JSON, '{\n"a": [1,,2]}', 2), (JSON, "[\n,]", 2),
        (JSON, "{}\n/* open", 2), (JSON, '{\n"\\x": 1}', 2), (JSON, "// no value\n", 2), (JSON, "", 0),
        (JSON, '{\n"a": ' + "9" * 5000 + "}", 2), (TOML, "a = 1\nb = = 2\n", 2), (YAML, "a: 1\nb: [1\nc: 2\n", 3),
    ],
)  # fmt: skip
def test_what_does_not_parse_names_its_line(kind: FileFormat, text: str, line: int) -> None:
    if not text:
        assert parsed(text, kind) == {}
        return
    with pytest.raises(ClientFileUnreadable) as found:
        parsed(text, kind)
    assert found.value.line == line


@given(st.text(alphabet='{}[]",:/* \n\\a1.é\u2028', max_size=60))
def test_json_of_any_text_parses_or_is_unreadable(text: str) -> None:
    try:
        found = JsonText(text).value
    except ClientFileUnreadable:
        with pytest.raises(ValueError):
            json.loads(text)
        return
    try:
        assert json.loads(text) == found
    except ValueError:  # comments and trailing commas
        assert "/" in text or "," in text


leaf = st.one_of(st.integers(-9, 9), st.text(max_size=4), st.booleans())
trees = st.recursive(
    st.dictionaries(st.text(max_size=3), leaf, max_size=3),
    lambda x: st.dictionaries(st.text(max_size=3), x, max_size=3),
)


@given(trees, st.lists(st.sampled_from(["a", "b", "é"]), min_size=1, max_size=3), st.sampled_from([None, 1, 2]))
def test_json_in_any_shape_takes_and_gives_back_a_key(
    tree: dict[str, object], path: list[str], indent: int | None
) -> None:
    text = json.dumps(tree, indent=indent)
    after = edited(text, JSON, ((tuple(path), "new"),))
    assert value_at(json.loads(after), tuple(path)) == "new"
    gone = json.loads(edited(after, JSON, ((tuple(path), None),)))
    assert value_at(gone, tuple(path)) is None


@pytest.mark.parametrize("text", ["t.a = 1\n", "[t]\nx = 1\n[other]\n[t.s]\ny = 1\n", "t = {a = 1}\n"])
def test_toml_written_in_other_ways_is_changed_or_refused(text: str) -> None:
    try:
        after = edited(text, TOML, ((("t", "s", "a"), "v"),))
    except ClientFileNotEditable:
        return
    assert tomllib.loads(after)["t"]["s"]["a"] == "v"


# --- files ------------------------------------------------------------------------------------------------

FILE = ClientFile(("settings.json", "settings.jsonc"), JSON, {}, ".claude", "CLAUDE_CONFIG_DIR")


def test_a_file_is_read_with_its_mode_and_an_absent_one_is_private(tmp_path: Path) -> None:
    files = HomeFiles(tmp_path, {})
    absent = files.read(FILE)
    assert (absent.path, absent.text, absent.mode) == (str(tmp_path / ".claude/settings.json"), None, 0o600)
    files.write(absent.path, "{}", 0o640)
    assert (files.read(FILE).text, files.read(FILE).mode) == ("{}", 0o640)
    files.write(absent.path, None, 0)
    assert not Path(absent.path).exists()


def test_a_variable_moves_the_folder_and_the_last_name_that_is_there_is_used(tmp_path: Path) -> None:
    files = HomeFiles(tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path / "c")})
    (tmp_path / "c").mkdir()
    (tmp_path / "c/settings.jsonc").write_text("{}")
    assert files.read(FILE).path == str(tmp_path / "c/settings.jsonc")


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / ".claude").mkdir()
    link = tmp_path / ".claude/settings.json"
    link.symlink_to(tmp_path / "real.json")
    assert HomeFiles(tmp_path, {}).read(FILE).target == str(tmp_path / "real.json")
    HomeFiles(tmp_path, {}).write(str(link), '{"a": 1}', 0o600)
    assert link.is_symlink()
    assert (tmp_path / "real.json").read_text() == '{"a": 1}'


def test_a_read_only_file_stays(tmp_path: Path) -> None:
    place = tmp_path / "settings.json"
    place.write_text("{}")
    place.chmod(0o444)
    with pytest.raises(RefusedError) as found:
        HomeFiles(tmp_path, {}).write(str(place), "x", 0o600)
    assert "chmod u+w" in found.value.remedy
    assert place.read_text() == "{}"


def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o664])
def test_root_leaves_a_file_to_its_owner(tmp_path: Path, mode: int) -> None:
    as_root()
    place = tmp_path / "settings.json"
    place.write_text("{}")
    os.chown(place, 1234, 5678)
    place.chmod(mode)
    HomeFiles(tmp_path, {}).write(str(place), '{"a": 1}', mode)
    status = place.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 5678, mode)
    assert place.read_text() == '{"a": 1}'


def test_what_root_makes_in_a_home_belongs_to_the_home(tmp_path: Path) -> None:
    as_root()
    os.chown(tmp_path, 1234, 5678)
    place = tmp_path / ".config/opencode/opencode.json"
    HomeFiles(tmp_path, {}).write(str(place), "{}", 0o600)
    for each in (place, *place.parents[:2]):
        assert (each.stat().st_uid, each.stat().st_gid) == (1234, 5678)
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    as_root()
    place = tmp_path / "settings.json"
    place.write_text("{}")
    os.chown(place, 1234, 5678)
    tmp_path.chmod(0o777)
    with ordinary_user(tmp_path), pytest.raises(SparkError):
        HomeFiles(tmp_path, {}).write(str(place), '{"a": 1}', 0o600)
    assert (place.stat().st_uid, place.read_text(), list(tmp_path.iterdir())) == (1234, "{}", [place])


def test_a_hard_link_is_not_parted(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    place = tmp_path / ".claude/settings.json"
    place.write_text("{}")
    other = tmp_path / "other names.json"
    os.link(place, other)
    with pytest.raises(RefusedError) as found:
        HomeFiles(tmp_path, {}).write(str(place), '{"a": 1}', 0o600)
    assert place.samefile(other) and other.read_text() == "{}"
    subprocess.run(found.value.remedy.partition(": ")[2], shell=True, check=True)
    HomeFiles(tmp_path, {}).write(str(place), '{"a": 1}', 0o600)
    assert (place.read_text(), other.read_text()) == ('{"a": 1}', "{}")


def test_a_large_file_is_not_called_something_else(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_bytes(b"{}" + b" " * 300_000)
    with pytest.raises(RefusedError) as found:
        HomeFiles(tmp_path, {}).read(FILE)
    assert "larger than 256 KiB" in found.value.summary and "away" not in found.value.remedy


@pytest.mark.parametrize("data", [b'{"a": }', b"[1]", b"\xff\xfe", b"{}\0"])
def test_a_file_that_is_not_settings_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_bytes(data)
    with pytest.raises(RefusedError) as found:
        HomeFiles(tmp_path, {}).read(FILE)
    assert "settings.json" in found.value.summary


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
)
AIDER = ClientFile((".aider.conf.yml",), YAML, {})


@all_cases(
    ("kind", "text"),
    [
        (YAML, BOMB), (YAML, "a: " + "[" * 5000), (YAML, "a: &a [*a]\n"), (YAML, "a: 1" + ":1" * 5000 + "\n"),
        (YAML, "a: 1" + ":1" * 190 + ".5\n"), (YAML, "a: 2026-13-45\n"), (YAML, "a: " + "9" * 5000),
        (YAML, "? {a: 1}\n: 2\n"), (TOML, "a = " + "[" * 5000), (TOML, ".".join("a" * 5000) + " = 1\n"),
        (TOML, "a = " + "9" * 5000), (JSON, '{"a":' * 500 + "1" + "}" * 500), (JSON, '{"a": ' + "9" * 5000 + "}"),
    ],
    ids=lambda each: str(each)[:12],
)  # fmt: skip
def test_what_would_cost_too_much_is_refused(kind: FileFormat, text: str) -> None:
    with pytest.raises(ClientFileUnreadable):
        parsed(text, kind)


def test_a_bomb_in_a_settings_file_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / ".aider.conf.yml").write_text(BOMB)
    with pytest.raises(RefusedError) as found:
        HomeFiles(tmp_path, {}).read(AIDER)
    assert f"{tmp_path / '.aider.conf.yml'}:5" in found.value.summary


def test_anchors_and_merges_are_read_and_kept(tmp_path: Path) -> None:
    text = "base: &base {x: 1}\nother:\n  <<: *base\n  y: 2\nmodel: gpt\n"
    assert parsed(text, YAML)["other"] == {"x": 1, "y": 2}
    assert edited(text, YAML, ((("model",), "qwen"),)) == text.replace("gpt", "qwen")


def test_a_pipe_or_a_folder_in_its_place_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    os.mkfifo(tmp_path / ".claude/settings.json")
    with pytest.raises(SparkError):
        HomeFiles(tmp_path, {}).read(FILE)
