"""Records tests/golden again, after a change of the promise that is meant: .venv/bin/python -m tests.golden.record"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from spark_tui.app.main import cli, run
from spark_tui.app.opening import open_context
from spark_tui.app.rooms import ROOMS
from spark_tui.app.wiring import build_demo
from spark_tui.base.context import Context, Ports
from spark_tui.base.engine.container import ContainerFacts
from spark_tui.base.errors import SparkError
from spark_tui.base.settings import Settings, folders_for
from spark_tui.cli.session import PROGRAM, Options, Session, Streams
from spark_tui.machine.procfs import ProcfsHost
from tests.cli.world import Stream
from tests.fake_ssh import FakeSsh
from tests.fakes_host import FakeClock, settle
from tests.golden.lines import AT_HOME, DEMO, ON_A_HEAD, OVER_NODES
from tests.pty_app import REPOSITORY

GOLDEN: Final = Path(__file__).parent
AGAIN: Final = "is it meant? Record it again: .venv/bin/python -m tests.golden.record"
FORMS: Final = ("docker-run", "compose", "systemd", "quadlet", "sparkrun")
TEXT: Final = "<text>"
"""What is written for people: that it is there is promised, its words are not."""

_PROSE: Final = re.compile(
    r".*_reason|summary|remedy|detail|label|note|notes|cautions|text|title|description|sentence|why|reasons?|content|"
    r"reasoning|page|script|help|conditions"
)
"""Keys of texts for people, also where the text is one word."""
_DATA: Final = frozenset(
    (
        "argv", "command", "diff", "docker_run", "flags", "gpu", "launch", "platform", "preset", "product", "recipe",
        "running", "setting",
    )
)  # fmt: skip
"""Keys whose values are data although there is a blank in them."""
_ERROR: Final = {"id", "summary", "remedy", "detail", "exit_code"}
_OTHERWISE: Final = re.compile(r"[0-9a-f]{10}|[0-9a-f]{12}|[0-9a-f]{48}")
"""Names and keys made of random digits: other ones each time."""
_ELSEWHERE: Final = frozenset(("added", "changed_at", "next_at", "python", "sha256", "tool_version"))
"""Keys whose values are other ones in another minute or on another machine."""


# --- the commands -----------------------------------------------------------------------------------------


def commands() -> str:
    """Each command with its arguments and options: names, metavar, type, default, and what it may be given."""
    return "".join(f"{line}\n" for line in _commands(cli, (PROGRAM,)))


COMMON: Final = (
    *("--demo  flag", "--json  flag", "--read-only  flag  hidden"),
    *("--config  text  FOLDER  hidden", "--docker-host  text  URL  hidden", "--store  text  FOLDER  hidden"),
)
"""Every command has them."""


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    yield " ".join(path) + (" (hidden)" if command.hidden else "")
    own = {_parameter(each) for each in command.params}
    common = own.issuperset(COMMON)
    yield from ("    with the common options",) * common
    yield from (f"    {each}" for each in sorted(own.difference(COMMON if common else ())))
    if isinstance(command, click.Group):
        context = click.Context(command)
        unlisted = [name for each in ROOMS.features() for name in each.unlisted] if command is cli else []
        for name in (*command.list_commands(context), *unlisted):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, (*path, name))


def _parameter(each: click.Parameter) -> str:
    found = each.to_info_dict()
    kind, default, flag = found["type"], found["default"], found.get("is_flag", False)
    limits = f" {kind['min']}..{kind['max']}" if "min" in kind else ""
    marks = {
        each.metavar: each.metavar,
        f"default={default!r}": isinstance(default, str | int | float | tuple | list)
        and default not in ("", (), False),
        "required": found["required"],
        "many": found["multiple"] or found["nargs"] == -1,
        f"{found['nargs']} values": found["nargs"] > 1,
        "without a value too": not flag and isinstance(found.get("flag_value"), str),
        "hidden": found.get("hidden", False),
    }
    names = " ".join([*each.opts, *each.secondary_opts]) if isinstance(each, click.Option) else f"<{each.name}>"
    taken = "flag" if flag else "|".join(kind["choices"]) if "choices" in kind else kind["name"] + limits
    return "  ".join([names, taken, *(str(mark) for mark, holds in marks.items() if holds)])


# --- JSON -------------------------------------------------------------------------------------------------


def answers(lines: Iterable[str | tuple[str, ...]], *, demo: bool = True) -> str:
    """Exit code, standard output and standard error of each line with --json, a value a line."""
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, contextlib.chdir(folder):
        machine: Machine | None = None
        for number, each in enumerate(lines):
            if isinstance(each, tuple) or machine is None or not (demo and machine.unmoved):
                machine = Machine(Path(folder) / str(number), demo=demo)
            first, *rest = (each,) if isinstance(each, str) else each
            found += (f"$ {first}", *machine.answer(first))
            for line in rest:
                found += (f"  then $ {line}", *machine.answer(line))
            found.append("")
            if isinstance(each, tuple):
                machine = None
    return "\n".join(found)


class NoEngines(ProcfsHost):
    """This machine without what other tests run on it."""

    def bare_engines(self) -> tuple[ContainerFacts, ...]:
        return ()


class Machine:
    """An empty home without Docker, or a simulated Spark whose clock goes on as soon as all wait for it."""

    def __init__(self, home: Path, *, demo: bool) -> None:
        home.mkdir(exist_ok=True)
        self._clock = FakeClock()
        self._began = self._clock.now()
        self._options = ("--demo",) if demo else ()
        self.environment = {"HOME": str(home), "DOCKER_HOST": f"unix://{home}/none.sock"}
        self._ports: Ports | None = None
        self._driver: asyncio.Task[None] | None = None

    @property
    def unmoved(self) -> bool:
        """Whether its clock still stands where it began."""
        return self._clock.now() == self._began

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of one command on it."""
        out, err = Stream(), Stream()
        streams = Streams(Stream(), out, err, self.environment)
        opener = self._opened if self._options else self._at_home
        # A process of its own has seen no app, whose words name keys.
        code = contextvars.Context().run(run, [*self._options, *words], streams, opener)
        return code, self._known(out.getvalue()), self._known(err.getvalue())

    def answer(self, line: str) -> Iterator[str]:
        """What is recorded of one command on it."""
        code, out, err = self.run(*shlex.split(line), "--json")
        if not self._options and '"container_id": "process-' in out:  # engines that run on this machine as we record
            others = [each for each in json.loads(out) if not each["container_id"].startswith("process-")]
            out = json.dumps(others) if others else ""
        yield f"exit {code}"
        yield from values_of("out", out)
        yield from values_of("err", err)

    def _known(self, text: str) -> str:
        """The text without what is another in each run or on each machine."""
        text = text.replace(self.environment["HOME"], "<home>").replace(str(REPOSITORY), "<repository>")
        if not self._options:  # a hash of paths in this home, and a random word
            text = re.sub(r"(io\.spark-tui\.(?:spec-hash|launch)=)\w+", r"\1<some>", text)
        text = re.sub(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b", "<conversation>", text)
        return re.sub(r"/[\w/]+/spark-tui-demo-[\w-]+", "<demo>", text)

    def _at_home(self, options: Options, environment: Mapping[str, str]) -> Context:
        """An opener: the program's own core, on a machine where no engine runs beside Docker."""
        context = open_context(options, environment)
        vars(context.ports)["host"] = NoEngines()
        return context

    def _opened(self, options: Options, environment: Mapping[str, str]) -> Context:
        """An opener: every command on the same ports."""
        with contextlib.suppress(RuntimeError):  # some only look at the settings, outside a loop
            self._driver = asyncio.get_running_loop().create_task(self._drive())
        settings = Settings(read_only=options.read_only)
        made = build_demo(settings, folders_for(options.config, environment), clock=self._clock)
        self._ports = self._ports or made.ports
        for closed in ("conversations", "history", "docker", "hub"):  # by the command before: this one opens its own
            vars(self._ports).pop(closed, None)
        return Context(made.settings, self._ports, made.paths, demo=True)

    async def _drive(self) -> None:
        while True:
            await settle()
            if self._clock.sleepers:
                await self._clock.advance(0.5)
            else:
                await asyncio.sleep(0)


def values_of(name: str, text: str) -> Iterator[str]:
    """Each value of what a command wrote, with its place in it."""
    try:
        documents = [json.loads(text)]
    except json.JSONDecodeError:
        try:
            documents = [json.loads(line) for line in text.splitlines()]
        except json.JSONDecodeError:
            documents = [text]
    if len(documents) == 1:
        yield from _values(name, documents[0], "")
        return
    for kind, run_of in groupby(documents, lambda each: each.get("type", "") if isinstance(each, dict) else ""):
        several = list(run_of)  # how many there are depends on what was quick enough to be seen
        for each in several if len(several) < 3 else (several[0], several[-1]):
            yield from _values(f"{name}:{kind}", each, "")


def _values(path: str, value: Any, key: str) -> Iterator[str]:
    if key == "error" and isinstance(value, dict) and value.keys() == _ERROR:
        yield f"{path} = {value['id']}, exit {value['exit_code']}" + ", with detail" * bool(value["detail"])
        assert value["summary"] and value["remedy"]
    elif isinstance(value, dict) and value:
        for name in sorted(value):
            if value[name] is None and value.get(f"{name}_reason"):
                yield f"{path}.{name} = null, {name}_reason"
            elif not (name.endswith("_reason") and value.get(name.removesuffix("_reason"), "") is None):
                yield from _values(f"{path}.{name}", value[name], name)
    elif isinstance(value, list) and value:
        ids = [each.get("id") if isinstance(each, dict) else None for each in value]
        unique = len({*ids, None}) > len(ids) and all(_shown(each, "id") == each for each in ids)
        for number, each in enumerate(value):
            place = ids[number] if unique else number if isinstance(each, dict | list) else ""
            yield from _values(f"{path}[{place}]", each, key)
    elif isinstance(value, str):
        lines = value.split("\n") if key in _DATA else [value]
        yield from (f"{path} = {json.dumps(_shown(each, key), ensure_ascii=False)}" for each in lines)
    else:
        yield f"{path} = {float(f'{value:.6g}') if isinstance(value, float) else json.dumps(value)}"


def _shown(value: Any, key: str) -> Any:
    if not isinstance(value, str) or not value or key in _DATA:
        return value
    if key in _ELSEWHERE or _OTHERWISE.fullmatch(value):
        return "<some>"
    return TEXT if _PROSE.fullmatch(key) or any(map(str.isspace, value)) else value


# --- launches ---------------------------------------------------------------------------------------------

CHANGED: Final = {
    "gpt-oss-20b": "--set max_model_len=8192 --set exposure=lan --set api_key=yes --set port=9000 --set env.A=1",
    "qwen3.6-27b-nvfp4": "--set speculation=mtp --set num_speculative_tokens=2 --set max_num_seqs=2",
    "qwen3-8b-nvfp4-sglang": "--set max_model_len=8192 --set exposure=lan --set api_key=yes",
    "qwen3-30b-a3b-gguf-llama-cpp": "--set max_model_len=8192 --set exposure=lan --set api_key=yes",
    "qwen3-30b-a3b-nvfp4-trtllm": "--set max_model_len=8192 --set exposure=lan --set api_key=yes",
    "qwen3-32b-ollama": "--set max_model_len=8192 --set port=9000",
}
"""Presets of each runtime that are launched with changes too."""


_OF_SHARE: Final = re.compile(
    r"(?:--gpu-memory-utilization |--mem-fraction-static |(?<=-e )GPU_MEMORY_UTIL\w*=)[0-9.]+|"
    r"--label '?io\.spark-tui\.(?:overrides|spec-hash)=.*"
)


def _without_share(command: str) -> list[str]:
    """What is the same whatever memory share it has, line by line."""
    lines = (_OF_SHARE.sub("", line).rstrip(" \\") for line in command.splitlines())
    return [line for line in lines if line]


@cache
def launches() -> dict[str, str]:
    """Every shipped preset as it is exported in each form, on the simulated Spark; then some with changes. What a dry
    run of `up` prints is checked to be the same as `docker-run`, but for the memory share of its moment."""
    names = [path.stem for path in sorted((REPOSITORY / "presets").glob("*.yaml"))]
    found: dict[str, list[str]] = {form: [] for form in FORMS}
    clock, out, err = FakeClock(), Stream(), Stream()
    with Session(Streams(Stream(), out, err, {}), lambda options, environment: build_demo(clock=clock)) as session:

        def printed(words: str) -> str:
            out.seek(0)
            out.truncate()
            try:
                cli.main(["--demo", *shlex.split(words)], prog_name=PROGRAM, standalone_mode=False, obj=session)
                session.out.flush()
            except SparkError as error:
                return f"{type(error).__name__}, exit {int(error.exit_code)}\n"
            return out.getvalue()

        for name, changes in (*((name, "") for name in names), *CHANGED.items()):
            texts = {form: printed(f"presets export {name} --format {form} {changes}") for form in FORMS}
            assert _without_share(printed(f"up {name} --dry-run {changes}")) == _without_share(texts["docker-run"])
            for form, text in texts.items():
                found[form].append(f"=== {name} {changes}".rstrip() + f"\n{text}")
    return {form: "\n".join(texts) for form, texts in found.items()}


@contextlib.contextmanager
def cluster_head() -> Iterator[Machine]:
    """A machine that reaches two clusters, of two nodes and of four, by a program named ssh."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        ssh = FakeSsh(Path(folder))
        machine = Machine(Path(ssh.environment["HOME"]), demo=False)
        machine.environment |= ssh.environment
        for number in range(1, 5):
            memory = {"total_bytes": 128 * 10**9, "available_bytes": (121 - number) * 10**9}
            ssh.serves(f"nv@spark-{number}", memory=memory)
        assert machine.run("config", "set", "hosts", "lab=nv@spark-3")[0] == 0
        for name, size in (("duo", 2), ("quad", 4)):
            nodes = (f"--node=nv@spark-{n},fabric=192.168.100.{n},if=enp1s0f0np0" for n in range(1, size + 1))
            code, _, err = machine.run("cluster", "add", name, *nodes)
            assert code == 0, err
        yield machine


def cluster_answers() -> str:
    """As `answers`, on the head of a cluster."""
    with cluster_head() as machine:
        return "\n".join("\n".join((f"$ {line}", *machine.answer(line), "")) for line in ON_A_HEAD)


def cluster_launches() -> str:
    """Launches over several nodes, as a dry run of `up` prints them."""
    with cluster_head() as machine:
        runs = ((line, machine.run("up", *shlex.split(line), "--dry-run")) for line in OVER_NODES)
        return "\n".join(f"=== up {line}\nexit {code}\n{out}" for line, (code, out, _) in runs)


# --- the files --------------------------------------------------------------------------------------------

RECORDS: Final[dict[str, Callable[[], str]]] = {
    "commands.txt": commands,
    **{f"json/{name}.txt": partial(answers, lines) for name, lines in DEMO.items()},
    "json/at-home.txt": partial(answers, AT_HOME, demo=False),
    "json/cluster.txt": cluster_answers,
    "launches/cluster.txt": cluster_launches,
    **{f"launches/{form}.txt": partial(lambda form: launches()[form], form) for form in FORMS},
}
"""What makes each file below this folder."""


if __name__ == "__main__":
    for file, make in RECORDS.items():
        path = GOLDEN / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(make(), encoding="utf-8")
