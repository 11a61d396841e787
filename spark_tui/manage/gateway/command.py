"""gateway: one address for all engines of this machine, which launches models on request."""

from __future__ import annotations

from typing import Any, Final

import click

from spark_tui.base.context import Context
from spark_tui.base.engine.container import LOOPBACK
from spark_tui.base.engine.runtimes import KEY_VARIABLES
from spark_tui.base.engine.units import boot_unit, unit_name
from spark_tui.base.errors import RefusedError, UsageError
from spark_tui.base.gateway import GatewayStatus
from spark_tui.base.remote import GATEWAY_PORT
from spark_tui.base.secret import Secret
from spark_tui.base.text import clean_line
from spark_tui.catalog.fit.use.fit import observe
from spark_tui.catalog.presets.model.command import LOOPBACK_NAMES
from spark_tui.catalog.presets.use.rights import find_preset
from spark_tui.cli.command import complete, group, yes_option
from spark_tui.cli.session import Session, confirm
from spark_tui.machine.gateway import GatewayKeys, read_status
from spark_tui.manage.gateway import show
from spark_tui.manage.gateway.model import MOST_FAILURES, STAY_SECONDS, GatewayPolicy
from spark_tui.manage.gateway.use.gateway import Gateway, key_name
from spark_tui.observe.engines.show.engines import boot_text
from spark_tui.observe.metrics.use.history import supervised
from spark_tui.run.service.use import BootUnits

_UNIT: Final = "spark-tui-gateway"
"""Its name among the units that start with the machine."""
_MOST_NAME: Final = 64
_MOST_KEY: Final = 512


@group("gateway")
@click.option("--address", default=LOOPBACK, metavar="ADDRESS", help="Address to listen on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=GATEWAY_PORT, metavar="PORT", help="[8080]; 0: any.")
@click.option(
    "--preset",
    "presets",
    multiple=True,
    metavar="PRESET",
    shell_complete=complete("presets"),
    help="May be launched on request; may be repeated.  [those whose model is downloaded]",
)
@click.option("--alias", "aliases", multiple=True, metavar="NAME=MODEL", help="Another name of a model.")
@click.option("--pin", "pinned", multiple=True, metavar="NAME", help="Never stop this engine.")
@click.option("--together", multiple=True, metavar="A,B", help="These may run at once; all others stop first.")
@click.option("--alone", is_flag=True, help="One engine at a time.  [as many as fit in memory]")
@click.option("--ttl", type=click.FloatRange(0), default=0.0, metavar="MINUTES", help="Stop idle engines.  [0: never]")
@click.option(
    "--stay",
    type=click.FloatRange(0),
    default=STAY_SECONDS,
    metavar="SECONDS",
    help="An engine stays for so long after a request.  [15]",
)
@click.option(
    "--failures",
    type=click.IntRange(1),
    default=MOST_FAILURES,
    metavar="N",
    help="Launches that may fail in an hour, per preset.  [3]",
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME=URL",
    help="Serve another machine's models too, through its gateway; least busy first.",
)
@click.option("--install", is_flag=True, help="Start it with the machine, with these options, as a systemd user unit.")
@click.option("--uninstall", is_flag=True, help="Stop and remove that unit.")
@yes_option
def gateway(session: Session, install: bool, uninstall: bool, yes: bool, address: str, port: int, **how: Any) -> None:
    """Serve all engines at one address, and launch models on request.

    Clients name a model: an engine, a preset, a served name or an alias. A request for a preset that is not running
    launches it, after idle engines have made room; an engine that answers is never stopped. Streaming clients wait,
    others get 503 with Retry-After. Where its optional packages are not installed, the command that
    installs them is shown.
    """
    if install and uninstall:
        raise click.UsageError("Use either --install or --uninstall.")
    policy = _policy(**how)
    if uninstall:
        was = session.run(lambda context: context.in_thread(context.ports.boot.remove, unit_name(_UNIT)), changes=True)
        session.done(
            {"id": "gateway-unit", "installed": False, "was_installed": was},
            "The gateway does not start at boot any more." if was else "No gateway unit is installed.",
        )
    elif install:
        _install(session, policy, address, port, yes=yes)
    else:
        _serve(session, policy, address, port)


def _policy(
    presets: tuple[str, ...],
    aliases: tuple[str, ...],
    pinned: tuple[str, ...],
    together: tuple[str, ...],
    alone: bool,
    ttl: float,
    stay: float,
    failures: int,
    peers: tuple[str, ...],
) -> GatewayPolicy:
    """The options as typed. Raises UsageError for an alias without a model, and a peer without an address."""
    pairs = [each.partition("=") for each in aliases]
    if any(not (name and model) for name, _, model in pairs):
        raise UsageError("An alias needs a name and a model.", "For example: --alias gpt-4o-mini=qwen3.6-35b")
    groups = tuple(frozenset(filter(None, each.split(","))) for each in together)
    named = tuple((name, model) for name, _, model in pairs)
    others = tuple((name, url.removesuffix("/v1")) for name, _, url in (each.partition("=") for each in peers))
    if any(not name or not url.startswith(("http://", "https://")) for name, url in others):
        raise UsageError("A peer needs a name and an address.", "For example: --peer spark-2=http://192.168.100.2:8080")
    return GatewayPolicy(presets, named, pinned, groups, alone, ttl * 60, stay, failures, others)


def _serve(session: Session, policy: GatewayPolicy, address: str, port: int) -> None:
    def ready(url: str) -> None:
        session.out.json_line({"id": "gateway", "url": f"{url}/v1"})
        session.out.line(f"{url}/v1")
        session.err.say("Ctrl-C stops the gateway. Engines keep running.")

    async def work(context: Context) -> None:
        gateway = Gateway(context, policy)
        is_open = address not in LOOPBACK_NAMES
        if is_open and not gateway.keys.all():
            raise RefusedError(
                f"Anyone who reaches {address} could use this gateway.",
                "Add a key first: spark-tui gateway keys add NAME",
            )
        for name in policy.presets:
            find_preset(context, name)
        await observe(context, session.err.note)
        if is_open:
            session.err.note("The connection is not encrypted: keys can be read on the network.")
        await supervised(context, gateway.run(address, port, keyed=is_open, on_ready=ready))

    session.run(work, changes=True)
    session.err.say("The gateway has stopped. Engines keep running.")


# --- unit -----------------------------------------------------------------------------------------------


def _words(policy: GatewayPolicy, address: str, port: int) -> tuple[str, ...]:
    """The command of a gateway with this policy."""
    words = ["gateway", "--address", address, "--port", str(port), "--ttl", f"{policy.ttl_seconds / 60:g}"]
    words += ["--stay", f"{policy.stay_seconds:g}", "--failures", str(policy.failures), *["--alone"] * policy.alone]
    for option, values in (
        ("--preset", policy.presets),
        ("--alias", [f"{name}={model}" for name, model in policy.aliases]),
        ("--pin", policy.pinned),
        ("--together", [",".join(sorted(each)) for each in policy.together]),
        ("--peer", [f"{name}={url}" for name, url in policy.peers]),
    ):
        for value in values:
            words += [option, value]
    return tuple(words)


def _install(session: Session, policy: GatewayPolicy, address: str, port: int, *, yes: bool) -> None:
    words = _words(policy, address, port)
    if not confirm(session, f"Start at boot: spark-tui {' '.join(words)}", yes=yes):
        raise RefusedError("Nothing was written.", "Skip the question with --yes.")

    async def enable(context: Context) -> str:
        await context.in_thread(context.ports.boot.install, boot_unit(_UNIT, words))
        return boot_text(await context[BootUnits].status(_UNIT))

    text = session.run(enable, changes=True)
    session.done({"id": "gateway-unit", "installed": True}, f"The gateway {text}. See: spark-tui gateway status")


# --- status and keys ------------------------------------------------------------------------------------


@gateway.sub("status", "  spark-tui gateway status --json | jq '.swaps'")
def status(session: Session) -> None:
    """Show what the gateway serves, launches and waits for."""

    async def read(context: Context) -> tuple[GatewayStatus | None, float]:
        return await context.in_thread(read_status, context.ports.state), context.clock.now()

    found, now = session.run(read)
    session.out.json(show.gateway_object(found))
    if found is None:
        session.err.say("No gateway is running. Start one: spark-tui gateway")
    else:
        session.out.page(show.gateway_page(found, now))


@group("keys")
def keys(session: Session) -> None:
    """Manage the keys of clients: one each, revocable. Without a command: the list."""
    _list_keys(session)


gateway.add(keys)


@keys.sub("add", "  spark-tui gateway keys add laptop")
@click.argument("client", metavar="NAME")
def add(session: Session, client: str) -> None:
    """Make a key for a client and print it, once. Only its digest is kept."""
    if not client or client != clean_line(client).strip() or len(client) > _MOST_NAME:
        raise UsageError("That is no usable name.", f"Use one line of up to {_MOST_NAME} characters.")

    async def work(context: Context) -> str:
        key = context.secrets.new_key()
        GatewayKeys(context.ports.state, context.clock).add(client, key)
        return key.reveal()

    key = session.run(work, changes=True)
    session.out.answer({"id": client, "key": key}, key)
    session.err.say("Shown only now. Clients send it as their API key. Restart a gateway that runs without keys.")


@keys.sub("list", "  spark-tui gateway keys list --json")
def list_keys(session: Session) -> None:
    """List clients that have a key."""
    _list_keys(session)


def _list_keys(session: Session) -> None:
    found = session.run(lambda context: context.in_thread(GatewayKeys(context.ports.state, context.clock).all))
    session.out.json([show.key_object(each) for each in found])
    session.out.lines(f"{each.client}  {show.key_object(each)['added']}" for each in found)
    if not found:
        session.err.say("No keys. Only this machine can use the gateway.")


@keys.sub("revoke", "  spark-tui gateway keys revoke laptop")
@click.argument("client", metavar="NAME")
def revoke(session: Session, client: str) -> None:
    """Revoke a client's key. A running gateway refuses it, and ends its open answers, within two seconds."""

    session.run(
        lambda context: context.in_thread(GatewayKeys(context.ports.state, context.clock).revoke, client), changes=True
    )
    session.done({"id": client, "revoked": True}, f"The key of {client} is revoked.")


@keys.sub("use", "  ssh spark-2 spark-tui gateway keys add spark-1 | spark-tui gateway keys use spark-2")
@click.argument("peer", metavar="PEER")
def use(session: Session, peer: str) -> None:
    """Keep the key that another machine's gateway gave this one: from standard input, or asked for."""
    if not peer or peer != clean_line(peer).strip() or len(peer) > _MOST_NAME:
        raise UsageError("That is no usable name.", f"Use one line of up to {_MOST_NAME} characters.")
    piped = session.stdin is not None and not session.stdin.isatty()
    key = session.stdin.read(_MOST_KEY) if piped and session.stdin is not None else click.prompt("Key", hide_input=True)
    if not key.strip():
        raise UsageError("There is no key on standard input.", f"On that machine: spark-tui gateway keys add {peer}")

    kept = {KEY_VARIABLES[0]: Secret(key.strip())}
    session.run(lambda context: context.in_thread(context.secrets.env_file, key_name(peer), kept), changes=True)
    session.done({"id": peer, "kept": True}, f"Kept. Use it: spark-tui gateway --peer {peer}=URL")


@gateway.sub("export", "  spark-tui gateway export llama-swap > config.yaml")
@click.argument("kind", metavar="llama-swap|litellm", type=click.Choice(["llama-swap", "litellm"]))
@click.option("--preset", "presets", multiple=True, metavar="PRESET", shell_complete=complete("presets"))
@click.option("--ttl", type=click.FloatRange(0), default=0.0, metavar="MINUTES", help="Stop idle engines.  [0: never]")
def export(session: Session, kind: str, presets: tuple[str, ...], ttl: float) -> None:
    """Print a configuration for llama-swap or LiteLLM that launches through spark-tui."""

    async def work(context: Context) -> str:
        for name in presets:
            find_preset(context, name)
        await observe(context, session.err.note)
        gateway: Gateway = Gateway(context, GatewayPolicy(presets))
        await gateway.load()
        if kind == "llama-swap":
            return show.llama_swap_config(gateway.plans(), ttl * 60)
        return show.litellm_config(gateway.plans())

    text = session.run(work)
    session.out.json({"id": kind, "text": text})
    session.out.lines(text.splitlines())
