"""What the load driver asks beside its load: the server's own page, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from spark_tui.domain.engine.endpoint import Endpoint
from spark_tui.domain.engine.metric_names import Family
from spark_tui.domain.engine.metric_page import EMPTY_PAGE
from spark_tui.domain.errors import EngineUnreachable
from spark_tui.services.bench_http import HttpLoadDriver
from tests.bench_server import BenchServer


@pytest.fixture
async def driver() -> AsyncIterator[HttpLoadDriver]:
    made = HttpLoadDriver()
    yield made
    await made.close()


async def test_only_the_page_of_a_server_that_counts_as_we_do_is_read(driver: HttpLoadDriver) -> None:
    async with BenchServer().running() as server:
        url = f"http://127.0.0.1:{server.port}"
        page = await driver.metrics(Endpoint(url))
        assert page.total(Family.GENERATED) == 0
        assert await driver.metrics(Endpoint(url, runtime="sglang")) == EMPTY_PAGE
        assert await driver.metrics(Endpoint(f"{url}/elsewhere")) == EMPTY_PAGE


async def test_a_server_that_is_gone_has_no_page(driver: HttpLoadDriver) -> None:
    async with BenchServer().running() as server:
        url = f"http://127.0.0.1:{server.port}"
    with pytest.raises(EngineUnreachable):
        await driver.metrics(Endpoint(url))
