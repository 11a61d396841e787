"""Preset folders: one broken file never hides the others, and nothing that lies there can stop or hang the program."""

from __future__ import annotations

import codecs
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.errors import PresetError, SparkError
from spark_tui.base.files import PrivateFolder
from spark_tui.base.host.vitals import HostPaths
from spark_tui.catalog.presets.adapter import store as preset_files
from spark_tui.catalog.presets.adapter.store import MAX_BYTES, PresetFiles, builtin_directory, parse
from spark_tui.catalog.presets.model.overrides import Overrides
from spark_tui.catalog.presets.model.plan import plan
from spark_tui.catalog.presets.model.preset import Origin, PresetCatalogue, plain
from spark_tui.catalog.presets.model.recipe import preset_from
from spark_tui.catalog.presets.use.rights import PresetSource
from tests import TESTS
from tests.ordinary_user import ordinary_user

FIXTURES = TESTS / "fixtures" / "presets"
GOOD = "model: org/m\ncontainer: vllm/vllm-openai:nightly\n"


@pytest.fixture
def builtin(tmp_path: Path) -> Path:
    folder = tmp_path / "builtin"
    folder.mkdir()
    (folder / "good.yaml").write_text(GOOD)
    return folder


def only_problem(catalogue: PresetCatalogue) -> PresetError:
    assert [preset.name for preset in catalogue.presets] == ["good"], "one broken file never hides the others"
    (problem,) = catalogue.problems
    assert problem.summary
    assert problem.remedy
    return problem


def test_the_shipped_presets_all_load() -> None:
    source: PresetSource = PresetFiles(builtin_directory())
    catalogue = source.load()
    assert catalogue.problems == ()
    assert len(catalogue.presets) >= 4
    assert all(preset.origin is Origin.BUILTIN for preset in catalogue.presets)


def test_recipes_of_other_people_load_beside_files_that_do_not() -> None:
    catalogue = PresetFiles(FIXTURES).load()
    names = [preset.name for preset in catalogue.presets]
    assert names == ["needs-shell", "sparkrun-cluster", "sparkrun-solo", "sparkrun-without-command"]
    assert [Path(problem.file).name for problem in catalogue.problems] == ["eugr-solo.v1.yaml", "spark-pulse.v2.yaml"]


def test_a_file_of_ones_own_takes_the_place_of_a_builtin(builtin: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "good.yml").write_text(GOOD.replace("org/m", "org/mine"))
    (user / "another.yaml").write_text(GOOD)
    catalogue = PresetFiles(builtin, user).load()
    assert [(p.name, p.model, p.origin) for p in catalogue.presets] == [
        ("another", "org/m", Origin.USER),
        ("good", "org/mine", Origin.USER),
    ]
    assert catalogue.problems == ()


def test_a_broken_replacement_leaves_the_builtin_and_says_so(builtin: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "good.yaml").write_text("model: 5\n")
    problem = only_problem(PresetFiles(builtin, user).load())
    assert "the built-in preset of this name is used" in problem.summary
    assert problem.where == f"{user / 'good.yaml'}:1"


def test_two_files_of_one_name_are_told(builtin: Path) -> None:
    (builtin / "good.yml").write_text(GOOD)
    assert "good.yaml gives a preset of this name too" in only_problem(PresetFiles(builtin).load()).summary


def test_a_user_folder_that_does_not_exist_is_no_problem(builtin: Path, tmp_path: Path) -> None:
    assert PresetFiles(builtin, tmp_path / "none").load().problems == ()


def test_a_builtin_folder_that_does_not_exist_is_one(tmp_path: Path) -> None:
    (problem,) = PresetFiles(tmp_path / "none").load().problems
    assert "preset folder cannot be read" in problem.summary


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (b"model: org/m\n\tcontainer: x\n", 2, "not valid YAML"),
        (b"model: 'org/m\ncontainer: x\n", 3, "not valid YAML"),
        (b"model: org/m\n  container: x\n", 2, "not valid YAML"),
        (b"model: org/m\nmodel: org/n\n", 2, "given twice"),
        (b"model: org/m\ncontainer: caf\xe9\n", 2, "not UTF-8"),
        (b"model: org/m\n# \x00\n", 2, "control character 0x0000"),
        ("model: org/m\n# é\n\x07\n".encode(), 3, "control character 0x0007"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", 1, "not UTF-8"),
        (b"", 1, "empty"),
        (b"{{ not: yaml }}", 1, "A key must be a word"),
        (b"[" * 50_000, 1, "nested deeper"),
        (b"%YAML 9.9\n---\na: 1\n", 1, "not valid YAML"),
        (b"\xff\xfe\x00", 1, "not UTF-8"),
    ],
)
def test_a_broken_file_is_named_with_its_line(builtin: Path, content: bytes, line: int, says: str) -> None:
    (builtin / "bad.yaml").write_bytes(content)
    problem = only_problem(PresetFiles(builtin).load())
    assert says in problem.summary
    assert problem.where == f"{builtin / 'bad.yaml'}:{line}"


def test_a_tab_is_answered_with_spaces(builtin: Path) -> None:
    (builtin / "bad.yaml").write_text("model: org/m\n\tcontainer: x\n")
    assert "Indent with spaces" in only_problem(PresetFiles(builtin).load()).remedy


def test_ten_megabytes_are_refused_unread_with_their_size(builtin: Path) -> None:
    (builtin / "bad.yaml").write_bytes(b"model: org/m\n" + b"#" * 10 * MAX_BYTES)
    started = time.perf_counter()
    problem = only_problem(PresetFiles(builtin).load())
    assert time.perf_counter() - started < 0.5
    assert "10.0 MiB; a recipe is at most 1.0 MiB" in problem.summary


def test_what_is_no_file_is_told_and_never_opened(builtin: Path) -> None:
    (builtin / "folder.yaml").mkdir()
    os.mkfifo(builtin / "pipe.yaml")
    (builtin / "dangling.yaml").symlink_to(builtin / "nowhere")
    (builtin / "circle.yaml").symlink_to(builtin / "circle.yaml")
    catalogue = PresetFiles(builtin).load()
    said = {Path(problem.file).name: problem.summary for problem in catalogue.problems}
    assert "folder" in said["folder.yaml"]
    assert "not a regular file" in said["pipe.yaml"]
    assert "No such file" in said["dangling.yaml"]
    assert "symbolic links" in said["circle.yaml"]
    assert [preset.name for preset in catalogue.presets] == ["good"]


def test_an_unreadable_file_is_told(builtin: Path) -> None:
    (builtin / "secret.yaml").write_text(GOOD)
    (builtin / "secret.yaml").chmod(0)
    PresetFiles(builtin).load()  # imports the parser while it may be read
    with ordinary_user(builtin):
        assert "chmod" in only_problem(PresetFiles(builtin).load()).remedy


@pytest.mark.parametrize(
    "name", ["-rf.yaml", "a b.yaml", "x" * 64 + ".yaml", "é.yaml", "a\x1b[31m.yaml", os.fsdecode(b"\xff.yaml")]
)
def test_a_name_that_cannot_name_a_container_is_refused(builtin: Path, name: str) -> None:
    (builtin / name).write_text(GOOD)
    problem = only_problem(PresetFiles(builtin).load())
    assert "cannot be a preset's name" in problem.summary
    assert str(problem).isprintable(), "what is shown holds no control characters and can be encoded"


def test_hidden_files_and_other_suffixes_are_not_presets(builtin: Path) -> None:
    for name in (".#good.yaml", "README.md", "good.yaml~", "good.yaml.bak"):
        (builtin / name).write_text("{")
    assert PresetFiles(builtin).load().problems == ()


def test_utf16_and_byte_order_marks_are_read(builtin: Path) -> None:
    (builtin / "a.yaml").write_bytes(codecs.BOM_UTF8 + GOOD.encode())
    (builtin / "b.yaml").write_bytes(GOOD.encode("utf-16"))
    (builtin / "c.yaml").write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert len(PresetFiles(builtin).load().presets) == 4


def test_an_unchanged_folder_gives_an_equal_catalogue_without_reading(builtin: Path) -> None:
    (builtin / "bad.yaml").write_text("model: 5\n")
    (builtin / "gone.yaml").symlink_to("nowhere")
    source = PresetFiles(builtin)
    first = source.load()
    assert source.load() == first
    (builtin / "good.yaml").write_text(GOOD.replace("org/m", "org/changed"))
    assert source.load().presets[0].model == "org/changed"
    (builtin / "good.yaml").unlink()
    assert source.load().presets == ()


def test_a_folder_is_listed_as_often_for_a_hundred_presets_as_for_one(tmp_path: Path) -> None:
    """Each of them may name another one; the folder was once listed for each."""
    listed: list[str] = []
    counting = [True]
    sys.addaudithook(
        lambda event, _: listed.append(event) if counting and event in ("os.listdir", "os.scandir") else None
    )
    counts = []
    for number in (1, 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        for each in range(number):
            (folder / f"p{each}.yaml").write_text(GOOD)
        listed.clear()
        assert len(PresetFiles(tmp_path / "none", folder).load().presets) == number
        counts.append(len(listed))
    counting.clear()
    assert counts[0] == counts[1]


def test_importing_the_module_does_not_import_yaml() -> None:
    code = "import sys, spark_tui.catalog.presets.adapter.store; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@given(st.binary(max_size=200) | st.text("ab:-[]{}&*!<>|'\"#%@\n\t ,?~=0.", max_size=60).map(str.encode))
def test_no_bytes_make_loading_fail(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-bytes"
    folder.mkdir(exist_ok=True)
    (folder / "any.yaml").write_bytes(content)
    catalogue = PresetFiles(folder).load()
    assert len(catalogue.presets) + len(catalogue.problems) == 1


class _TextKeys(yaml.SafeLoader):
    """PyYAML's safe loader, with keys and dates as they are written: what the reader promises."""

    def construct_mapping(self, node: yaml.MappingValue, deep: bool = False) -> dict:
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


_TextKeys.add_constructor("tag:yaml.org,2002:map", lambda loader, node: loader.construct_mapping(node))
_TextKeys.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


@given(st.text("ab:-[]{}\n ,'\"10.~&*", max_size=60))
def test_values_are_those_of_the_safe_loader(text: str) -> None:
    try:
        document = parse(text, "r.yaml")
    except PresetError:
        return  # stricter: keys twice, keys that are no words, empty files
    assert plain(document) == yaml.load(text, Loader=_TextKeys)


@given(st.sampled_from(sorted(FIXTURES.glob("*.yaml"))), st.data())
def test_a_damaged_recipe_is_a_preset_or_a_problem_and_never_a_crash(path: Path, data: st.DataObject) -> None:
    text = path.read_text()
    at = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:at] + data.draw(st.text("{}[]:'\"\\\n $&|;x0-", max_size=6)) + text[at + data.draw(st.integers(0, 9)) :]
    )
    try:
        preset = preset_from(parse(damaged, "r.yaml"), name="r", origin=Origin.USER, file="r.yaml")
        plan(preset, Overrides(), HostPaths("/store", "/caches"))
    except SparkError as error:
        assert error.summary
        assert error.remedy


def test_without_the_c_parser_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [path.read_text() for path in sorted(FIXTURES.glob("*.yaml"))]
    fast = [preset_files.parse(text, "r.yaml") for text in texts]
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert [preset_files.parse(text, "r.yaml") for text in texts] == fast


# --- what an earlier run read ---------------------------------------------------------------------------


LATER = 10_000_000_000.0
API_KEY = "sk-" + "a1" * 16


def told(catalogue: PresetCatalogue) -> tuple[str, list[str]]:
    """All of it; numbers with their types."""
    return repr(catalogue.presets), list(map(str, catalogue.problems))


def glancing(builtin: Path, tmp_path: Path, now: float = LATER) -> PresetFiles:
    """As a run of a command reads: nothing is in its memory."""
    return PresetFiles(builtin, tmp_path / "user", None, PrivateFolder(tmp_path / "kept"), now=lambda: now)


@pytest.fixture
def kept(builtin: Path, tmp_path: Path) -> Path:
    """The file in which a first glance has kept the presets."""
    (builtin / "bad.yaml").write_text("model: [\n")
    (builtin / "numbers.yaml").write_text(GOOD + "defaults: {a: .inf, b: 1.0, c: 1, d: true, e: '1', f: null}\n")
    assert told(glancing(builtin, tmp_path).glance()) == told(PresetFiles(builtin).load())
    (file,) = (tmp_path / "kept").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    return file


def forge(builtin: Path, kept: Path) -> None:
    """Puts another model into what was kept, of the same length and with a sum that is right."""
    data = kept.read_bytes()[32:].replace(b"org/m", b"org/x")
    kept.write_bytes(hashlib.sha256(data).digest() + data)


def test_a_glance_tells_what_loading_tells(kept: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "builtin", FIXTURES, builtin_directory()):
        loaded = PresetFiles(folder, tmp_path / "user").load()
        for _ in range(2):
            assert told(glancing(folder, tmp_path).glance()) == told(loaded)


def test_only_a_glance_believes_what_was_kept(builtin: Path, kept: Path, tmp_path: Path) -> None:
    forge(builtin, kept)
    source = glancing(builtin, tmp_path)
    assert {preset.model for preset in source.glance().presets} == {"org/x"}, "it is read"
    assert {preset.model for preset in source.load().presets} == {"org/m"}


def test_a_changed_file_is_shown_as_it_is_now(builtin: Path, kept: Path, tmp_path: Path) -> None:
    good = builtin / "good.yaml"
    before = good.stat()
    good.write_text(GOOD.replace("org/m", "org/n"))
    os.utime(good, ns=(before.st_atime_ns, before.st_mtime_ns))
    (builtin / "numbers.yaml").unlink()
    assert [preset.model for preset in glancing(builtin, tmp_path).glance().presets] == ["org/n"]


@pytest.mark.parametrize("spoil", [
    lambda data: b"", lambda data: data[:-1], lambda data: data[:40] + b"\xff" + data[41:],
    lambda data: os.urandom(1000), lambda data: data.replace(b"org/m", b"org/x"),
], ids=["empty", "cut", "flipped", "noise", "edited"])  # fmt: skip
def test_what_was_kept_and_is_damaged_is_read_again(
    builtin: Path, kept: Path, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    whole = kept.read_bytes()
    kept.write_bytes(spoil(whole))
    assert told(glancing(builtin, tmp_path).glance()) == told(PresetFiles(builtin).load())
    assert kept.read_bytes() == whole


def test_neither_keys_nor_what_just_changed_nor_what_depends_on_another_file_is_kept(
    builtin: Path, tmp_path: Path
) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "keyed.yaml").write_text(GOOD + f"post_exec: echo {API_KEY}\n")
    (user / "wider.yaml").write_text("include: good\ndefaults: {port: 8001}\n")
    names = {preset.name for preset in glancing(builtin, tmp_path).glance().presets}
    (file,) = (tmp_path / "kept").iterdir()
    assert API_KEY.encode() not in file.read_bytes()
    file.unlink()
    assert "keyed" in names
    glancing(builtin, tmp_path, now=time.time()).glance()
    assert b"org/m" not in file.read_bytes(), "the file may change again within the clock's step"


def test_a_glance_needs_no_folder_to_write_to(builtin: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    assert told(glancing(builtin, tmp_path).glance()) == told(PresetFiles(builtin).load())
