"""The ways to drop the page cache, their order, and what is said about the outcome."""

from __future__ import annotations

import pytest

from spark_tui.core.cache import measuring, one_shot
from spark_tui.domain.engine.container import Mount
from spark_tui.domain.host.drop_caches import (
    SYSCTL_DROP,
    TEE_COMPACT,
    TEE_DROP,
    Access,
    DropResult,
    RouteKind,
    compact_route,
    routes,
    sudoers_grant,
)
from spark_tui.domain.host.memory import MemInfo
from spark_tui.domain.logs.timeline import BootTimeline, EngineFacts, Phase, PhaseId, PhaseState
from spark_tui.domain.quantities import GIB

K = RouteKind


@pytest.mark.parametrize(
    ("access", "image", "kinds"),
    [
        (Access(), "", ()),
        (Access(root=True), "", (K.ROOT,)),
        (Access(root=True, has_sudo=True), "vllm:1", (K.ROOT, K.CONTAINER, K.PRIVILEGED)),
        (Access(sudo=TEE_DROP, has_sudo=True), "", (K.SUDO, K.TERMINAL)),
        (Access(unit=True, has_sudo=True), "", (K.UNIT, K.TERMINAL)),
        (
            Access(sudo=TEE_DROP, unit=True, has_sudo=True),
            "vllm:1",
            (K.SUDO, K.UNIT, K.CONTAINER, K.PRIVILEGED, K.TERMINAL),
        ),
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


def test_the_exact_commands_that_are_run() -> None:
    assert routes(Access(root=True))[0].argv == ("/usr/bin/tee", "/proc/sys/vm/drop_caches")
    granted = routes(Access(sudo=TEE_DROP))[0]
    assert granted.argv == ("sudo", "-n", "/usr/bin/tee", "/proc/sys/vm/drop_caches")
    assert granted.stdin == "3"
    by_sysctl = routes(Access(sudo=SYSCTL_DROP))[0]
    assert by_sysctl.argv == ("sudo", "-n", "/usr/sbin/sysctl", "-w", "vm.drop_caches=3")
    assert by_sysctl.stdin == ""
    assert "--no-ask-password" in routes(Access(unit=True))[0].argv
    [terminal] = routes(Access(has_sudo=True))
    assert terminal.argv == ("sudo", "sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")


def test_no_command_carries_a_password_or_lets_sudo_read_one() -> None:
    everything = Access(True, TEE_DROP, TEE_COMPACT, True, True)
    for route in (*routes(everything, "x"), *routes(Access(has_sudo=True))):
        assert not {"-S", "--stdin", "-A", "--askpass"} & set(route.argv)


def test_the_container_is_given_one_file_and_is_privileged_only_as_the_last_resort() -> None:
    plain, privileged = (one_shot(route) for route in routes(Access(), "vllm/vllm-openai:nightly"))
    assert plain.mounts == (Mount("/proc/sys/vm/drop_caches", "/drop_caches"),)
    assert plain.command == ("-c", "sync; echo 3 > /drop_caches")
    assert (plain.privileged, plain.network, plain.user) == (False, "none", "0:0")
    assert (privileged.privileged, privileged.network, privileged.mounts) == (True, "none", ())
    assert privileged.command == ("-c", "sync; echo 3 > /proc/sys/vm/drop_caches")
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


@pytest.mark.parametrize(
    ("user", "who"),
    [
        ("spark0", "spark0"),
        ("a_b-c", "a_b-c"),
        ("ALL", "#1000"),
        ("bob ALL=(ALL) NOPASSWD: ALL #", "#1000"),
        ("dom\\user", "#1000"),
        ("first.last@corp", "#1000"),
        ("x\ny", "#1000"),
        ("%sudo", "#1000"),
        ("", "#1000"),
        ("a" * 33, "#1000"),
    ],
)
def test_the_grant_names_one_user_and_two_exact_commands(user: str, who: str) -> None:
    rules = [line for line in sudoers_grant(user, 1000).splitlines() if not line.startswith("# ")]
    assert rules == [
        f"{who} ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/drop_caches",
        f"{who} ALL=(root) NOPASSWD: /usr/bin/tee /proc/sys/vm/compact_memory",
    ]


# --- when -----------------------------------------------------------------------------------------------


def timeline(phase: PhaseId | None, **facts: float) -> BootTimeline:
    state = PhaseState.RUNNING
    phases = tuple(Phase(each, state if each is phase else PhaseState.PENDING) for each in PhaseId)
    return BootTimeline(phases, EngineFacts(**facts))  # type: ignore[arg-type]


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
    assert measuring(timeline(phase, **facts)) is expected


# --- what came of it ------------------------------------------------------------------------------------


def memory(free: float, available: float) -> MemInfo:
    return MemInfo(total=121 * GIB, free=int(free * GIB), available=int(available * GIB))


@pytest.mark.parametrize(
    ("before", "after", "synced", "sentence"),
    [
        (
            (41.5, 115.6),
            (103.3, 115.7),
            True,
            "Freed 61.8 GiB of page cache in 2s: 41.5 -> 103.3 GiB free. Available memory is unchanged (115.7 GiB).",
        ),
        (
            (100.0, 110.0),
            (100.1, 110.0),
            True,
            "Almost nothing to free: 100.0 -> 100.1 GiB free. Available memory is unchanged (110.0 GiB).",
        ),
        (
            (20.0, 30.0),
            (60.0, 68.0),
            True,
            "Freed 40.0 GiB of page cache in 2s: 20.0 -> 60.0 GiB free. Available memory rose 38.0 GiB "
            "to 68.0 (other processes changed).",
        ),
        (
            (20.0, 30.0),
            (25.0, 30.0),
            False,
            "Freed 5.0 GiB of page cache in 2s: 20.0 -> 25.0 GiB free. Available memory is unchanged (30.0 GiB). "
            "Unwritten pages stayed: the disk was too slow.",
        ),
    ],
)
def test_the_outcome_in_words(
    before: tuple[float, float], after: tuple[float, float], synced: bool, sentence: str
) -> None:
    result = DropResult(RouteKind.ROOT, memory(*before), memory(*after), 2.0, synced)
    assert result.sentence == sentence


def test_less_free_memory_afterwards_is_nothing_released_and_no_negative_figure() -> None:
    result = DropResult(RouteKind.ROOT, memory(20, 30), memory(15, 25), 1.0)
    assert result.released == 0
    assert "Almost nothing" in result.sentence
