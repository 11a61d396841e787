"""The first request of a launch: it compiles kernels, so that the person's own does not wait for them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from spark_tui.core.engine_watch import EngineWatch
from spark_tui.core.step_reporter import StepReporter
from spark_tui.domain.chat import ChatParameters, ChatRequest, Message, Role
from spark_tui.domain.engine.endpoint import Endpoint
from spark_tui.domain.engine.runtimes import runtime_named
from spark_tui.domain.errors import SparkError
from spark_tui.domain.quantities import human_duration
from spark_tui.services.ports import Clock, EngineApi


class Warming:
    """Makes first requests. One object serves many engines."""

    def __init__(self, api: EngineApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    async def warm(self, watch: EngineWatch, steps: StepReporter) -> None:
        """Step `warm`. A failure of it is reported and does not undo the launch."""
        endpoint, served = watch.endpoint, watch.view().served_name
        if endpoint is None or not served:
            steps.skip("warm", "no served name")
            return
        runtime = runtime_named(watch.view().runtime)
        steps.begin("warm", runtime.first_request)
        started, patience = self._clock.monotonic(), runtime.first_request_seconds
        try:
            async with asyncio.timeout(patience):
                await self._first_request(endpoint, served)
        except TimeoutError:
            steps.fail("warm", f"no answer within {human_duration(patience)}")
        except SparkError as error:
            steps.fail("warm", str(error))
        else:
            watch.mark_warm(self._clock.monotonic() - started)
            steps.done("warm", "")

    async def _first_request(self, endpoint: Endpoint, served: str) -> None:
        request = ChatRequest(served, (Message(Role.USER, "ping"),), ChatParameters(max_tokens=3))
        async with aclosing(self._api.chat(endpoint, request)) as events:
            async for _ in events:
                pass
