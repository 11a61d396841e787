"""drop-caches on the command line: what is asked, what is printed, and the grant."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from spark_tui.base.context import Context
from spark_tui.base.finding import Ok
from spark_tui.base.host.memory import GRANT_FILE, RULE_FILE, TEE_DROP, UNIT_FILE, Access
from spark_tui.base.quantities import GIB
from spark_tui.cli.session import Options
from tests.cli.world import IMAGE, World
from tests.fakes_host import IDLE_MEMORY, FakeDropper

FULL = replace(IDLE_MEMORY, free=50 * GIB, available=116 * GIB, cached=61 * GIB)
SENTENCE = "Freed 60.0 GiB of page cache in 0.0s: 50.0 -> 110.0 GiB free. Available memory is unchanged (116.0 GiB)."
BY_SUDO = ("sudo", "sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")


class Spark(World):
    """A machine with a full page cache."""

    def __init__(self, access: Access | None = None) -> None:
        super().__init__()
        self.host.memory_value = Ok(FULL)
        allowed = Access(sudo=TEE_DROP, has_sudo=True) if access is None else access
        self.dropper = FakeDropper(self.host, allowed)

    def context(self, options: Options, environment: Mapping[str, str]) -> Context:
        context = super().context(options, environment)
        vars(context.ports)["dropper"] = self.dropper
        return context


# --- drop -----------------------------------------------------------------------------------------------


def test_the_result_is_one_sentence_or_data() -> None:
    result = Spark().run("drop-caches", stdin="")
    assert (result.code, result.out, result.err) == (0, SENTENCE + "\n", "")
    assert Spark().run("drop-caches", "--json").json == {
        "id": "drop-caches",
        "route": "sudo",
        "released_bytes": 60 * GIB,
        "free_before_bytes": 50 * GIB,
        "free_after_bytes": 110 * GIB,
        "available_before_bytes": 116 * GIB,
        "available_after_bytes": 116 * GIB,
        "seconds": 0.0,
        "synced": True,
        "sentence": SENTENCE,
    }


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 4), ("\n", 4), ("", 4)])
def test_while_an_engine_serves_a_person_is_asked_once(answer: str, code: int) -> None:
    spark = Spark()
    spark.engine()
    result = spark.run("drop-caches", keyboard=answer)
    assert result.code == code
    assert "tiny-1b is serving" in result.err
    assert (SENTENCE in result.out) is (code == 0)


def test_a_script_says_yes_beforehand_or_is_refused() -> None:
    spark = Spark()
    spark.engine()
    refused = spark.run("drop-caches", "--json")
    assert refused.code == 4
    assert "--yes" in refused.error["remedy"]
    assert spark.run("drop-caches", "--yes", "--json").json["released_bytes"] == 60 * GIB


def test_without_docker_it_works_and_notes_what_was_not_checked() -> None:
    spark = Spark()
    spark.docker.go_down()
    result = spark.run("drop-caches")
    assert result.code == 0
    assert "Cannot check for starting engines" in result.err


@pytest.mark.parametrize(
    ("access", "stdin", "code", "ran"),
    [
        pytest.param(Access(), "", 1, [], id="nothing-allowed"),
        pytest.param(Access(has_sudo=True), None, 0, [BY_SUDO], id="person"),
        pytest.param(Access(has_sudo=True), "", 1, [], id="script"),
    ],
)
def test_sudo_asks_a_person_and_a_script_gets_the_command_to_type(
    access: Access, stdin: str | None, code: int, ran: list[tuple[str, ...]]
) -> None:
    spark = Spark(access)
    result = spark.run("drop-caches", stdin=stdin)
    assert (result.code, spark.dropper.terminal) == (code, ran)
    assert code == 0 or "sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'" in result.err


@pytest.mark.parametrize(("words", "made"), [((), 0), (("--yes",), 1)])
def test_a_container_needs_a_yes(words: tuple[str, ...], made: int) -> None:
    spark = Spark(Access())
    spark.docker.add_image(IMAGE)
    spark.docker.script(IMAGE, (), exit_code=0)
    spark.run("drop-caches", "--image", IMAGE, *words, stdin="")
    assert len(spark.docker.created) == made


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--read-only",), 4),
        (("--install", "--yes", "--read-only"), 4),
        (("--uninstall", "--yes", "--read-only"), 4),
        (("--install", "--uninstall"), 2),
        (("--polkit",), 2),
        (("--install", "--image", "x"), 2),
    ],
    ids=str,
)
def test_what_is_refused_changes_nothing(words: tuple[str, ...], code: int) -> None:
    spark = Spark()
    result = spark.run("drop-caches", *words)
    assert (result.code, result.out, spark.dropper.files, spark.dropper.dropped) == (code, "", {}, [])


# --- the grant, by sudo and by polkit -------------------------------------------------------------------

WAYS = pytest.mark.parametrize(
    ("words", "id_", "files"),
    [
        pytest.param((), "drop-caches-grant", {"file": GRANT_FILE}, id="sudo"),
        pytest.param(("--polkit",), "drop-caches-unit", {"files": [UNIT_FILE, RULE_FILE]}, id="polkit"),
    ],
)


@WAYS
def test_files_are_shown_before_they_are_written_and_removed_together(
    words: tuple[str, ...], id_: str, files: dict[str, object]
) -> None:
    spark = Spark()
    assert spark.run("drop-caches", "--install", *words, keyboard="n\n").code == 4
    assert spark.dropper.files == {}
    result = spark.run("drop-caches", "--install", *words, keyboard="y\n")
    assert result.code == 0
    assert "spark0" in "".join(spark.dropper.files.values())
    for path, text in spark.dropper.files.items():
        assert f"{path}, {'0644' if words else '0440'}" in result.err
        assert all(line in result.err for line in text.splitlines())
    again = spark.run("drop-caches", "--install", *words, "--yes", "--json")
    assert again.json == {"id": id_, **files, "installed": True}
    removed = spark.run("drop-caches", "--uninstall", *words, "--json")
    assert removed.json == {"id": id_, **files, "installed": False}
    assert spark.dropper.files == {}


@WAYS
def test_a_sudo_that_fails_is_an_error_with_the_next_step(words: tuple[str, ...], id_: str, files: object) -> None:
    spark = Spark()
    spark.dropper.code = 1
    installed = spark.run("drop-caches", "--install", *words, "--yes")
    assert installed.code == 1
    assert "sudo exited 1" in installed.err
    assert ("--uninstall --polkit" in installed.err) is bool(words)
    assert f"sudo rm {RULE_FILE if words else GRANT_FILE}" in spark.run("drop-caches", "--uninstall", *words).err


@pytest.mark.parametrize(
    ("who", "objection", "words", "code"),
    [
        pytest.param(("root", 0), "", (), 2, id="root"),
        pytest.param(('a") || true || ("', 1000), "", ("--polkit",), 2, id="quoting"),
        pytest.param(("spark0", 1000), "line 1: syntax error", (), 1, id="visudo"),
    ],
)
def test_what_must_not_be_written_is_not(
    who: tuple[str, int], objection: str, words: tuple[str, ...], code: int
) -> None:
    spark = Spark()
    spark.dropper.who, spark.dropper.objection = who, objection
    result = spark.run("drop-caches", "--install", *words, "--yes")
    assert (result.code, spark.dropper.files) == (code, {})
    assert objection in result.err
