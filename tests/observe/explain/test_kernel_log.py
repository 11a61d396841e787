"""What the kernel says of a machine that fails: by kind, in a text of its own, and beside an engine's log."""

from __future__ import annotations

import pytest

from spark_tui.base.finding import Severity
from spark_tui.base.host.detectors import kernel_events, of_the_kernel
from spark_tui.observe.explain.model.explain import LogExplainer
from spark_tui.observe.explain.model.timeline import StartOutcome
from tests.cases import all_cases

HEAD = "Nov 20 03:12:40 spark kernel: "


@all_cases(
    ("words", "kind", "said"),
    [
        ("NVRM: Xid (PCI:000f:01:00): 79, pid=42, name=VLLM::Worker, GPU has fallen off the bus.", "gpu_off_bus", "79"),
        ("NVRM: Xid (PCI:000f:01:00): 119, Timeout after 6s of waiting for RPC response", "gpu_firmware", "119"),
        ("NVRM: Xid (PCI:000f:01:00): 95, Uncontained ECC error", "gpu_memory_fault", "95"),
        ("NVRM: Xid (PCI:000f:01:00): 31, pid=42, name=python3, MMU Fault", "gpu_program_fault", "31"),
        ("NVRM: Xid (PCI:000f:01:00): 140, Unrecovered ECC error", "gpu_xid", "140"),
        ("NVRM: nvAssertOkFailedNoLog: Out of memory [NV_ERR_NO_MEMORY] (0x51)", "gpu_out_of_memory", "no memory"),
        ("VLLM::EngineCor invoked oom-killer: gfp_mask=0x140dca, order=0", "oom_killer", "VLLM::EngineCor"),
        ("Out of memory: Killed process 42 (python3) total-vm:231236700kB", "oom_killer", "killed python3"),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,task=vllm,pid=42,uid=0", "oom_killer", "killed vllm"),
        ("Unable to handle kernel paging request at virtual address ffff8000a1b2c3d4", "kernel_oops", "crashed."),
        ("Kernel panic - not syncing: System is deadlocked on memory", "kernel_panic", "deadlocked on memory"),
        ("watchdog: BUG: soft lockup - CPU#6 stuck for 26s! [kworker/6:1:311]", "soft_lockup", "26 s in kworker"),
        ("pcieport 0007:00:00.0: AER: Uncorrectable (Fatal) error message received", "pcie_error", "PCIe"),
        ("mlx5_core 0007:01:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal)", "pcie_error", "PCIe"),
        ("mlx5_core 0007:01:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal)", "network_card_lost", "ConnectX"),
        ("nvme nvme0: I/O tag 12 (100c) QID 3 timeout, completion polled", "disk_error", "disk"),
        ("INFO: task VLLM::Worker:4242 blocked for more than 122 seconds.", "hung_task", "VLLM::Worker waited"),
        ("thermal thermal_zone0: critical temperature reached (105 C), shutting down", "thermal", "hot"),
    ],
)  # fmt: skip
def test_each_kind_of_event_is_named_with_what_to_do(words: str, kind: str, said: str) -> None:
    [event] = kernel_events([(0, HEAD + words)])
    assert event.id == kind
    assert said in event.summary
    assert "{" not in event.summary
    assert event.remedy
    assert event.evidence == (HEAD + words,)


@all_cases(
    "line",
    [
        "[    1.234567] pcieport 0007:00:00.0: AER: enabled with IRQ 51",
        "[    2.345678] nvme nvme0: 20/0/0 default/read/poll queues",
        "[    3.456789] NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.142",
        "[    4.567890] thermal_sys: Registered thermal governor 'step_wise'",
        "[    5.678901] pcieport 0007:00:00.0: AER: Corrected error message received from 0007:01:00.0",
    ],
)
def test_what_a_healthy_start_says_is_no_event(line: str) -> None:
    assert of_the_kernel(line)
    assert kernel_events([(0, line)]) == ()


def test_the_line_with_the_number_is_the_evidence() -> None:
    lines = [
        HEAD + "NVRM: Xid (PCI:000f:01:00): 79, pid=42",
        HEAD + "NVRM: GPU 000f:01:00.0: GPU has fallen off the bus.",
    ]
    assert kernel_events(enumerate(lines))[0].evidence == (lines[0],)


def test_the_gravest_stands_first_with_its_latest_line_and_whose_turn_it_was() -> None:
    lines = [
        f"{HEAD}INFO: task dockerd:900 blocked for more than 122 seconds.",
        f"{HEAD}Unable to handle kernel paging request at virtual address ffff8000a1b2c3d4",
        f"{HEAD}Internal error: Oops: 0000000096000007 [#1] SMP",
        f"{HEAD}CPU: 6 UID: 0 PID: 4242 Comm: VLLM::Worker Tainted: G           OE      6.17.0-1031-nvidia",
        f"{HEAD}INFO: task dockerd:900 blocked for more than 245 seconds.",
    ]
    oops, hung = kernel_events(enumerate(lines))
    assert (oops.id, oops.line, oops.severity) == ("kernel_oops", 2, Severity.ERROR)
    assert oops.summary == "The kernel itself crashed while VLLM::Worker ran, kernel 6.17.0-1031-nvidia."
    assert (hung.line, hung.severity) == (4, Severity.WARNING)
    assert "245 s" in hung.summary


def explained(text: str) -> LogExplainer:
    explainer = LogExplainer()
    explainer.feed_many([("", line) for line in text.splitlines()])
    return explainer


@pytest.mark.parametrize("stamp", [HEAD, "[12345.678901] ", "[Fri Nov 20 03:12:40 2026] "])
def test_a_text_of_the_kernel_alone_has_failed_for_what_it_says(stamp: str) -> None:
    found = explained(f"{stamp}soft lockup - CPU#6 stuck for 26s! [mlx5:1]\n{stamp}Modules linked in:").explanation()
    assert found.outcome is StartOutcome.FAILED
    assert found.cause is not None
    assert found.cause.id == "soft_lockup"


def test_beside_an_engines_log_it_is_a_finding() -> None:
    engine = "(APIServer pid=1) INFO 11-28 00:51:25 [api_server.py:1] vLLM API server version 0.19.0"
    found = explained(f"{engine}\n{HEAD}NVRM: Xid (PCI:000f:01:00): 79, gone").explanation()
    assert found.engine == "vllm"
    assert [(each.id, each.line) for each in found.kernel] == [("gpu_off_bus", 1)]
    assert found.outcome is StartOutcome.STARTING
    assert found.cause is None


def test_a_warning_alone_decides_nothing() -> None:
    found = explained("NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x51)").explanation()
    assert [each.id for each in found.kernel] == ["gpu_out_of_memory"]
    assert (found.outcome, found.cause) == (StartOutcome.UNKNOWN, None)
