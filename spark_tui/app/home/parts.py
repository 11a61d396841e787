"""What Home works with. Its first frame shows nothing of it: imported afterwards."""

from __future__ import annotations

from spark_tui.app.home.next_step import NextStep
from spark_tui.base.engine.docker_run import render_text
from spark_tui.base.graph import Curve
from spark_tui.base.host.series import HOST, MetricId
from spark_tui.catalog.fit.screen.bar import FitBar
from spark_tui.catalog.fit.show.launch import fit_verdict
from spark_tui.catalog.fit.show.presets import overview, recipe
from spark_tui.catalog.fit.use.draft import Drafts
from spark_tui.catalog.fit.use.fit import LaunchChecks, MemoryGate
from spark_tui.catalog.models.show.downloads import fetch_page
from spark_tui.catalog.presets.model.overrides import overrides_from_pairs
from spark_tui.catalog.presets.use.last_launches import LastLaunches
from spark_tui.catalog.presets.use.preflight import Preflight
from spark_tui.machine.nodes import Hosts
from spark_tui.observe.engines.screen.boot_timeline import BootTimelineView
from spark_tui.observe.engines.use.engines import EngineSupervisor
from spark_tui.observe.explain.model.timeline import EMPTY_TIMELINE
from spark_tui.observe.explain.show import explanation_of, explanation_rows, health_rows, landmarks
from spark_tui.observe.memory.show import guard_row
from spark_tui.observe.memory.use.memory import CacheControl, MemoryInspector
from spark_tui.observe.metrics.show.metrics import (
    HOME_PANELS,
    HOST_TITLES,
    existing,
    panels_with,
    slow_rows,
    spark_table,
)
from spark_tui.observe.metrics.use.history import History
from spark_tui.observe.metrics.use.metrics import EngineMetricsCollector
from spark_tui.observe.results.model.proof import engine_badge
from spark_tui.observe.results.use import read_proofs
from spark_tui.run.launch.use.edit import Editor
from spark_tui.run.launch.use.launch import launched_with
from spark_tui.run.launch.use.runner import JobRunner
from spark_tui.run.launch.use.secure import Securing
from spark_tui.run.service.use import BootUnits
from spark_tui.tui.modals import TextDialog
from spark_tui.tui.widgets.graph import GraphGrid, chart_of, sparkline
from spark_tui.tui.widgets.graph_picture import GraphView

__all__ = [
    "EMPTY_TIMELINE",
    "HOME_PANELS",
    "HOST",
    "HOST_TITLES",
    "BootTimelineView",
    "BootUnits",
    "CacheControl",
    "Curve",
    "Drafts",
    "Editor",
    "EngineMetricsCollector",
    "EngineSupervisor",
    "FitBar",
    "GraphGrid",
    "GraphView",
    "History",
    "Hosts",
    "JobRunner",
    "LastLaunches",
    "LaunchChecks",
    "MemoryGate",
    "MemoryInspector",
    "MetricId",
    "NextStep",
    "Preflight",
    "Securing",
    "TextDialog",
    "chart_of",
    "engine_badge",
    "existing",
    "explanation_of",
    "explanation_rows",
    "fetch_page",
    "fit_verdict",
    "guard_row",
    "health_rows",
    "landmarks",
    "launched_with",
    "overrides_from_pairs",
    "overview",
    "panels_with",
    "read_proofs",
    "recipe",
    "render_text",
    "slow_rows",
    "spark_table",
    "sparkline",
]
