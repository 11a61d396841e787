"""A container as a systemd service: started at boot, restarted a bounded number of times, stopped gracefully."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spark_tui.domain.errors import UsageError
from spark_tui.domain.presets.container_spec import ContainerSpec, RestartPolicy
from spark_tui.domain.presets.dialects.systemd_text import command_line, plain, word
from spark_tui.domain.presets.dialects.yaml_text import comment
from spark_tui.domain.presets.docker_run import render_lines

DOCKER: Final = "/usr/bin/docker"
STOP_SECONDS: Final = 30
RESTART_SECONDS: Final = 30
MOST_STARTS: Final = 3
STARTS_WITHIN_SECONDS: Final = 7200
"""A restart loop leaks GPU mappings and wedges a Spark after some dozens of rounds (eugr/spark-vllm-docker#257)."""


def systemd_text(spec: ContainerSpec, about: tuple[str, ...] = ()) -> str:
    """The unit, for /etc/systemd/system/NAME.service. systemd restarts, so Docker does not; the ended container of an
    earlier start is kept until the next one, with its log. Raises UsageError for a container without a name."""
    if not spec.name:
        raise UsageError("A service needs a container's name.", "Give one: --set name=NAME")
    run = render_lines(replace(spec, restart=RestartPolicy()))
    started = command_line([(DOCKER, "run"), *run[1:]])  # in the foreground: systemd watches it
    name = word(spec.name)
    return comment(about) + "\n".join(
        (
            "[Unit]",
            f"Description={plain(f'{spec.name}: {spec.image}')}",
            "Requires=docker.service",
            "Wants=network-online.target",
            "After=docker.service network-online.target",
            f"StartLimitIntervalSec={STARTS_WITHIN_SECONDS}",
            f"StartLimitBurst={MOST_STARTS}",
            "",
            "[Service]",
            "Type=exec",
            "# A pull may take an hour.",
            "TimeoutStartSec=infinity",
            f"ExecStartPre=-{DOCKER} rm {name}",
            f"ExecStart={started}",
            f"ExecStop={DOCKER} stop -t {STOP_SECONDS} {name}",
            f"TimeoutStopSec={2 * STOP_SECONDS}",
            f"Restart={_restart(spec.restart)}",
            f"RestartSec={RESTART_SECONDS}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        )
    )


def _restart(policy: RestartPolicy) -> str:
    return "always" if policy.name in ("always", "unless-stopped") else "on-failure"
