"""Other boxes: how they are named, what ssh is asked for, and what their answers mean."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_tui.base.errors import ExitCode, UsageError
from spark_tui.base.finding import Missing, Ok
from spark_tui.base.remote import (
    HostNotReady,
    HostUnreachable,
    RemoteEngine,
    RemoteHost,
    find_host,
    hosts_text,
    memory_words,
    no_answer,
    read_hosts,
    read_status,
    serving_words,
)
from tests.cases import all_cases
from tests.fake_ssh import STATUS

LAB = RemoteHost("lab", "nv@spark-2")
ATTIC = RemoteHost("attic", "ssh://nv@10.0.0.7:2222", "~/spark-tui/.venv/bin/spark-tui")


def test_a_host_is_an_address_or_a_table_and_reads_the_same_from_text() -> None:
    table = {"lab": "nv@spark-2", "attic": {"ssh": ATTIC.destination, "command": ATTIC.command}}
    assert read_hosts(table) == (ATTIC, LAB)
    assert read_hosts(f"lab=nv@spark-2 attic={ATTIC.destination},{ATTIC.command}") == (ATTIC, LAB)
    assert read_hosts("") == read_hosts({}) == ()


@all_cases(
    "destination",
    ["-oProxyCommand=id", "nv@-oProxyCommand=id", "ssh://-oProxyCommand=id", "-l@box", "", "nv@", "@box", "a b",
     "box\n", "box\x1b[31m", "$(id)", "`id`", "a;id", "a|id", "a&id", "a'b", 'a"b', "a\\b", "a>b", "box,id", "ssh://box/path",
     "box\u202e", 3, None, ["box"], "x" * 501],
)  # fmt: skip
def test_what_could_be_an_option_or_reach_a_shell_is_no_address(destination: object) -> None:
    for told in (destination, {"ssh": destination}):
        with pytest.raises(ValueError, match=r"^must be an address") as caught:
            read_hosts({"lab": told})
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("destination", ["spark", "nv@spark-2.local", "10.0.0.7", "fe80::1%eth0", "ssh://nv@box:2222"])
def test_what_ssh_takes_is_an_address(destination: str) -> None:
    assert read_hosts({"lab": destination}) == (RemoteHost("lab", destination),)


@all_cases(
    ("told", "says"),
    [
        ({"l b": "box"}, "names of letters, digits"),
        ({"-lab": "box"}, "names of letters, digits"),
        ({"lab.1": "box"}, "names of letters, digits"),
        ({"lab": "nv@box:22"}, "a port is written so: ssh://nv@box:22 (for lab)"),
        ({"lab": {"command": "x"}}, "(for lab)"),
        ({"lab": {"ssh": "box", "comand": "x"}}, "did you mean command?"),
        ({"lab": {"ssh": "box", "command": "-x"}}, "must have a command"),
        ({"lab": {"ssh": "box", "command": "a\nb"}}, "must have a command"),
        ({"lab": {"ssh": "box", "command": "a 'b"}}, "quotes closed"),
        ({f"h{number}": "box" for number in range(33)}, "at most 32 hosts"),
        ("lab", "must be hosts by name, such as lab=nv@spark-2"),
        ("lab=a lab=b", "name each host once"),
        (["box"], "must be a table of hosts"),
    ],
)
def test_a_mistake_is_said_in_a_sentence(told: object, says: str) -> None:
    with pytest.raises(ValueError, match=r"^must ") as caught:
        read_hosts(told)
    assert says in str(caught.value)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True),
        st.tuples(
            st.from_regex(r"[a-z]{1,5}@[a-z0-9]{1,8}", fullmatch=True),
            st.lists(st.text("ab c~/'\"\\$;=,", min_size=1), min_size=1, max_size=3),
        ),
        max_size=4,
    )
)
def test_hosts_as_text_read_back(told: dict[str, tuple[str, list[str]]]) -> None:
    hosts = read_hosts({name: {"ssh": ssh, "command": shlex.join(words)} for name, (ssh, words) in told.items()})
    assert read_hosts(hosts_text(hosts)) == hosts


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
def test_the_shell_there_gets_the_arguments_as_they_were_typed(arguments: list[str]) -> None:
    assert shlex.split(LAB.line(arguments)) == ["spark-tui", *arguments]
    assert LAB.ssh(arguments) == ("ssh", "nv@spark-2", "--", LAB.line(arguments))


def test_the_home_there_is_for_the_shell_there() -> None:
    assert ATTIC.line(["ps"]) == "~/spark-tui/.venv/bin/spark-tui ps"
    assert RemoteHost("x", "box", "~/'my tools/spark-tui'").line([]) == "~/'my tools/spark-tui'"
    assert RemoteHost("x", "box", "spark-tui; rm -rf x").line([]) == "'spark-tui;' rm -rf x"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lba", "Did you mean `lab`?"),
        ("spark", "--host USER@ADDRESS"),
        ("", "Unknown host ''"),
        ("-oProxyCommand=a.b", "must be an address"),
    ],
)
def test_a_name_or_an_address_is_found_and_an_unknown_name_is_wrong_usage(name: str, says: str) -> None:
    assert find_host((ATTIC, LAB), "lab") == LAB
    assert [find_host((), each).destination for each in ("nv@spark-3", "10.0.0.9")] == ["nv@spark-3", "10.0.0.9"]
    with pytest.raises(UsageError) as caught:
        find_host((ATTIC, LAB), name)
    assert says in str(caught.value)


# --- answers --------------------------------------------------------------------------------------------


def test_an_answer_tells_memory_and_engines_even_behind_a_greeting() -> None:
    box = read_status("Welcome to spark-2!\n{not json\n" + json.dumps(STATUS, indent=2))
    assert box is not None
    assert box.hostname == "spark-2"
    assert memory_words(box) == "60.0 of 119.7 GiB"
    assert serving_words(box) == "qwen3 :8000; 1 not serving"


def test_what_the_box_does_not_know_is_unknown_and_not_zero() -> None:
    told = STATUS | {"memory": None, "memory_reason": "/proc is gone", "engines": None, "engines_reason": "no Docker"}
    box = read_status(json.dumps(told))
    assert box is not None
    assert (box.available, box.engines) == (Missing("/proc is gone"), Missing("no Docker"))
    assert memory_words(box) == "n/a: /proc is gone"
    assert serving_words(box) == "n/a: no Docker"
    none = read_status(json.dumps(STATUS | {"engines": []}))
    assert none is not None
    assert serving_words(none) == "none"


def test_hostile_values_are_cleaned_or_unknown() -> None:
    engine = {"id": "\x1b[31mred\nline", "state": 7, "served_name": None, "port": True}
    memory = {"available_bytes": -1, "total_bytes": True}
    box = read_status(json.dumps({"host": "x", "memory": memory, "engines": [engine, 3]}))
    assert box is not None
    assert box.engines == Ok((RemoteEngine("red line", ""),))
    assert isinstance(box.available, Missing)
    assert isinstance(box.total, Missing)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.text() | JSON.map(json.dumps) | st.fixed_dictionaries({"memory": JSON, "engines": JSON}).map(json.dumps))
def test_no_answer_breaks_anything(out: str) -> None:
    box = read_status(out)
    if box is not None:
        assert (memory_words(box) + serving_words(box)).isprintable()


@all_cases(
    ("code", "err", "kind", "says"),
    [
        (255, "banner\r\nssh: connect to host box port 22: No route to host\r\n", HostUnreachable, "No route to host."),
        (255, "nv@box: Permission denied (publickey).\r\n", HostUnreachable, "ssh-copy-id nv@spark-2"),
        (255, "Host key verification failed.\r\n", HostUnreachable, "check the key it shows: ssh nv@spark-2"),
        (255, "ssh: Could not resolve hostname x: Name\r\n", HostUnreachable, "config set hosts.lab USER@ADDRESS"),
        (255, "", HostUnreachable, "no message from ssh"),
        (127, "bash: line 1: spark-tui: command not found\n", HostNotReady, "not installed"),
        (127, "bash: x\n", HostNotReady, "spark-tui config set hosts.lab 'nv@spark-2,~/.local/bin/spark-tui'"),
        (2, "Error: No such command 'status'.\n", HostNotReady, "update it"),
        (0, "", HostNotReady, "exit code 0"),
        (255, "\x1b[31mred\x1b[0m\r\n", HostUnreachable, "is unreachable: red."),
    ],
)
def test_why_there_is_no_answer(code: int, err: str, kind: type[Exception], says: str) -> None:
    error = no_answer(LAB, code, "", err)
    assert isinstance(error, kind)
    assert says in str(error)
    assert "\x1b" not in str(error) + error.detail
    assert error.exit_code in (ExitCode.UNREACHABLE, ExitCode.FAILED)
