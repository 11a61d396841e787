"""drop-caches on the command line: what is asked, what is printed, and the grant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from spark_tui.cli.options import Options
from spark_tui.core.context import Context
from spark_tui.domain.host.drop_caches import RULE_FILE, TEE_DROP, UNIT_FILE, Access, Route, SystemFile
from spark_tui.domain.host.identity import HostPaths
from spark_tui.domain.quantities import GIB
from spark_tui.domain.reading import Ok
from tests.cli.world import IMAGE, Result, World
from tests.fakes_host import IDLE_MEMORY, FakeHost
from tests.fakes_ports import NoDropper, Ports

FULL = replace(IDLE_MEMORY, free=50 * GIB, available=116 * GIB, cached=66 * GIB)
EMPTY = replace(FULL, free=110 * GIB, cached=6 * GIB)
SENTENCE = "Freed 60.0 GiB of page cache in 0.0s: 50.0 -> 110.0 GiB free. Available memory is unchanged (116.0 GiB)."


@dataclass
class Dropper(NoDropper):
    """A CacheDropper whose drop empties the fake host's cache."""

    host: FakeHost
    allowed: Access = field(default_factory=lambda: Access(sudo=TEE_DROP, has_sudo=True))
    objection: str = ""
    code: int = 0
    who: tuple[str, int] = ("spark0", 1000)
    written: list[str] = field(default_factory=list)
    removed: int = 0
    files: dict[str, str] = field(default_factory=dict)
    terminal: list[tuple[str, ...]] = field(default_factory=list)

    async def access(self) -> Access:
        return self.allowed

    async def drop(self, route: Route) -> bool:
        self.host.memory_value = Ok(EMPTY)
        return True

    def on_terminal(self, argv: Sequence[str]) -> int:
        self.terminal.append(tuple(argv))
        self.host.memory_value = Ok(EMPTY)
        return self.code

    async def check_grant(self, text: str) -> str:
        return self.objection

    def write_grant(self, text: str) -> int:
        self.written.append(text)
        return self.code

    def remove_grant(self) -> int:
        self.removed += 1
        return self.code

    def write_files(self, files: Sequence[SystemFile]) -> int:
        self.files.update({file.path: file.text for file in files})
        return self.code

    def remove_files(self, paths: Sequence[str]) -> int:
        for path in paths:
            self.files.pop(path, None)
        return self.code

    def user(self) -> tuple[str, int]:
        return self.who


class Spark(World):
    """A box with a full page cache."""

    def __init__(self, access: Access | None = None) -> None:
        super().__init__()
        self.host.memory_value = Ok(FULL)
        self.dropper = Dropper(self.host)
        if access is not None:
            self.dropper.allowed = access

    def context(self, options: Options, environment: Mapping[str, str]) -> Context:
        """With the memory's own port."""
        ports = Ports(
            self.clock, self.docker, self.api, self.host, self.gpu, self.presets, self.secrets, self.archive,
            dropper=self.dropper,
        )  # fmt: skip
        return Context(self.settings, ports, HostPaths("/store", "/caches", "/home/test"))


# --- drop -----------------------------------------------------------------------------------------------


def test_the_outcome_is_one_sentence_on_standard_output() -> None:
    result = Spark().run("drop-caches", stdin="")
    assert (result.code, result.out, result.err) == (0, SENTENCE + "\n", "")


def test_the_outcome_as_data() -> None:
    told = Spark().run("drop-caches", "--json").json
    assert told == {
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
    result = typed(spark, answer, "drop-caches")
    assert result.code == code
    assert "tiny-1b is serving" in result.err
    assert (SENTENCE in result.out) is (code == 0)


def typed(spark: Spark, keys: str, *words: str) -> Result:
    """One command, with a person who types that."""
    import io

    from spark_tui.cli.main import run
    from spark_tui.cli.session import Streams
    from tests.cli.world import Stream

    out, err = Stream(), Stream()
    source: io.StringIO = Stream(keys, tty=True)
    code = run(words, Streams(source, out, err, {}), spark.context)
    return Result(code, out.getvalue(), err.getvalue())


def test_a_script_says_yes_beforehand_or_is_refused() -> None:
    spark = Spark()
    spark.engine()
    refused = spark.run("drop-caches", "--json")
    assert refused.code == 4
    assert "--yes" in refused.error["remedy"]
    assert spark.run("drop-caches", "--yes", "--json").json["released_bytes"] == 60 * GIB


def test_while_an_engine_measures_memory_it_is_refused_whatever_is_said() -> None:
    spark = Spark()
    spark.engine(
        serving=False,
        lines=(
            "INFO 01-15 07:00:01 [api_server.py:1] vLLM API server version 0.32.0",
            "INFO 01-15 07:00:09 [default_loader.py:1] Loading weights took 6.10 seconds",
            "INFO 01-15 07:00:09 [gpu_model_runner.py:1] Model loading took 12.00 GiB memory and 7.1 seconds",
        ),
    )
    result = spark.run("drop-caches", "--yes")
    assert result.code == 4
    assert "tiny-1b is measuring free memory" in result.err
    assert result.out == ""


def test_without_docker_it_works_and_says_what_it_does_not_know() -> None:
    spark = Spark()
    spark.docker.go_down()
    result = spark.run("drop-caches")
    assert result.code == 0
    assert "Cannot check for starting engines" in result.err


def test_where_nothing_is_allowed_the_command_to_type_is_told() -> None:
    result = Spark(Access()).run("drop-caches", stdin="")
    assert result.code == 1
    assert "sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'" in result.err
    assert "--install" in result.err


def test_a_person_at_the_keyboard_is_asked_by_sudo_itself() -> None:
    spark = Spark(Access(has_sudo=True))
    result = spark.run("drop-caches")
    assert result.code == 0
    assert spark.dropper.terminal == [("sudo", "sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")]
    script = Spark(Access(has_sudo=True))
    assert script.run("drop-caches", stdin="").code == 1
    assert script.dropper.terminal == [], "a script has no terminal"


def test_a_container_needs_a_yes() -> None:
    for words, made in (((), 0), (("--yes",), 1)):
        spark = Spark(Access())
        spark.docker.add_image(IMAGE)
        spark.docker.script(IMAGE, (), exit_code=0)
        spark.run("drop-caches", "--image", IMAGE, *words, stdin="")
        assert len(spark.docker.created) == made


def test_read_only_means_the_cache_too() -> None:
    result = Spark().run("drop-caches", "--read-only")
    assert result.code == 4
    assert result.out == ""


# --- the grant ------------------------------------------------------------------------------------------


def test_the_grant_is_shown_before_it_is_written() -> None:
    spark = Spark()
    result = typed(spark, "n\n", "drop-caches", "--install")
    assert result.code == 4
    assert "/etc/sudoers.d/spark-tui-dropcaches, 0440" in result.err
    assert "spark0 ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/drop_caches" in result.err
    assert spark.dropper.written == []
    result = typed(spark, "y\n", "drop-caches", "--install")
    assert result.code == 0
    [text] = spark.dropper.written
    assert all(line in result.err for line in text.splitlines())


def test_what_visudo_refuses_is_never_written() -> None:
    spark = Spark()
    spark.dropper.objection = "line 1: syntax error"
    result = spark.run("drop-caches", "--install", "--yes")
    assert result.code == 1
    assert "line 1: syntax error" in result.err
    assert spark.dropper.written == []


def test_a_sudo_that_fails_is_told() -> None:
    spark = Spark()
    spark.dropper.code = 1
    assert "sudo exited 1" in spark.run("drop-caches", "--install", "--yes").err
    assert "sudo rm /etc/sudoers.d/spark-tui-dropcaches" in spark.run("drop-caches", "--uninstall").err


def test_install_and_uninstall_as_data() -> None:
    spark = Spark()
    file = "/etc/sudoers.d/spark-tui-dropcaches"
    installed = spark.run("drop-caches", "--install", "--yes", "--json")
    assert installed.json == {"id": "drop-caches-grant", "file": file, "installed": True}
    removed = spark.run("drop-caches", "--uninstall", "--json")
    assert removed.json == {"id": "drop-caches-grant", "file": file, "installed": False}
    assert spark.dropper.removed == 1


def test_root_needs_no_grant() -> None:
    spark = Spark()
    spark.dropper.who = ("root", 0)
    assert spark.run("drop-caches", "--install", "--yes").code == 2


@pytest.mark.parametrize("option", ["--install", "--uninstall"])
def test_read_only_means_the_grant_too(option: str) -> None:
    spark = Spark()
    assert spark.run("drop-caches", option, "--yes", "--read-only").code == 4
    assert (spark.dropper.written, spark.dropper.removed) == ([], 0)


def test_install_and_uninstall_are_two_things() -> None:
    assert Spark().run("drop-caches", "--install", "--uninstall").code == 2


# --- the unit -------------------------------------------------------------------------------------------


def test_unit_and_rule_are_shown_before_they_are_written() -> None:
    spark = Spark()
    result = typed(spark, "n\n", "drop-caches", "--install", "--polkit")
    assert (result.code, spark.dropper.files) == (4, {})
    assert UNIT_FILE in result.err
    assert 'subject.user == "spark0"' in result.err
    result = typed(spark, "y\n", "drop-caches", "--install", "--polkit")
    assert result.code == 0
    assert set(spark.dropper.files) == {UNIT_FILE, RULE_FILE}
    for text in spark.dropper.files.values():
        assert all(line in result.err for line in text.splitlines())
    assert spark.dropper.written == [], "no sudo rule"


def test_unit_and_rule_are_removed_together() -> None:
    spark = Spark()
    spark.run("drop-caches", "--install", "--polkit", "--yes")
    removed = spark.run("drop-caches", "--uninstall", "--polkit", "--json")
    assert removed.json == {"id": "drop-caches-unit", "files": [UNIT_FILE, RULE_FILE], "installed": False}
    assert (spark.dropper.files, spark.dropper.removed) == ({}, 0)


def test_a_unit_that_cannot_be_written_is_told_with_the_way_back() -> None:
    spark = Spark()
    spark.dropper.code = 1
    result = spark.run("drop-caches", "--install", "--polkit", "--yes")
    assert result.code == 1
    assert "--uninstall --polkit" in result.err


def test_a_user_whose_name_would_need_quoting_is_sent_to_the_sudo_rule() -> None:
    spark = Spark()
    spark.dropper.who = ('a") || true || ("', 1000)
    result = spark.run("drop-caches", "--install", "--polkit", "--yes")
    assert (result.code, spark.dropper.files) == (2, {})


def test_polkit_alone_is_nothing() -> None:
    assert Spark().run("drop-caches", "--polkit").code == 2
