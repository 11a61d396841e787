"""The fabric between nodes as one of them sees it: files of /sys, and what ping, ip, ssh and TCP say."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from spark_tui.base.executors import MOST_OUTPUT, NotStarted, OutputTooLong, run_child
from spark_tui.base.finding import Missing, Ok, Reading
from spark_tui.base.protocol import FabricLink
from spark_tui.base.quantities import human_bytes
from spark_tui.base.remote import CONNECTX, last_line
from spark_tui.base.text import clean_line
from spark_tui.base.untrusted import load_json
from spark_tui.machine.procfs import psutil_at, text_or_empty, why
from spark_tui.manage.cluster.model.facts import (
    ALL_GATHER,
    NO_END,
    NOT_INSTALLED,
    Dial,
    Ping,
    ProbeRequest,
    RoceDevice,
    Transfer,
)

MELLANOX: Final = "0x15b3"
_SSH: Final = ("ssh", "-n", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=yes",
               "-o", "UpdateHostKeys=no", "-o", "ControlPath=none", "-o", "ClearAllForwardings=yes")  # fmt: skip
"""Nothing is asked and nothing is written, such as a host key."""
_STATES: Final = {"up": True, "down": False, "lowerlayerdown": False, "1": True, "0": False}
_RETRY_SECONDS: Final = 0.2
_COMMAND_SECONDS: Final = 15.0


class SystemFabric:
    """The FabricProbe port. `root` is where the host's file system is seen."""

    def __init__(self, environ: Mapping[str, str], root: Path = Path("/")) -> None:
        # an ssh session's PATH may be without the folders of ip
        path = f"{environ.get('PATH', '/usr/bin:/bin')}:{root / 'usr/sbin'}:{root / 'sbin'}"
        self._environ = {**environ, "PATH": path, "LC_ALL": "C"}
        self._root = root

    # --- files ----------------------------------------------------------------------------------------

    def links(self) -> Reading[tuple[FabricLink, ...]]:
        """`/sys/class/net`, without loopback and what has neither hardware nor an address."""
        folder = self._root / "sys/class/net"
        try:
            names = sorted(entry.name for entry in os.scandir(folder) if entry.name != "lo")
            addresses = psutil_at(self._root).net_if_addrs()
        except OSError as error:
            return Missing(f"/sys/class/net: {why(error)}")
        found = []
        for name in names:
            own = tuple(
                ipaddress.IPv4Interface(f"{each.address}/{each.netmask or 32}").with_prefixlen
                for each in addresses.get(name, ())
                if each.family == socket.AF_INET
            )
            vendor = text_or_empty(folder / name / "device/vendor")
            connectx = vendor == MELLANOX or CONNECTX.fullmatch(name) is not None
            if own or connectx or (folder / name / "device").exists():
                found.append(self._link(name, folder / name, own, connectx=connectx))
        return Ok(tuple(found))

    def _link(self, name: str, folder: Path, addresses: tuple[str, ...], *, connectx: bool) -> FabricLink:
        states = (_STATES.get(text_or_empty(folder / file)) for file in ("operstate", "carrier"))
        speed, mtu = text_or_empty(folder / "speed"), text_or_empty(folder / "mtu")
        wireless = name.startswith("wl") or any((folder / each).exists() for each in ("wireless", "phy80211"))
        return FabricLink(
            clean_line(name),
            next((each for each in states if each is not None), None),
            int(speed) if speed.isdigit() else None,
            int(mtu) if mtu.isdigit() else None,
            clean_line(text_or_empty(folder / "phys_port_name")),
            wireless,
            connectx,
            addresses,
        )

    def devices(self) -> Reading[tuple[RoceDevice, ...]]:
        """`/sys/class/infiniband`; none where the kernel has no RDMA."""
        folder = self._root / "sys/class/infiniband"
        try:
            names = sorted(entry.name for entry in os.scandir(folder))
        except FileNotFoundError:
            return Ok(())
        except OSError as error:
            return Missing(f"/sys/class/infiniband: {why(error)}")
        return Ok(tuple(self._device(name, folder / name) for name in names))

    def _device(self, name: str, folder: Path) -> RoceDevice:
        port = folder / "ports/1"
        rate = re.match(r"[\d.]+", text_or_empty(port / "rate"))
        gids = []
        for kind in sorted((port / "gid_attrs/types").glob("[0-9]*"), key=lambda each: int(each.name)):
            with contextlib.suppress(ValueError):
                gid = ipaddress.IPv6Address(text_or_empty(port / "gids" / kind.name)).ipv4_mapped
                if gid is not None and text_or_empty(kind) == "RoCE v2":
                    gids.append((int(kind.name), str(gid)))
        state, firmware = (clean_line(text_or_empty(path)) for path in (port / "state", folder / "fw_ver"))
        width = text_or_empty(folder / "device/current_link_width")
        pcie = re.match(r"[\d.]+", text_or_empty(folder / "device/current_link_speed"))
        return RoceDevice(
            clean_line(name),
            state,
            float(rate[0]) if rate else None,
            firmware,
            tuple(gids),
            int(width) if width.isdecimal() else None,
            float(pcie[0]) if pcie else None,
        )

    # --- programs -------------------------------------------------------------------------------------

    async def route(self, peer: str) -> str | None:
        code, out, _ = await self._run("ip", "-j", "route", "get", peer)
        try:
            return str(load_json(out)[0].get("dev", "")) if code == 0 else "" if code == 2 else None
        except (ValueError, LookupError, AttributeError):
            return None

    async def ping(self, ping: Ping) -> Ping:
        """With its results: whether any of three came back, and small ones if none did."""
        received = small = None
        problem = ""
        for size in (ping.size, 56):
            words = ("-n", "-q", "-c", "3", "-i", "0.2", "-W", "1", "-M", "do", "-s", str(size), "-I", ping.interface)
            code, out, err = await self._run("ping", *words, ping.peer)
            match = re.search(r"(\d+) received", out)
            if not match and "unreachable" not in err:
                problem = "ping is not installed" if code is None else last_line(err) or f"ping ended with {code}"
                break
            small = bool(match and int(match[1]))
            received = small if received is None else received
            if small:
                break
        return replace(ping, received=received, small=small, problem=problem)

    async def ssh(self, address: str) -> str:
        code, _, err = await self._run(*_SSH, address, "true")
        return "" if code == 0 else "ssh is not installed" if code is None else last_line(err) or f"exit code {code}"

    async def transfer(self, transfer: Transfer, seconds: float) -> Transfer:
        """With its bandwidth. A client tries until its server is there."""
        port, client = str(transfer.port), bool(transfer.peer)
        if transfer.program == "iperf3":
            role = ("-c", transfer.peer, "-P", "4", "-t", "3", "-J") if client else ("-s", "-1")
            words = ("iperf3", *role, "-B", transfer.at, "-p", port)
        elif transfer.program == ALL_GATHER:
            words = ("docker", "run", "--rm", *transfer.words)
        else:
            words = ("ib_write_bw", "-d", transfer.at, "-i", "1", "-p", port, "-F", "-D", "3", "--report_gbits")
            words = (*words, transfer.peer) if client else words
        deadline = asyncio.get_running_loop().time() + seconds
        problem = "timed out"
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            code, out, err = await self._run(*words, seconds=left)
            if code is None:
                return replace(transfer, problem=NOT_INSTALLED)
            problem = _fault(out)
            if code == 0 and not problem:
                gbits = _gbits(transfer.program, out) if client else None
                return replace(transfer, gbits=gbits, problem="no result" if client and gbits is None else "")
            problem = problem or last_line(err) or last_line(out) or f"exit code {code}"
            if not client:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        return replace(transfer, problem=problem)

    async def _run(self, *words: str, seconds: float = _COMMAND_SECONDS) -> tuple[int | None, str, str]:
        """Exit code, standard output and error; a code of None: no such program, -1: no end within `seconds`."""
        try:
            ended = await run_child(words, self._environ, seconds=seconds)
        except NotStarted:
            return None, "", ""
        except TimeoutError:
            return -1, "", f"{NO_END} {seconds:.0f} s"
        except OutputTooLong:
            return -1, "", f"{words[0]} printed more than {human_bytes(MOST_OUTPUT)}"
        return ended.code, ended.out, ended.err

    # --- connections ----------------------------------------------------------------------------------

    async def meet(self, request: ProbeRequest) -> tuple[tuple[Dial, ...], dict[str, str]]:
        """Listens and connects at once, since no node knows when the others begin. The dials with their problems, and
        why it could not listen on a port, by port."""
        deaf, guests, servers = dict[str, str](), asyncio.Semaphore(0), []

        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            guests.release()
            writer.close()

        for port in request.ports:
            try:
                servers.append(await asyncio.start_server(greet, request.address, port))
                deaf[str(port)] = ""
            except OSError as error:
                deaf[str(port)] = f"cannot listen: {why(error)}"
        deadline = asyncio.get_running_loop().time() + request.seconds
        try:
            dials = await asyncio.gather(*(self._dial(dial, deadline) for dial in request.dials))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    for _ in range(request.guests):
                        await guests.acquire()
        finally:
            for server in servers:
                server.close()
        return tuple(dials), deaf

    async def _dial(self, dial: Dial, deadline: float) -> Dial:
        problem = "timed out"
        while asyncio.get_running_loop().time() < deadline:
            try:
                async with asyncio.timeout_at(deadline):
                    _, writer = await asyncio.open_connection(dial.peer, dial.port)
            except TimeoutError:
                break
            except OSError as error:
                problem = why(error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                writer.close()
                return dial
        return replace(dial, problem=problem)


def _fault(out: str) -> str:
    """The error in the JSON of iperf3, which ends with 0 all the same while no server is there; empty without one."""
    try:
        return last_line(str(load_json(out)["error"]))
    except (ValueError, LookupError, TypeError):
        return ""


def _gbits(program: str, out: str) -> float | None:
    """From the JSON of iperf3 or of our all-gather, or the last row of ib_write_bw: size, iterations, peak, average."""
    try:
        if program == "iperf3":
            return float(load_json(out)["end"]["sum_received"]["bits_per_second"]) / 1e9
        if program == ALL_GATHER:
            return float(load_json(out.splitlines()[-1])["busbw"])
        rows = [words for line in out.splitlines() if len(words := line.split()) >= 4 and words[0].isdigit()]
        return float(rows[-1][3])
    except (ValueError, LookupError, TypeError):
        return None
