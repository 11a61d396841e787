"""`python -m tests.real.lab up|down|status|env|purge`, and `rig up|down|status` for two hosts on this machine.

Exit codes: 0 done, 1 something failed, 2 wrong usage, 3 (status) not up, 4 this machine cannot run the lab,
130 interrupted.
"""

from __future__ import annotations

import argparse
import functools
import shlex
import sys

from tests.real.lab.cluster import NUMBERS, Rig
from tests.real.lab.lab import FOLDER_VARIABLE, Lab
from tests.real.lab.support import LabFailed, LabUnavailable, Progress, Say

FAILED, NOT_UP, UNAVAILABLE, INTERRUPTED = 1, 3, 4, 130

COMMANDS = {
    "up": "bring up the engine, the registry, the vLLM image and the models; a second time takes seconds",
    "down": "stop everything; what was built stays for the next time",
    "status": "say what runs and what is built",
    "env": 'print the lines that point a shell at the lab: eval "$(python -m tests.real.lab env)"',
    "purge": "stop everything and delete it",
}

RIG = "rig"
RIG_COMMANDS = {
    "up": "boot two hosts with ssh, Docker and fabric links; ones that run are booted afresh",
    "down": "end them, and what was started at the desk; their images stay",
    "status": "say whether they run, and how they are reached",
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """`command`, and with the command `rig` also `action` and `rdma`."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.real.lab",
        description="A private Docker engine and a real vLLM on the CPU, for trying spark-tui without a GPU.",
        epilog=f"Everything lives in one folder, {FOLDER_VARIABLE} or ~/.cache/spark-tui-lab. Nothing is installed.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in COMMANDS.items():
        commands.add_parser(name, help=help_text)
    rig = commands.add_parser(RIG, help="two hosts on this machine, wired like two Sparks")
    rig_commands = rig.add_subparsers(dest="action", required=True, metavar="COMMAND")
    for name, help_text in RIG_COMMANDS.items():
        rig_command = rig_commands.add_parser(name, help=help_text)
        if name == "up":
            rig_command.add_argument("--rdma", action="store_true", help="with the files of a Spark's cards in /sys")
    return parser.parse_args(arguments)


def show_status(lab: Lab) -> int:
    """Prints what is there; 0 when all of it is."""
    state = lab.state()
    image = "ready" if state.vllm_image else "not built" if state.engine_pid else "unknown: the engine is down"
    rows = {
        "folder": str(lab.root),
        "engine": "stopped" if state.engine_pid is None else f"{lab.engine.host} (pid {state.engine_pid})",
        "registry": "stopped" if state.registry_pid is None else f"{state.registry_address} (pid {state.registry_pid})",
        "vLLM image": image,
        "models": f"ready in {lab.store}" if state.models else "not made",
        "stays up": "yes" if state.kept else "no",
    }
    for name, value in rows.items():
        print(f"{name:12}{value}")
    return 0 if state.engine_pid and state.registry_pid and state.vllm_image and state.models else NOT_UP


def show_rig(rig: Rig) -> int:
    """Prints each node, and how to reach it from the desk; 0 when both are on."""
    nodes = [rig.node(number) for number in NUMBERS]
    for node in nodes:
        print(f"{node.name:12}{'off' if node.pid is None else f'{node.docker_host} (pid {node.pid})'}")
    if any(node.pid is not None for node in nodes):
        print(f"{'desk':12}{shlex.join(rig.desk_argv(['ssh', nodes[0].name]))}")
    print(f"{'shared':12}{rig.share}")
    return 0 if all(node.pid is not None for node in nodes) else NOT_UP


def perform_rig(options: argparse.Namespace, rig: Rig, say: Say) -> int:
    """Runs one command about the rig and returns the exit code."""
    if options.action == "status":
        return show_rig(rig)
    if options.action == "up":
        rig.up(say, rdma=options.rdma)
    else:
        rig.down()
    say(options.action)
    return 0


def perform(options: argparse.Namespace, lab: Lab) -> int:
    """Runs one command and returns the exit code. Narration goes to stderr."""
    say = Progress(functools.partial(print, file=sys.stderr, flush=True))
    command = options.command
    if command == RIG:
        return perform_rig(options, lab.rig, say)
    if command == "up":
        lab.up(say)
        say(f"up; models in {lab.store}")
    elif command == "down":
        lab.down(say)
        say("down")
    elif command == "purge":
        lab.purge(say)
        say("gone")
    elif command == "status":
        return show_status(lab)
    elif command == "env":
        for key, value in lab.variables().items():
            print(f"export {key}={shlex.quote(value)}")
    return 0


def main() -> int:
    """Entry point."""
    options = parse(sys.argv[1:])
    try:
        return perform(options, Lab())
    except LabUnavailable as error:
        print(f"The lab cannot run here: {error}", file=sys.stderr)
        return UNAVAILABLE
    except LabFailed as error:
        print(f"The lab failed: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("Interrupted; the next `up` starts the unfinished step afresh.", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
