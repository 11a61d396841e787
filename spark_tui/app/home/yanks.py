"""What Home copies of an engine, of its log and of the events."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_tui.app.engines_frame import parts
from spark_tui.base.engine.state import Exposure
from spark_tui.base.errors import UsageError
from spark_tui.base.text import clean
from spark_tui.tui.yank import Yank

if TYPE_CHECKING:
    from spark_tui.base.context import Context
    from spark_tui.catalog.presets.model.preset import Preset
    from spark_tui.observe.explain.model.view import EngineView


def engine_yanks(context: Context, view: EngineView | None, preset: Preset | None, lan: str) -> Iterator[Yank]:
    """What a client or a script needs of an engine. `lan` is this machine's address in the network."""
    if view is None:
        return
    container, file = view.container, view.container.api_key_file
    open_ = bool(lan and view.port) and view.exposure in (Exposure.LAN, Exposure.LAN_NO_KEY)
    network = f"http://{lan}:{view.port}/v1" if open_ else ""
    if view.base_url:
        yield Yank("URL", "u", f"{view.base_url}/v1")
    if network:
        yield Yank("Network URL", "n", network)
    if view.served_name:
        yield Yank("Model", "m", view.served_name)

    def key() -> str:
        found = context.secrets.api_key(file) if file else None
        if found is None:
            raise UsageError(f"No API key in {file}.", "Make a key for the engine again.")
        return found.reveal()

    def client() -> str:
        values = (network or f"{view.base_url}/v1", key() if file else "none", view.served_name)
        names = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL")
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in zip(names, values, strict=True))

    if view.base_url and view.served_name and (file or view.exposure is not Exposure.LAN):  # else its key is unknown
        yield Yank("Client settings", "s", client, secret=bool(file))
    if file:
        yield Yank("API key", "k", key, secret=True)
        yield Yank("Key file", "f", file)
    if preset is not None and container.ours:

        def command() -> str:
            overrides = parts.overrides_from_pairs({**parts.launched_with(container), "name": view.name})
            return parts.render_text(context[parts.Preflight].dry_plan(preset, overrides).spec)

        yield Yank("Command", "c", command)


def log_and_event_yanks(context: Context, engine: str) -> Iterator[Yank]:
    """The last line of the engine's log, and the last event."""
    if engine:
        watch = context[parts.EngineSupervisor].find(engine)
        if watch is not None and len(watch.buffer):
            yield Yank("Last log line", "l", clean(watch.buffer.line(watch.buffer.end - 1).text))
    if context.store.world.events:
        yield Yank("Last event", "e", clean(context.store.world.events[-1].text))
