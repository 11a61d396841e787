"""The box itself: `drop-caches`, `guard`, `doctor`, `serve`."""

from __future__ import annotations

import click

from spark_tui.cli.commands.frame import command, yes_option
from spark_tui.cli.session import Session


@command("drop-caches", "  spark-tui drop-caches\n  spark-tui drop-caches --install     no password from then on")
@click.option("--image", default="", metavar="IMAGE", help="A local image to do it in a container with.")
@click.option("--install", is_flag=True, help="Allow it for good, by an exact sudo rule that is shown first.")
@click.option("--uninstall", is_flag=True, help="Take that rule away.")
@click.option("--polkit", is_flag=True, help="With these: a systemd unit that polkit lets you start, not sudo.")
@yes_option
def drop_caches(session: Session, image: str, install: bool, uninstall: bool, polkit: bool, yes: bool) -> None:
    """Give up the page cache, which CUDA counts as used.

    Usable memory stays the same, free memory rises. Root's business: what this user is allowed is used, else sudo asks.
    """
    from spark_tui.cli import memory as caches

    if install and uninstall:
        raise click.UsageError("--install and --uninstall are two things.")
    if polkit and not (install or uninstall):
        raise click.UsageError("--polkit goes with --install or --uninstall.")
    if image and (install or uninstall):
        raise click.UsageError("--image is for dropping them now, not for --install or --uninstall.")
    if install:
        (caches.install_unit if polkit else caches.install_grant)(session, yes=yes)
    elif uninstall:
        (caches.remove_unit if polkit else caches.remove_grant)(session)
    else:
        caches.drop_caches(session, image=image, yes=yes)


_GUARD_EXAMPLES = """\
  spark-tui guard                               in the foreground, until Ctrl-C
  spark-tui guard --install                     as a systemd unit of yours
  spark-tui guard --status                      does it run, and what did it do
"""


@command("guard", _GUARD_EXAMPLES)
@click.option("--every-engine", is_flag=True, help="Engines that spark-tui did not launch may be stopped too.")
@click.option("--while-engines-run", is_flag=True, help="End two minutes after the last engine.")
@click.option("--status", "show", is_flag=True, help="Whether one runs, and what it did.")
@click.option("--install", is_flag=True, help="As a systemd unit of yours, which is shown first.")
@click.option("--uninstall", is_flag=True, help="Stop and remove that unit.")
@yes_option
def guard(
    session: Session,
    every_engine: bool,
    while_engines_run: bool,
    show: bool,
    install: bool,
    uninstall: bool,
    yes: bool,
) -> None:
    """Stop an engine before the box runs out of memory and freezes.

    Looks at memory ten times a second when it is short. First a graceful stop, then a kill; the reason is kept.
    A launch starts one by itself (setting guard_auto), which ends some time after the last engine.
    """
    from spark_tui.cli import guard as guarding

    if install + uninstall + show > 1:
        raise click.UsageError("--status, --install and --uninstall are different things.")
    if show:
        guarding.guard_status(session)
    elif install:
        guarding.install_unit(session, every_engine=every_engine, yes=yes)
    elif uninstall:
        guarding.uninstall_unit(session)
    else:
        guarding.guard(session, every_engine=every_engine, while_engines_run=while_engines_run)


_DOCTOR_EXAMPLES = """\
  spark-tui doctor
  spark-tui doctor --gpu-container --report report.txt
"""


@command("doctor", _DOCTOR_EXAMPLES)
@click.option("--gpu-container", is_flag=True, help="Start a container with the GPU, too; it is removed again.")
@click.option("--report", default="", metavar="FILE", help="Write it all to a file, keys and tokens masked.")
def doctor(session: Session, gpu_container: bool, report: str) -> int:
    """What is wrong with this box, and what to do about it. Exit code 1: a check fails."""
    from spark_tui.cli.doctor import doctor as work

    return work(session, gpu_container=gpu_container, report=report)


_SERVE_EXAMPLES = """\
  spark-tui serve
  ssh -L 8765:127.0.0.1:8765 my-spark spark-tui serve     from a laptop
"""


@command("serve", _SERVE_EXAMPLES)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where it listens.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, metavar="PORT", help="[8765]; 0: any.")
@click.option("--to-network", is_flag=True, help="Allow an address that other machines can reach.")
def serve(session: Session, host: str, port: int, to_network: bool) -> None:
    """The control centre in your browser, behind a token.

    Needs an optional part: pip install 'spark-tui[web]'.
    """
    from spark_tui.cli.serve import serve as work

    work(session, host=host, port=port, to_network=to_network)
