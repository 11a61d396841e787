"""Launches over several nodes: started, followed, watched, started again and stopped as one thing.

Every step is written down before it is taken: after a crash the next program finishes or undoes the launch. What is
left on a node is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from spark_tui.base.actions import by_front_end, key_of
from spark_tui.base.context import Context
from spark_tui.base.engine.container import LABEL_MODEL, LABEL_RUNTIME
from spark_tui.base.engine.invocation import parse
from spark_tui.base.errors import NameInUse, PortInUse, RefusedError, SparkError
from spark_tui.base.executors import end_tasks
from spark_tui.base.finding import Finding, Missing, Ok, Reading
from spark_tui.base.jobs import Report, Step, StepReporter
from spark_tui.base.journal import WAIT, Journal, is_claimed
from spark_tui.base.launches import RELAUNCHES_AN_HOUR, ClusterRecord, RankRecord, Stage
from spark_tui.base.page import finding_fix
from spark_tui.base.ports import Clock, LogArchive, LogLine, StateFiles, port_named
from spark_tui.base.protocol import (
    Canary,
    Cleared,
    Lease,
    LookRequest,
    NodeLook,
    NodeSilent,
    RankState,
    Router,
    StopRequest,
)
from spark_tui.base.quantities import gib
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import decode
from spark_tui.catalog.models.model.hub import sum_known
from spark_tui.catalog.presets.model.rules.check import judge
from spark_tui.machine.nodes import Nodes
from spark_tui.manage.cluster.model.blame import RankView, blame, merged_lines, read_rank
from spark_tui.manage.cluster.model.copying import other_file, same_image
from spark_tui.observe.explain.model.line import by_time
from spark_tui.observe.explain.model.tracker import LogTracker

T = TypeVar("T")

STEPS: Final = (
    ("nodes", "Check nodes"),
    ("clear", "Remove earlier ranks"),
    ("workers", "Start workers"),
    ("head", "Start head"),
    ("follow", "Boot"),
    ("ready", "First answer"),
)
_WATCH: Final = "watch-"
_STOP: Final = "stop-"
"""Claimed by the program that stops a launch: its watcher leaves it alone meanwhile."""
_START_SECONDS: Final = 180.0
"""For one node to free its cache, create and start a container."""
_STOP_SECONDS: Final = 120.0
_GRACE_SECONDS: Final = 60.0
"""Beyond the engine's own patience, for ssh and a Python that starts."""
_MOST_LINES: Final = 20_000
_AGAIN_SECONDS: Final = 2.0
_WISH_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 15.0
"""Between two looks at what serves."""
STILL_LOOKS: Final = 2
"""Looks in a row without a new token while requests run, after which the canary is sent."""
SILENT_LOOKS: Final = 4
"""Looks in a row without an answer of the head, after which it counts as lost; a node that cannot be asked does not."""
CANARY_SECONDS: Final = 30.0


CHECK_SECONDS: Final = 180.0
"""That nodes are kept for a launch that is not written down yet: a program that is killed leaves nothing longer."""


@port_named("watchers")
class Watchers(Protocol):
    """Starts programs that look after launches over several nodes and outlive this one."""

    def start(self, name: str) -> Path:
        """A program that watches that launch, if none does; returns where it writes what it did. Raises SparkError."""


class ClusterFailed(SparkError, id="cluster_failed"):
    """A launch over several nodes did not come up, or does not serve any more."""


class NotClean(SparkError, id="cluster_not_clean"):
    """Something of a launch is left on a node, or a node cannot be asked."""


class NodeCleared(Struct, frozen=True):
    """What became of a stop on one node; `problem` where it could not be done."""

    node: str
    cleared: Cleared | None = None
    problem: SparkError | None = None

    @property
    def clean(self) -> bool:
        return self.cleared is not None and not self.cleared.left

    @property
    def text(self) -> str:
        """What is left on the node, or that nothing is."""
        if self.problem is not None:
            return f"{self.node} is not proven clean: {self.problem.summary}"
        left = self.cleared.left if self.cleared is not None else ()
        return f"{self.node}: {'; '.join(map(clean_line, left)) or 'clean'}."


class Pulse(Struct):
    """What was seen of a launch by the looks so far: in a row without an answer, in a row without a new token."""

    silent: int = 0
    still: int = 0
    tokens: int | None = None
    fabric: str = ""
    """The fault between the nodes in spite of which the last canary was answered."""


class RankLog(Struct, eq=False):
    """What a rank wrote, as far as it came, and what it means."""

    rank: RankRecord
    lines: list[LogLine] = field(default_factory=list)
    tracker: LogTracker = field(default_factory=LogTracker)
    latest: str = ""
    """The stamp of the last line."""

    def add(self, text: str) -> LogLine | None:
        """One line of `logs --json`; None for one that is known, and for what is none."""
        try:
            found = decode(text, dict[str, str]) if text.startswith("{") else {}
        except ValueError:
            found = {}
        line = LogLine(found.get("stamp", ""), found.get("text", ""))
        if line.stamp <= self.latest:  # none, or read again after ssh was cut
            return None
        self.latest = line.stamp
        self.tracker.feed(line.stamp, line.text)
        if len(self.lines) < _MOST_LINES:
            self.lines.append(line)
        return line

    @property
    def phase(self) -> str:
        """What it is doing: `weights 62%`."""
        current = self.tracker.timeline().current
        if current is None:
            return "starting"
        share = "" if current.progress is None else f" {current.progress:.0%}"
        return f"{current.label}{share}"


class ClusterLauncher:
    """Carries out launches over several nodes. One object serves many."""

    @classmethod
    def from_context(cls, context: Context) -> ClusterLauncher:
        return cls(
            context[Nodes],
            context.ports.state,
            context.archive,
            context.find(Watchers),
            context.clock,
            f"{context.ports.dropper.user()[0]} on {context.host.identity().hostname}",
        )

    def __init__(
        self, nodes: Nodes, state: StateFiles, archive: LogArchive, watchers: Watchers | None, clock: Clock, who: str
    ) -> None:
        """`who` names this program's user and machine to others."""
        self._who = who
        self._nodes = nodes
        self._state = state
        self._journal = launches(state)
        self._archive = archive
        self._watchers = watchers
        self._clock = clock
        self._let_go = False

    def let_go(self) -> None:
        """This program is closing: a launch that is cancelled from now on stays written down as it is, and its
        containers run on. The next program finishes it."""
        self._let_go = True

    # --- launch ---------------------------------------------------------------------------------------

    async def launch(self, record: ClusterRecord, report: Report, *, replace_running: bool = False) -> ClusterRecord:
        """Starts all ranks and waits for the first answer. `replace_running`: ranks of another launch with these names
        are stopped first. Raises the error of the step that failed, after everything that was started is stopped and
        removed again; cancelling does the same."""
        steps = StepReporter(tuple(Step(id_, label) for id_, label in STEPS), report, self._clock)
        with self._journal.claimed(record.name):
            try:
                async with steps.running("nodes"):
                    await self._lease(record, CHECK_SECONDS)
                    looks, text = await self._check(record, replace_running=replace_running)
                    if record.router is not None and not looks[0].router:
                        record = replace(record, router=None)
                        text += f"; no router: vllm-router is not installed on {record.head.node.name}"
                    steps.detail("nodes", text)
                self._journal.write(record)
                async with self._undone(record):
                    await self._lease(record, record.patience)
                    async with steps.running("clear"):
                        steps.detail("clear", _cleared_text(await self._end(record)))
                    async with steps.running("workers"):
                        await asyncio.gather(*(self._start(rank) for rank in record.ranks[1:]))
                        steps.detail("workers", ", ".join(rank.node.name for rank in record.ranks[1:]))
                    async with steps.running("head"):
                        await self._start(record.head)
                        steps.detail("head", record.head.node.name)
                    await self._follow(record, steps)
                ready = replace(record, stage=Stage.READY)
                self._journal.write(ready)
                return ready
            finally:
                if not self._let_go:
                    await _uncancelled(asyncio.ensure_future(self._give_back(record)))

    async def _lease(self, record: ClusterRecord, seconds: float) -> None:
        """Keeps the nodes for this launch: one after the other in one order, so that of two launches one gets them all.
        Raises NodeRefused where another launch has one."""
        lease = Lease(record.launch, record.name, self._who, self._clock.now() + seconds)
        for rank in sorted(record.ranks, key=lambda each: each.node.fabric or (each.node.name,)):
            await self._nodes.ask(rank.node, "lease", lease, Lease)

    async def _give_back(self, record: ClusterRecord) -> None:
        """Gives the nodes back that are kept for this launch; one that cannot be asked is kept until the lease ends."""
        asked = (self._nodes.ask(rank.node, "lease", Lease(record.launch), Lease) for rank in record.ranks)
        await asyncio.gather(*asked, return_exceptions=True)

    async def _check(self, record: ClusterRecord, *, replace_running: bool) -> tuple[list[NodeLook], str]:
        """Every node answers, has image and model, no rank of another launch, and its ports are free: what they
        answered, and that in words. Raises SparkError for the first that does not."""
        looks = await asyncio.gather(*(self._look(rank) for rank in record.ranks))
        for rank, look in zip(record.ranks, looks, strict=True):
            _check_node(record, rank, look, replace_running=replace_running)
        if not record.alone and (problem := record.lost_link(looks)):
            raise RefusedError(
                f"The nodes cannot work together: {problem}.", f"See: spark-tui cluster doctor {record.cluster}"
            )
        images = [look.image for look in looks if look.image is not None]
        other = next(
            (rank for rank, each in zip(record.ranks, images, strict=True) if not same_image(images[0], each)), None
        )
        if other is not None:
            image = record.head.start.spec.image
            raise RefusedError(
                f"The image {image} of {other.node.name} differs from that of {record.head.node.name}.",
                f"Copy it: spark-tui cluster copy image {image} {record.cluster}",
            )
        _check_models(record, looks)
        known = [(look.available, rank.node.name) for rank, look in zip(record.ranks, looks, strict=True)]
        least = min(((size, name) for size, name in known if size is not None), default=None)
        free = "" if least is None else f", at least {gib(least[0])} GiB available ({least[1]})"
        return looks, f"{len(looks)} nodes answer{free}"

    async def _look(self, rank: RankRecord) -> NodeLook:
        spec = rank.start.spec
        revision = parse(spec.command, spec.label(LABEL_RUNTIME)).value("revision") or ""
        request = LookRequest(spec.image, spec.label(LABEL_MODEL), rank.start.ports, revision=revision)
        return await self._nodes.ask(rank.node, "look", request, NodeLook)

    async def _start(self, rank: RankRecord) -> RankState:
        return await self._nodes.ask(rank.node, "start", rank.start, RankState, seconds=_START_SECONDS)

    @asynccontextmanager
    async def _undone(self, record: ClusterRecord) -> AsyncIterator[None]:
        """Stops and removes whatever was started when the body fails or is cancelled. What could not be undone stays
        written down."""
        try:
            yield
        except BaseException as error:
            if self._let_go and isinstance(error, asyncio.CancelledError):
                raise
            undo = asyncio.ensure_future(self._finish_stop(replace(record, stage=Stage.STOPPING)))
            with suppress(SparkError):
                await _uncancelled(undo)
            raise

    # --- boot -----------------------------------------------------------------------------------------

    async def _follow(self, record: ClusterRecord, steps: StepReporter) -> None:
        """Until the head has answered. Raises ClusterFailed when a rank ends before, or no answer comes."""
        logs = [RankLog(rank) for rank in record.ranks]
        followers = [asyncio.create_task(self._read_log(log, steps, logs)) for log in logs]
        answer = asyncio.create_task(self._first_answer(record))
        try:
            async with steps.running("follow"):
                pending: set[asyncio.Task[Any]] = {answer, *followers}
                while not answer.done():
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    ended = [each.result() for each in done if each is not answer]
                    if ended:
                        raise await self._failed(record, logs)
            async with steps.running("ready"):
                found = answer.result()
                alive = await self.states(record)
                if found.answered < record.answers or not all(each and each.running for each in alive):
                    raise await self._failed(record, logs, found.problem)
                steps.detail("ready", f"{found.answered} of {record.answers} answered")
                await self._route(record)
        finally:
            await end_tasks(*followers, answer)

    async def _route(self, record: ClusterRecord) -> None:
        """The router of replicas runs. Raises SparkError."""
        if record.router is not None:
            await self._nodes.ask(record.head.node, "route", record.router, Router)

    async def _first_answer(self, record: ClusterRecord) -> Canary:
        """The canary once the server lists the model. A node that cannot be asked meanwhile is asked again: the load
        does not need us."""
        deadline = self._clock.monotonic() + record.patience
        while True:
            left = max(0.0, deadline - self._clock.monotonic())
            try:
                return await self._canary(record, patience=left)
            except NodeSilent:
                if not left:
                    raise
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _canary(
        self, record: ClusterRecord, *, patience: float = 0.0, answers: int | None = None, seconds: float | None = None
    ) -> Canary:
        """What all servers of the launch say together. Raises SparkError for one that cannot be asked."""
        wanted = record.canary
        request = replace(
            wanted,
            patience=patience,
            answers=wanted.answers if answers is None else answers,
            seconds=seconds or wanted.seconds,
        )
        limit = patience + request.seconds + _GRACE_SECONDS
        found = await asyncio.gather(
            *(
                self._nodes.ask(each.node, "canary", replace(request, container=each.name), Canary, seconds=limit)
                for each in record.servers
            )
        )
        return Canary(
            all(each.healthy for each in found),
            all(each.listed for each in found),
            sum(each.answered for each in found),
            next((each.problem for each in found if each.problem), ""),
            sum_known(each.running for each in found),
            sum_known(each.tokens for each in found),
        )

    async def _read_log(self, log: RankLog, steps: StepReporter, logs: Sequence[RankLog]) -> RankState | None:
        """Follows a rank's log until its container has ended, and returns its state; None when it is gone. An end of
        the log alone, or of ssh, is no end of the container: it is read on from there."""

        def line(text: str) -> None:
            log.add(text)
            steps.detail("follow", "; ".join(f"{each.rank.node.name} {each.phase}" for each in logs))

        while True:
            with suppress(SparkError):
                await self._nodes.logs(log.rank.node, log.rank.name, line, follow=True)
            with suppress(SparkError):
                state = await self._state_of(log.rank)
                if state is None or not state.running:
                    return state
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _failed(self, record: ClusterRecord, logs: Sequence[RankLog], said: str = "") -> ClusterFailed:
        """What is known of a launch that did not come up: the guilty rank by the logs of all, which are kept. `said`:
        what its server answered."""
        states = await self.seen(record)
        reports = [
            read_rank(RankView(number, log.rank.node, _reading(state), log.lines), record.as_cluster)
            for number, (log, state) in enumerate(zip(logs, states, strict=True))
        ]
        found = blame(record.as_cluster, reports)
        lines = [LogLine(stamp, f"{node} | {text}") for node, stamp, text in merged_lines([r.rank for r in reports])]
        kept = f"The logs of all ranks: {self._archive.save(record.name, lines)}" if lines else "No rank wrote a log."
        if not found:
            ended = [
                f"{state.name} ended with exit code {state.exit_code}"
                for state in states
                if isinstance(state, RankState) and not state.running
            ]
            why = "; ".join((*ended, *filter(None, (clean_line(said),)))) or "no answer"
            return ClusterFailed(f"{record.name} did not start: {why}.", kept)
        root = _judged(found[0], record)
        again = by_front_end(key_of("launch"), f"spark-tui up {record.preset} --nodes {record.cluster}")
        remedy = (finding_fix(root) or f"Launch again: {again}").rstrip(".")
        return ClusterFailed(
            f"{record.name} did not start. {root.summary}", f"{remedy}. {kept}", detail="\n".join(root.evidence)
        )

    # --- state ----------------------------------------------------------------------------------------

    async def states(self, record: ClusterRecord) -> tuple[RankState | None, ...]:
        """The container of each rank; None where it is gone. Raises SparkError for a node that does not answer."""
        return tuple(await asyncio.gather(*map(self._state_of, record.ranks)))

    async def seen(self, record: ClusterRecord) -> tuple[RankState | SparkError | None, ...]:
        """The same, with the error of a node that does not answer in its place."""

        async def look(rank: RankRecord) -> RankState | SparkError | None:
            try:
                return await self._state_of(rank)
            except SparkError as error:
                return error

        return tuple(await asyncio.gather(*map(look, record.ranks)))

    async def _state_of(self, rank: RankRecord) -> RankState | None:
        look = await self._nodes.ask(rank.node, "look", LookRequest(), NodeLook)
        if look.docker_problem:
            raise ClusterFailed(f"{rank.node.name}: {clean_line(look.docker_problem)}", "Start Docker there.")
        return _own(rank, look)

    async def logs(
        self, record: ClusterRecord, on_line: Callable[[str, LogLine], None], *, follow: bool
    ) -> tuple[SparkError, ...]:
        """Hands over the lines of all ranks with the names of their nodes: by time, with `follow` as they come. Returns
        why a rank's log could not be read."""
        logs = [RankLog(rank) for rank in record.ranks]

        async def read(log: RankLog) -> SparkError | None:
            def line(text: str) -> None:
                if (new := log.add(text)) is not None and follow:
                    on_line(log.rank.node.name, new)

            try:
                await self._nodes.logs(log.rank.node, log.rank.name, line, follow=follow)
            except SparkError as error:
                return error
            return None

        problems = await asyncio.gather(*map(read, logs))
        for log, at in () if follow else by_time([each.lines for each in logs]):
            on_line(logs[log].rank.node.name, logs[log].lines[at])
        return tuple(filter(None, problems))

    # --- stop -----------------------------------------------------------------------------------------

    async def stop(self, name: str) -> tuple[NodeCleared, ...]:
        """Stops and removes every rank, and proves each node clean. A node that is not stays written down. What the
        watcher is starting again is ended for it. Raises RefusedError for a launch that is not known or that another
        program works on."""
        record = self.read(name)
        if record is None:
            raise RefusedError(f"No launch over several nodes is named {name}.", "See: spark-tui cluster status")
        async with self._left_by_watcher(name):
            with self._journal.claimed(name):
                return await self._finish_stop(replace(record, stage=Stage.STOPPING))

    @asynccontextmanager
    async def _left_by_watcher(self, name: str) -> AsyncIterator[None]:
        """The watcher of a launch, if there is one, does not work on it."""
        deadline = self._clock.monotonic() + _STOP_SECONDS + _START_SECONDS
        while not self._state.claim(_STOP + name):  # the watcher looks whether it is claimed
            if self._clock.monotonic() >= deadline:
                raise RefusedError(f"{name} is being stopped by another spark-tui.", "Wait for it, or cancel it there.")
            await self._clock.sleep(_WISH_SECONDS)
        try:
            while (
                self._journal.is_claimed(name)
                and is_claimed(self._state, _WATCH + name)
                and self._clock.monotonic() < deadline
            ):
                await self._clock.sleep(_WISH_SECONDS)
            yield
        finally:
            self._state.release(_STOP + name)

    async def _finish_stop(self, record: ClusterRecord) -> tuple[NodeCleared, ...]:
        self._journal.write(record)
        results = await self._end(record)
        left = tuple(each.node for each in results if not each.clean)
        if left:
            self._journal.write(replace(record, uncleared=left))
        else:
            self._journal.drop(record.name)
        return results

    async def _end(self, record: ClusterRecord) -> tuple[NodeCleared, ...]:
        """All ranks of this launch, and those of an earlier one with the same names. Raises nothing."""
        return tuple(await asyncio.gather(*(self._clear(record, rank) for rank in record.ranks)))

    async def _clear(self, record: ClusterRecord, rank: RankRecord, *, keeps_router: bool = False) -> NodeCleared:
        names, ports = tuple(each.name for each in record.ranks), rank.start.ports
        if record.router is not None and rank is record.head and not keeps_router:
            ports += (record.router.port,)
        final = record.stage is Stage.STOPPING and not keeps_router
        request = StopRequest(record.launch, names, ports, keeps_router=keeps_router, final=final)
        try:
            found = await self._nodes.ask(rank.node, "stop", request, Cleared, seconds=_STOP_SECONDS)
        except SparkError as error:
            return NodeCleared(rank.node.name, problem=error)
        return NodeCleared(rank.node.name, found)

    # --- watch ----------------------------------------------------------------------------------------

    def watched(self, record: ClusterRecord) -> None:
        """A program watches it from now on, unless one does already. Raises SparkError."""
        if self._watchers is None:
            raise RefusedError("Clusters are not available in the demo.", "Start without --demo.")
        if not is_claimed(self._state, _WATCH + record.name):
            self._watchers.start(record.name)

    async def watch(self, name: str, say: Callable[[str], None]) -> None:
        """Watches a launch until it is stopped or is BROKEN. After the end of a rank, a silent head or a lost canary
        all ranks are stopped, and started again at most RELAUNCHES_AN_HOUR times; of replicas the one alone."""
        watching = _WATCH + name
        if not self._state.claim(watching):
            raise RefusedError(f"{name} is watched already.", "See: spark-tui cluster status")
        try:
            await self._watch(name, say)
        finally:
            self._state.release(watching)

    async def _watch(self, name: str, say: Callable[[str], None]) -> None:
        pulse, pulses = Pulse(), dict[str, Pulse]()
        while (record := self.read(name)) is not None and record.stage is Stage.READY:
            if self._is_stopped(name):
                await self._clock.sleep(_WISH_SECONDS)
                continue
            if record.alone:
                with suppress(RefusedError):  # another program is stopping it
                    await self._watch_replicas(record, pulses, say)
                await self._clock.sleep(WATCH_SECONDS)
                continue
            problem = await self._pulse(record, pulse)
            if problem:
                with suppress(RefusedError):  # another program is stopping it
                    await self._recover(record, problem, say)
                pulse = Pulse()
            else:
                await self._clock.sleep(WATCH_SECONDS)

    async def _watch_replicas(
        self, record: ClusterRecord, pulses: dict[str, Pulse], say: Callable[[str], None]
    ) -> None:
        """One look: the first replica that does not serve any more is started again, the others go on."""
        for rank in record.ranks:
            problem = await self._pulse(record.replica(rank), pulses.setdefault(rank.node.host, Pulse()))
            if problem:
                pulses.pop(rank.node.host)
                await self._restart(record, rank, problem, say)
                return
        with suppress(SparkError):
            await self._route(record)

    async def _restart(self, record: ClusterRecord, rank: RankRecord, problem: str, say: Callable[[str], None]) -> None:
        """Stops one replica and starts it again; after too many starts within an hour it stays as it is. Does nothing
        for a launch that was stopped or changed meanwhile."""
        counted = record.counted(self._clock.now(), problem)
        with self._journal.claimed(record.name):
            if self.read(record.name) != record:
                return
            if counted is None:
                if record.problem != problem:
                    say(f"{problem} It was started {RELAUNCHES_AN_HOUR} times within an hour: it stays stopped.")
                    self._journal.write(replace(record, problem=problem))
                return
            say(problem)
            self._journal.write(counted)
            cleared = await self._clear(record.replica(rank), rank, keeps_router=True)
            if not cleared.clean:
                say(f"Not started again: {cleared.text}")
                return
            try:
                await self._start(rank)
                say(f"{rank.name} on {rank.node.name} is started again.")
            except SparkError as error:
                say(str(error))

    async def _pulse(self, record: ClusterRecord, pulse: Pulse) -> str:
        """Why the launch does not serve any more; empty while it does, or where that is not known."""
        asked = (self._nodes.ask(rank.node, "look", LookRequest(), NodeLook) for rank in record.ranks)
        found = await asyncio.gather(*asked, return_exceptions=True)
        looks = [each if isinstance(each, NodeLook) else None for each in found]
        boots = False
        for rank, look in zip(record.ranks, looks, strict=True):
            if look is None or look.docker_problem:
                continue
            state = _own(rank, look)
            if state is None:
                return f"{rank.name} on {rank.node.name} is gone."
            if not state.running:
                code = f"exit code {state.exit_code}"
                return f"{rank.name} on {rank.node.name} has ended ({'out of memory' if state.oom_killed else code})."
            # a replica that was started again has yet to answer
            lately = self._clock.now() - (state.started_at or 0.0) < record.patience
            boots = record.alone and pulse.tokens is None and lately
        fabric = record.lost_link(looks) or record.smaller_mtu(looks)
        try:
            return await self._stall(record, pulse, fabric, boots=boots)
        except SparkError:
            return ""

    async def _stall(self, record: ClusterRecord, pulse: Pulse, fabric: str, *, boots: bool) -> str:
        """Why its servers do not serve any more; one that `boots` may be silent. A fault between the nodes (`fabric`)
        calls for the canary at once: the pages stay 200 and nothing is logged. Raises SparkError for a head that cannot
        be asked."""
        found = await self._canary(record, answers=0)
        pulse.silent = 0 if found.listed or boots else pulse.silent + 1
        if pulse.silent >= SILENT_LOOKS:
            return f"The head of {record.name} does not answer: {clean_line(found.problem)}."
        moved = not found.running or found.tokens != pulse.tokens
        pulse.still, pulse.tokens = 0 if moved else pulse.still + 1, found.tokens
        if pulse.still < STILL_LOOKS and fabric == pulse.fabric:
            return ""
        pulse.still = 0
        found = await self._canary(record, seconds=CANARY_SECONDS)
        if found.answered >= record.answers:
            pulse.fabric = fabric
            return ""
        why = f"{clean_line(found.problem)}; {fabric}" if fabric else clean_line(found.problem)
        return f"{record.name} is stalled: no token comes ({why})."

    async def _recover(self, record: ClusterRecord, problem: str, say: Callable[[str], None]) -> None:
        """Ends all ranks, proves it, and starts them again; not while a node cannot be asked, and not too often. Does
        nothing for a launch that was stopped or changed while its ranks were looked at."""
        again = record.again(self._clock.now(), problem)
        with self._journal.claimed(record.name):
            if self.read(record.name) != record:
                return
            say(problem)
            results = await self._finish_stop(replace(record, stage=Stage.STOPPING, problem=problem))
            left = [each for each in results if not each.clean]
            if again is not None and not left:
                self._journal.write(again)  # who stops the launch meanwhile finds it
        if left:
            say(f"Not started again: {left[0].text}")
        elif again is None:
            self._journal.write(replace(record, stage=Stage.BROKEN, problem=problem))
            say(f"{record.name} was started {RELAUNCHES_AN_HOUR} times within an hour: it stays stopped.")
        else:
            say(f"{record.name} is started again.")
            try:
                await self._launch_unless_stopped(again, say)
            except SparkError as error:
                self._journal.write(replace(again, stage=Stage.BROKEN, problem=error.summary))
                say(str(error))

    async def _launch_unless_stopped(self, record: ClusterRecord, say: Callable[[str], None]) -> None:
        """The launch, cancelled and undone when a program stops it meanwhile. Raises SparkError."""

        async def stopped() -> None:
            while not self._is_stopped(record.name):
                await self._clock.sleep(_WISH_SECONDS)

        launch = asyncio.ensure_future(
            self.launch(record, lambda step: say(step_text(step)) if step.state.over else None)
        )
        wish = asyncio.ensure_future(stopped())
        try:
            await asyncio.wait({launch, wish}, return_when=asyncio.FIRST_COMPLETED)
            if launch.done():
                launch.result()
            else:
                say(f"{record.name} is being stopped: the start ends.")
        finally:
            for each in (launch, wish):
                each.cancel()
            await _uncancelled(asyncio.ensure_future(asyncio.wait({launch, wish})))

    def _is_stopped(self, name: str) -> bool:
        return is_claimed(self._state, _STOP + name)

    # --- what is written down -------------------------------------------------------------------------

    def records(self) -> tuple[ClusterRecord, ...]:
        """Every launch that is known, in the order of their names. Raises SparkError where they cannot be read."""
        return tuple(filter(None, map(self.read, self._journal.names())))

    def read(self, name: str) -> ClusterRecord | None:
        """Raises RefusedError for a damaged file."""
        return self._journal.read(name)

    async def recover(self, record: ClusterRecord) -> ClusterRecord | None:
        """Finishes what a program began that was killed or closed: a launch that answers in time is ready, any other
        one is undone. Returns the launch, None when it is gone. Raises RefusedError while its owner works on it."""
        with self._journal.claimed(record.name):
            try:
                if record.stage is Stage.STARTING and await self._comes_up(record):
                    self._journal.write(replace(record, stage=Stage.READY))
                else:
                    await self._finish_stop(replace(record, stage=Stage.STOPPING))
                return self.read(record.name)
            finally:
                if not self._let_go:
                    await _uncancelled(asyncio.ensure_future(self._give_back(record)))

    async def _comes_up(self, record: ClusterRecord) -> bool:
        """Whether all ranks run, and the server answers in time."""
        with suppress(SparkError):
            if all(each is not None and each.running for each in await self.states(record)):
                return (await self._first_answer(record)).answered == record.answers
        return False


def launches(state: StateFiles) -> Journal[ClusterRecord]:
    """Launches over several nodes that run, are under way or were interrupted."""
    return Journal(
        state,
        ClusterRecord,
        "cluster-",
        attrgetter("name"),
        damaged=(
            "The launch {name} cannot be read: {path} is damaged.",
            "Remove its containers on each node (docker ps), then delete that file.",
        ),
        busy=("{name} is being worked on by another spark-tui.", WAIT),
    )


def _check_node(record: ClusterRecord, rank: RankRecord, look: NodeLook, *, replace_running: bool) -> None:
    """Raises SparkError for what keeps this rank from starting there."""
    spec, name = rank.start.spec, rank.node.name
    if look.docker_problem:
        raise ClusterFailed(f"{name}: {clean_line(look.docker_problem)}", f"See: spark-tui --host {name} doctor")
    if not look.image:
        raise RefusedError(
            f"{name} does not have the image {spec.image}.",
            f"Copy it: spark-tui cluster copy image {spec.image} {record.cluster}",
        )
    if look.model is False:
        model = spec.label(LABEL_MODEL)
        raise RefusedError(
            f"{name} does not have the model {model}.",
            f"Copy it: spark-tui cluster copy model {model} {record.cluster}",
        )
    interfaces = [link.name for link in look.links]
    if absent := [each for each in rank.node.interfaces if interfaces and each not in interfaces]:
        raise RefusedError(
            f"{name} has no interface {absent[0]}, only {', '.join(map(clean_line, interfaces))}.",
            f"Correct it: spark-tui cluster add {record.cluster}",
        )
    names = {each.name for each in record.ranks}
    replaced = any(each.name in names and each.running for each in look.ranks)
    if replaced and not replace_running:
        raise NameInUse(
            f"{record.name} runs on {name} already.",
            by_front_end(
                f"Stop it first: {key_of('stop')} on Home or Cluster. Or give another name.",
                f"Stop it first: spark-tui down {record.name}. Or add --replace.",
            ),
        )
    if look.taken and not replaced:
        port, owner = look.taken[0]
        raise PortInUse(
            f"Port {port} of {name} is taken by {clean_line(owner)}.", "Stop that process, or choose another port."
        )


def _check_models(record: ClusterRecord, looks: Sequence[NodeLook]) -> None:
    """Raises RefusedError where the model is other files on one node than on another: its ranks would answer nonsense,
    or one would end while it loads. A node without it is none where no node has it: the Hub may give it."""
    known = [(rank, look.files) for rank, look in zip(record.ranks, looks, strict=True)]
    first, files = next(((rank, files) for rank, files in known if files is not None), (record.head, ()))
    model = clean_line(first.start.spec.label(LABEL_MODEL))
    copy = f"Copy it: spark-tui cluster copy model {model} {record.cluster}"
    for rank, found in known if files else ():
        if found is None:
            raise RefusedError(f"{rank.node.name} does not have the model {model}, {first.node.name} has.", copy)
        if other := other_file(files, found):
            name, *sizes = other
            have, theirs = ("absent" if size is None else f"{size:,} bytes" for size in sizes)
            if have == theirs:
                theirs = f"other {theirs}"
            raise RefusedError(
                f"The model {model} differs: {clean_line(name)} is {have} on {first.node.name}, {theirs} on "
                f"{rank.node.name}.",
                copy,
            )


def _own(rank: RankRecord, look: NodeLook) -> RankState | None:
    return next((each for each in look.ranks if each.name == rank.name), None)


def _judged(cause: Finding, record: ClusterRecord) -> Finding:
    """With advice alone that passes the check of the launch that it would make."""
    spec = record.head.start.spec
    if not cause.change or spec.label(LABEL_RUNTIME) != "vllm":
        return cause
    env = tuple(f"{each.name}={each.value}" for each in spec.env)
    return judge(spec.image, spec.label(LABEL_MODEL), (*(spec.entrypoint or ()), *spec.command), env, cause)


def _reading(state: RankState | SparkError | None) -> Reading[RankState | None]:
    return Missing(state.summary) if isinstance(state, SparkError) else Ok(state)


def _cleared_text(results: Sequence[NodeCleared]) -> str:
    """Raises NotClean for a node that something is left on."""
    left = next((each for each in results if not each.clean), None)
    if left is not None:
        raise NotClean(left.text, "Stop what is there, then launch again.")
    removed = [name for each in results if each.cleared for name in each.cleared.removed]
    return f"removed {', '.join(removed)}" if removed else "nothing there"


def step_text(step: Step) -> str:
    """`Start workers: spark-2`."""
    return f"{step.label}: {step.detail or step.state.value}"


async def _uncancelled(task: asyncio.Future[T]) -> T:
    """Waits for it to its end; what cancels this one meanwhile, does so afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # it is known, and nothing more
        raise cancelled
    return task.result()
