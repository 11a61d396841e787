"""An engine as the screens and the command line see it: a container, what its log says, and what its API says."""

from __future__ import annotations

from dataclasses import dataclass

from spark_tui.domain.engine.container import ContainerFacts
from spark_tui.domain.engine.runtimes import with_tag
from spark_tui.domain.engine.state import EngineState, Exposure, Health, ServedModel, model_argument
from spark_tui.domain.logs.serving import ServingSample
from spark_tui.domain.logs.timeline import EMPTY_TIMELINE, BootTimeline
from spark_tui.domain.models.checkpoint import CheckpointFacts


@dataclass(frozen=True, slots=True)
class EngineView:
    """One row of the engine list, and everything its detail shows. Equal views need no repaint.

    `samples` are what it reported about its serving, oldest first; `checkpoint` is its model where that is in the
    store; `first_line` is the number in its log buffer of the line that evidence calls line 0.
    """

    container: ContainerFacts
    state: EngineState
    runtime: str
    exposure: Exposure
    port: int | None = None
    health: Health = Health.UNKNOWN
    models: tuple[ServedModel, ...] = ()
    version: str = ""
    timeline: BootTimeline = EMPTY_TIMELINE
    samples: tuple[ServingSample, ...] = ()
    checkpoint: CheckpointFacts | None = None
    first_line: int = 0

    @property
    def name(self) -> str:
        return self.container.name

    @property
    def base_url(self) -> str:
        """Where this host reaches the API; empty without a port."""
        return f"http://127.0.0.1:{self.port}" if self.port else ""

    @property
    def model(self) -> str:
        """What it serves, best source first: the API, our label, the log, the command."""
        served = self._served
        if served is not None and served.root:
            return served.root
        named = self.container.model or self.timeline.facts.model or model_argument(self.container)
        return named if served is None else named or served.id

    @property
    def served_name(self) -> str:
        """The name that requests must use; empty until it is known."""
        return self._served.id if self._served else self.container.served_name

    @property
    def _served(self) -> ServedModel | None:
        """The entry that is ours; the first where none is named as our label says."""
        own = self.container.served_name
        names = (own, with_tag(own)) if own else ()
        return next((model for model in self.models if model.id in names), next(iter(self.models), None))
