"""The ways to drop the page cache, their order, the files of a grant, and what is said about the result."""

from __future__ import annotations

import pytest

from spark_tui.base.engine.container import Mount
from spark_tui.base.host.memory import (
    GRANT_FILE,
    RULE_FILE,
    SYSCTL_DROP,
    TEE_COMPACT,
    TEE_DROP,
    UNIT,
    UNIT_FILE,
    Access,
    DropResult,
    MemInfo,
    RouteKind,
    compact_route,
    routes,
    sudoers_grant,
    unit_files,
)
from spark_tui.base.quantities import GIB
from spark_tui.observe.explain.model.timeline import BootTimeline, EngineFacts, Phase, PhaseId, PhaseState
from spark_tui.observe.memory.use.memory import measuring, one_shot
from tests.cases import all_cases

K = RouteKind
ALL = Access(True, TEE_DROP, TEE_COMPACT, True, True)
BY_SHELL = "sync; echo 3 > /proc/sys/vm/drop_caches"


@pytest.mark.parametrize(
    ("access", "image", "kinds"),
    [
        (Access(), "", ()),
        (Access(root=True), "", (K.ROOT,)),
        (Access(root=True, has_sudo=True), "vllm:1", (K.ROOT, K.CONTAINER, K.PRIVILEGED)),
        (Access(sudo=TEE_DROP, has_sudo=True), "", (K.SUDO, K.TERMINAL)),
        (Access(unit=True, has_sudo=True), "", (K.UNIT, K.TERMINAL)),
        (Access(False, TEE_DROP, (), True, True), "i", (K.SUDO, K.UNIT, K.CONTAINER, K.PRIVILEGED, K.TERMINAL)),
        (Access(), "vllm:1", (K.CONTAINER, K.PRIVILEGED)),
        (Access(has_sudo=True), "", (K.TERMINAL,)),
    ],
)
def test_the_ways_come_in_the_order_of_what_they_ask_of_a_person(
    access: Access, image: str, kinds: tuple[RouteKind, ...]
) -> None:
    found = routes(access, image)
    assert tuple(route.kind for route in found) == kinds
    assert [route.silent for route in found] == sorted((route.silent for route in found), reverse=True)


@pytest.mark.parametrize(
    ("access", "argv", "stdin"),
    [
        (Access(root=True), TEE_DROP, "3"),
        (Access(sudo=TEE_DROP), ("sudo", "-n", "/usr/bin/tee", "/proc/sys/vm/drop_caches"), "3"),
        (Access(sudo=SYSCTL_DROP), ("sudo", "-n", "/usr/sbin/sysctl", "-w", "vm.drop_caches=3"), ""),
        (Access(unit=True), ("systemctl", "start", "--no-ask-password", "--quiet", UNIT), ""),
        (Access(has_sudo=True), ("sudo", "sh", "-c", BY_SHELL), ""),
    ],
    ids=["root", "tee", "sysctl", "unit", "terminal"],
)
def test_the_exact_commands_that_are_run(access: Access, argv: tuple[str, ...], stdin: str) -> None:
    assert (routes(access)[0].argv, routes(access)[0].stdin) == (argv, stdin)


def test_no_command_carries_a_password_or_lets_sudo_read_one() -> None:
    for route in (*routes(ALL, "x"), *routes(Access(has_sudo=True))):
        assert not {"-S", "--stdin", "-A", "--askpass"} & set(route.argv)


def test_the_container_is_given_one_file_and_is_privileged_only_as_the_last_resort() -> None:
    plain, privileged = (one_shot(route) for route in routes(Access(), "vllm/vllm-openai:nightly"))
    assert plain.mounts == (Mount("/proc/sys/vm/drop_caches", "/drop_caches"),)
    assert plain.command == ("-c", "sync; echo 3 > /drop_caches")
    assert (plain.privileged, plain.network, plain.user) == (False, "none", "0:0")
    assert (privileged.privileged, privileged.network, privileged.mounts) == (True, "none", ())
    assert privileged.command == ("-c", BY_SHELL)
    for spec in (plain, privileged):
        assert (spec.entrypoint, spec.env, spec.ports, spec.gpus) == (("sh",), (), (), None)


@pytest.mark.parametrize(
    ("access", "argv"),
    [
        (Access(root=True), TEE_COMPACT),
        (Access(sudo=TEE_DROP, sudo_compact=TEE_COMPACT), ("sudo", "-n", *TEE_COMPACT)),
        (Access(sudo=TEE_DROP), None),  # sparkrun's grant lets the cache be dropped and no more
        (Access(has_sudo=True), None),
    ],
)
def test_memory_is_compacted_only_where_that_is_granted(access: Access, argv: tuple[str, ...] | None) -> None:
    route = compact_route(access)
    assert (route and route.argv) == argv


# --- grants ---------------------------------------------------------------------------------------------

ODD = ("ALL", "bob ALL=(ALL) NOPASSWD: ALL #", "dom\\user", "first.last@corp", "x\ny", "%sudo", "", "a" * 33)


@all_cases(("user", "who"), [("spark0", "spark0"), ("a_b-c", "a_b-c"), *((user, "#1000") for user in ODD)])
def test_the_sudo_rule_names_one_user_and_two_exact_commands(user: str, who: str) -> None:
    file = sudoers_grant(user, 1000)
    assert (file.path, file.mode, file.check) == (GRANT_FILE, "0440", "visudo -cqf")
    assert [line for line in file.text.splitlines() if not line.startswith("# ")] == [
        f"{who} ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/drop_caches",
        f"{who} ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/compact_memory",
    ]


def test_the_polkit_rule_lets_one_user_start_the_unit_of_the_route() -> None:
    unit, rule = unit_files("spark0")
    assert (unit.path, rule.path, unit.mode) == (UNIT_FILE, RULE_FILE, "0644")
    assert unit.path.endswith(f"/{UNIT}")
    assert BY_SHELL in unit.text
    conditions = [line.strip(" &(){").removeprefix("if (") for line in rule.text.splitlines() if "==" in line]
    assert conditions == [
        'action.id == "org.freedesktop.systemd1.manage-units"',
        f'action.lookup("unit") == "{UNIT}"',
        'action.lookup("verb") == "start"',
        'subject.user == "spark0"',
    ]
    assert rule.text.count("polkit.Result.YES") == 1
    assert rule.text.count("{") == rule.text.count("}")


@all_cases("name", ["", 'a"b', "a\\", "a b", "a\nb", "-a", "x" * 100, "*", "a;b", "ü"])
def test_a_name_that_could_break_out_of_the_rule_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a plain user name"):
        unit_files(name)


@pytest.mark.parametrize("name", ["spark0", "first.last@corp.example", "_svc-1"])
def test_usual_names_are_taken_as_they_are(name: str) -> None:
    assert f'"{name}"' in unit_files(name)[1].text


# --- when, and the result -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "facts", "expected"),
    [
        (None, {}, False),
        (PhaseId.WEIGHTS, {}, False),
        (PhaseId.COMPILE, {}, True),
        (PhaseId.KV_CACHE, {}, True),
        (PhaseId.KV_CACHE, {"kv_gib": 16.05}, False),
        (PhaseId.COMPILE, {"kv_tokens": 1000}, False),  # graphs are compiled after the cache was sized
        (PhaseId.CAPTURE, {}, False),
        (PhaseId.READY, {}, False),
    ],
)
def test_an_engine_measures_from_its_compilation_until_its_kv_cache_is_sized(
    phase: PhaseId | None, facts: dict[str, float], expected: bool
) -> None:
    states = ((each, PhaseState.RUNNING if each is phase else PhaseState.PENDING) for each in PhaseId)
    timeline = BootTimeline(tuple(Phase(*pair) for pair in states), EngineFacts(**facts))  # type: ignore[arg-type]
    assert measuring(timeline) is expected


SAME, OTHERS = "Available memory is unchanged ({} GiB).", "Available memory {} GiB to {} (other processes changed)."
LATE = " Unwritten pages stayed: the disk was too slow."


@pytest.mark.parametrize(
    ("before", "after", "synced", "freed", "available"),
    [
        ((41.5, 115.6), (103.3, 115.7), True, "Freed 61.8 GiB of page cache in 2s", SAME.format("115.7")),
        ((99.9, 110.0), (100.0, 110.0), True, "Almost nothing to free", SAME.format("110.0")),
        ((20.0, 30.0), (15.0, 25.0), True, "Almost nothing to free", OTHERS.format("fell 5.0", "25.0")),
        ((20.0, 30.0), (60.0, 68.0), True, "Freed 40.0 GiB of page cache in 2s", OTHERS.format("rose 38.0", "68.0")),
        ((20.0, 30.0), (25.0, 30.0), False, "Freed 5.0 GiB of page cache in 2s", SAME.format("30.0") + LATE),
    ],
)
def test_the_result_in_words(
    before: tuple[float, float], after: tuple[float, float], synced: bool, freed: str, available: str
) -> None:
    def memory(free: float, available: float) -> MemInfo:
        return MemInfo(total=121 * GIB, free=int(free * GIB), available=int(available * GIB))

    result = DropResult(RouteKind.ROOT, memory(*before), memory(*after), 2.0, synced)
    assert result.sentence == f"{freed}: {before[0]:.1f} -> {after[0]:.1f} GiB free. {available}"
    assert result.released == max(0, result.after.free - result.before.free)
