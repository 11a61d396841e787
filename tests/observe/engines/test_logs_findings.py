"""In the log, the lines that prove something are marked, and `n` and `p` go from one to the next."""

from __future__ import annotations

from spark_tui.base.engine.container import LABEL_PRESET, ContainerStatus
from spark_tui.observe.engines.screen.view import LogView
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.use import last_line_with
from spark_tui.run.launch.screen import LaunchForm
from tests.log_fixtures import read_log, run_log
from tests.tui.kit import QWEN, kit_of, seen

GB10 = "gb10-vllm-0.20.2-qwen3.6-35b-a3b-mtp"
FAILED = {"status": ContainerStatus.EXITED, "exit_code": 1}
OURS = {"labels": ((LABEL_PRESET, QWEN.name),)}


async def test_p_goes_to_the_line_that_decides_and_tells_the_cause() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=run_log("vllm-0.32-cpu-f_port"), **OURS, **FAILED)
    async with seen(kit, (120, 36), "4") as sight:
        await sight.until_seen("finding")
        await sight.press("N")
        log = sight.app.screen.query_one(LogView)
        assert log.pager.cursor is not None
        assert "Address already in use" in log.pager.selected_text()
        await sight.until_seen("cause", "8130")
        await sight.press("a")
        assert sight.on(LaunchForm).overrides.port == 8131


async def test_n_and_p_walk_the_verdicts_of_a_healthy_engine_in_order() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=read_log(GB10))
    kit.api.serve()
    async with seen(kit, (120, 36), "4") as sight:
        await sight.until_seen("finding")
        await sight.press("N")
        log = sight.app.screen.query_one(LogView)
        last = log.pager.cursor
        assert last is not None
        await sight.press("N")
        assert log.pager.cursor is not None
        assert log.pager.cursor < last
        assert "verdict" in sight.text
        await sight.press("n")
        assert log.pager.cursor == last
        await sight.press("n")
        assert log.pager.cursor == last, "the last one is the last"


async def test_with_a_search_the_same_keys_go_from_match_to_match() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=run_log("vllm-0.32-cpu-f_port"), **FAILED)
    async with seen(kit, (120, 36), "4") as sight:
        await sight.until_seen("finding")
        await sight.press("slash")
        await sight.type("INFO")
        await sight.press("enter")
        await sight.until_seen("match")
        log = sight.app.screen.query_one(LogView)
        here = log.pager.cursor
        await sight.press("N")
        assert log.pager.cursor != here
        assert "Address already in use" not in log.pager.selected_text()


async def test_where_nothing_is_proven_the_key_says_so() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=("hello", "world"))
    async with seen(kit, (80, 24), "4") as sight:
        await sight.until_seen("world")
        await sight.press("n")
        assert any("No findings" in notice.message for notice in sight.app._notifications)


async def test_a_line_that_has_gone_is_not_found() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=("first", "\x1b[31msecond\x1b[0m words", "third"))
    async with seen(kit, (80, 24), "4") as sight:
        await sight.until_seen("third")
        watch = kit.context[EngineSupervisor].get("qwen")
        assert last_line_with(watch.buffer, "second words") == 1
        assert last_line_with(watch.buffer, "first", first=1) is None
        assert last_line_with(watch.buffer, "") is None


async def test_a_failed_start_says_below_its_log_why_and_what_to_do() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=run_log("vllm-0.32-cpu-f_port"), **OURS, **FAILED)
    for size in ((80, 24), (120, 36)):
        async with seen(kit, size, "4") as sight:
            await sight.until_seen("cause", "8130", "fix ", "a applies", "port=8131", "at the end")


async def test_what_is_filtered_out_is_told_as_long_as_it_is() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=run_log("vllm-0.32-cpu-f_port"), **FAILED)
    async with seen(kit, (120, 36), "4") as sight:
        await sight.until_seen("finding")
        await sight.press("N", "ampersand")
        await sight.type("nowhere")
        await sight.press("enter")
        await sight.until_seen("No line passes the filter.", "only matching 'nowhere'")
        assert " cause " not in sight.text.splitlines()[-2], "the line that proves it is not shown"
        await sight.press("n")
        assert any("hidden by the filter" in notice.message for notice in sight.app._notifications)


async def test_a_filter_and_the_end_of_a_search_show_lines_from_their_beginning() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=(f"begin {'x' * 150} needle", "begin short"))
    async with seen(kit, (80, 24), "4") as sight:
        await sight.until_seen("begin short")
        for leave in (("escape",), ("ampersand", *"begin", "enter")):
            await sight.press("slash", *"needle", "enter")
            await sight.until(lambda: "begin xxx" not in sight.text)
            await sight.press(*leave)
            await sight.until_seen("begin xxx")


MIXED = (
    "(Worker_TP1 pid=11) ERROR 11-21 18:49:06 [core.py:12] Traceback (most recent call last):",
    "(Worker_TP0 pid=10) ERROR 11-21 18:49:06 [core.py:12] Traceback (most recent call last):",
    '(Worker_TP1 pid=11) ERROR 11-21 18:49:06 [core.py:12]   File "/x/one.py", line 1, in load',
    '(Worker_TP0 pid=10) ERROR 11-21 18:49:06 [core.py:12]   File "/x/other.py", line 2, in load',
    "(Worker_TP1 pid=11) ERROR 11-21 18:49:06 [core.py:12] RuntimeError: one token=hf_abcdefghijklmnopqrstuvwxyzabcdef",
    "(Worker_TP0 pid=10) ERROR 11-21 18:49:06 [core.py:12] RuntimeError: other",
)


async def test_a_traceback_is_copied_whole_without_what_other_processes_wrote_into_it() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=("INFO: hello", *MIXED), **FAILED)
    async with seen(kit, (120, 36), "4") as sight:
        await sight.until_seen("RuntimeError: other")
        await sight.press("y", "t")
        assert sight.app.clipboard.splitlines() == [MIXED[1], MIXED[3], MIXED[5]], "the one at the end of the log"
        await sight.press("k", "y", "t")
        copied = sight.app.clipboard
        assert [line.partition("] ")[2].strip()[:7] for line in copied.splitlines()] == [
            "Traceba",
            'File "/',
            "Runtime",
        ]
        assert "one.py" in copied and "TP0" not in copied
        assert "hf_abc" not in copied
        await sight.press("g", "y")
        assert sight.app.clipboard == "INFO: hello", "no traceback: the line, at once"


async def test_while_something_is_typed_it_is_said_what_for() -> None:
    kit = kit_of(QWEN)
    kit.docker.add_container("qwen", lines=("hello",))
    async with seen(kit, (80, 24), "4") as sight:
        await sight.until_seen("hello")
        for key, what in (("slash", "search: text"), ("ampersand", "show only lines with")):
            await sight.press(key, "x")
            await sight.until_seen(what)
            await sight.press("escape")
            assert what not in sight.text
