"""What the launch form says of a model that is not here: how much is fetched first, or what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from spark_tui.core.context import Context
from spark_tui.core.fetching import Wanted, requests_of
from spark_tui.domain.errors import SparkError
from spark_tui.domain.models.download import DownloadRequest
from spark_tui.domain.presets.plan import LaunchPlan
from spark_tui.tui.widgets.page import BLANK, Part, told

FETCH_KEY = "^f"
_LABEL = Content("model")


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """What a launch would fetch, of all that it `needs`. `wanted` None: not known, or there is no Hub to fetch from."""

    needs: tuple[DownloadRequest, ...]
    wanted: Wanted | None = None
    problem: SparkError | None = None

    def wants(self, plan: LaunchPlan) -> bool:
        """Whether that launch needs just the same."""
        return requests_of(plan) == self.needs


async def stand(core: Context, plan: LaunchPlan) -> ModelStanding:
    """Looks into the store, and asks the Hub only for what is not there. What goes wrong is the answer's `problem`."""
    needs = requests_of(plan)
    if core.fetching is None:
        return ModelStanding(needs)
    try:
        wanted = await core.fetching.look(plan)
    except SparkError as error:
        return ModelStanding(needs, problem=error)
    return ModelStanding(needs, wanted, wanted.refusal)


def model_parts(standing: ModelStanding | None, *, fetch: bool) -> list[Part]:
    """One line where something is missing, none where all of it is here. `fetch`: the launch brings it."""
    if standing is None:
        return []
    if standing.problem is not None:
        return [_not_fetched(standing.problem, fetch=fetch), BLANK]
    wanted = standing.wanted
    if wanted is None or not wanted.plans:
        return []
    how = f"fetched before the start ({FETCH_KEY}: not)" if fetch else f"left to the engine ({FETCH_KEY}: fetch it)"
    return [(_LABEL, Content.assemble(told(wanted.words, "$warning"), told(f"; {how}", "$dim"))), BLANK]


def _not_fetched(problem: SparkError, *, fetch: bool) -> Part:
    if not fetch:
        return _LABEL, told(f"left to the engine ({FETCH_KEY}: fetch it)", "$dim")
    return _LABEL, Content.assemble(told(problem.summary, "$error"), "  ", told(problem.remedy, "$dim"))
