"""Hosts on one machine: each is a set of namespaces with a name, address, clock and link.

One small process holds the network, UTS, mount and time namespaces of each host; a switch
connects the hosts. Links, addresses and mounts disappear with the holders, which end with
the test's process at the latest.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from waiting import wait_for

TOOLS: Final = ("ip", "tc", "unshare", "nsenter", "mount", "hostname")
CLOCKS: Final = Path("/proc/self/ns/time").exists()
"""Whether hosts can have their own monotonic clocks here."""
_WIRE: Final = Path(__file__).with_name("wire.py")
_HEARS_ALL: Final = "link set switch0 promisc"
_SETTLE: Final = """
hostname "$1"
mount --bind "$2" /etc/hosts
mount -t tmpfs -o mode=1777,size=64m tmpfs /dev/shm
ip link set lo up
echo $$
exec cat >/dev/null
"""
"""Makes the new namespaces a host, says who holds them, and holds them until stdin ends."""


def obstacle() -> str:
    """Why hosts cannot be made here, "" if they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "ip", "link", "add", "type", "bridge"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"no namespaces or bridges here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass(frozen=True, slots=True)
class Host:
    """`pid` holds its namespaces; `net` is that of its network.

    `ahead_s` is how far its monotonic clock is ahead of ours. With `own_pids` it sees its own
    processes only.
    """

    name: str
    address: str
    ahead_s: int
    holder: subprocess.Popen[str] = field(repr=False)
    pid: int
    net: int
    own_pids: bool = False

    @property
    def managed(self) -> str:
        """Its address on the second cable, where there is one."""
        return self.address.replace("10.77.", "10.78.")

    @classmethod
    def held(cls, name: str, address: str, ahead_s: int, holder: subprocess.Popen[str]) -> Host:
        """Waits for the host that `holder` makes."""
        assert holder.stdout is not None
        said = holder.stdout.readline().strip()
        assert said.isdecimal(), f"no host {name} could be made"
        own_pids = said == "1"
        if own_pids:  # as it sees itself; it is the only child of `unshare`
            said = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().strip()
        net = Path(f"/proc/{said}/ns/net").stat().st_ino
        return cls(name, address, ahead_s, holder, int(said), net, own_pids)

    def inside(self, *command: str) -> list[str]:
        """The command line that runs `command` on this host."""
        clock = ("--time",) if self.ahead_s else ()
        pids = ("--pid",) if self.own_pids else ()
        return [
            "nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", *pids, *clock,
            *command,
        ]  # fmt: skip

    def run(self, *command: str, given: str = "") -> str:
        """Runs a command on this host; returns its output."""
        done = subprocess.run(
            self.inside(*command), input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, given, done.stderr)
        return done.stdout

    def file(self, path: str) -> Path:
        """A file of this host, as seen from outside."""
        return Path(f"/proc/{self.pid}/root{path}")

    def processes(self) -> list[int]:
        """All processes on this host, except the holder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) not in (self.pid, self.holder.pid):
                with suppress(OSError):
                    if (entry / "ns" / "net").stat().st_ino == self.net:
                        found.append(int(entry.name))
        return found


class Network:
    """The hosts by name, and the switch between them."""

    def __init__(
        self,
        folder: Path,
        names: tuple[str, ...],
        ahead_s: tuple[int, ...],
        cables: int = 1,
        *,
        own_pids: Collection[str] = (),
    ) -> None:
        """Starts the hosts and joins them; `folder` is for the hosts file that they share.

        With two cables, `eth1` is a management network; NAME-m is a host's name there. Those in
        `own_pids` see their own processes only.
        """
        self.hosts: dict[str, Host] = {}
        self._switch: Host | None = None
        addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 10)}
        known = folder / "hosts"
        known.write_text(
            "127.0.0.1 localhost\n"
            + "".join(
                f"{address} {name}\n{address.replace('10.77.', '10.78.')} {name}-m\n"
                for name, address in addresses.items()
            )
        )
        holders: list[subprocess.Popen[str]] = []
        try:
            clocks = (0, *(ahead_s if CLOCKS else (0,) * len(names)))
            for name, ahead in zip(("switch", *names), clocks, strict=True):
                holders.append(_hold(name, known, ahead, own_pids=name in own_pids))
            for name, ahead, holder in zip(names, clocks[1:], holders[1:], strict=True):
                self.hosts[name] = Host.held(name, addresses[name], ahead, holder)
            self._switch = Host.held("switch", "", 0, holders[0])
            for cable in range(cables):
                self._join(cable)
        except BaseException:
            for holder in holders:
                _release(holder)
            raise

    @property
    def switch(self) -> Host:
        assert self._switch is not None
        return self._switch

    def _join(self, cable: int) -> None:
        """One switch for each cable; `eth0` at the first, `eth1` at the second."""
        lines = [f"link add switch{cable} type bridge", f"link set switch{cable} up"]
        neighbours = ""
        for number, (name, host) in enumerate(self.hosts.items()):
            mac = f"02:00:00:00:{cable:02x}:{number:02x}"
            port = _port(name, cable)
            lines += [
                f"link add {port} type veth peer name eth{cable} address {mac} netns {host.pid}",
                f"link set {port} master switch{cable} up",
            ]
            # Permanent: packets to a host that is cut off vanish without an error.
            address = host.managed if cable else host.address
            neighbours += f"neigh add {address} lladdr {mac} nud permanent dev eth{cable}\n"
        self.switch.run("ip", "-batch", "-", given="\n".join(lines))
        for host in self.hosts.values():
            address = host.managed if cable else host.address
            own = f"addr add {address}/24 dev eth{cable}\nlink set eth{cable} up\n"
            host.run("ip", "-batch", "-", given=own + neighbours)

    @contextmanager
    def cut(self, name: str, cable: int = 0) -> Iterator[None]:
        """Pulls one of the host's cables at the switch, and plugs it in again."""
        port = _port(name, cable)
        self.switch.run("ip", "link", "set", port, "down")
        try:
            yield
        finally:
            self.switch.run("ip", "link", "set", port, "up")

    @contextmanager
    def slow(self, name: str, rate: str) -> Iterator[None]:
        """Lets so little through to and from the host, `64kbit` for example."""
        ends = ((self.switch, name), (self.hosts[name], "eth0"))
        shape = ("root", "tbf", "rate", rate, "burst", "4kb", "latency", "2s")
        for host, device in ends:
            host.run("tc", "qdisc", "replace", "dev", device, *shape)
        try:
            yield
        finally:
            for host, device in ends:
                host.run("tc", "qdisc", "delete", "dev", device, "root")

    @contextmanager
    def lossy(self, name: str, rate: str) -> Iterator[None]:
        """Loses on the way to the host what is more than `rate`: a switch with hardly a buffer."""
        shape = ("root", "tbf", "rate", rate, "burst", "4kb", "limit", "8kb")
        self.switch.run("tc", "qdisc", "replace", "dev", name, *shape)
        try:
            yield
        finally:
            self.switch.run("tc", "qdisc", "delete", "dev", name, "root")

    @contextmanager
    def poor(self, name: str, delay_ms: float, spread_ms: float, loss: float) -> Iterator[None]:
        """Delays, reorders and loses what goes to and from the host (`wire.py`)."""
        numbers = (str(delay_ms), str(spread_ms), str(loss))
        self.switch.run("ip", "-batch", "-", given=f"link set {name} nomaster\n{_HEARS_ALL} on\n")
        wire = subprocess.Popen(
            self.switch.inside(sys.executable, str(_WIRE), name, "switch0", *numbers),
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert wire.stdout is not None
            assert wire.stdout.readline() == "ready\n"
            yield
        finally:
            wire.kill()
            wire.communicate()
            back = f"link set {name} master switch0\n{_HEARS_ALL} off\n"
            self.switch.run("ip", "-batch", "-", given=back)

    def close(self) -> None:
        """Ends all processes on the hosts, then the hosts."""
        hosts = list(self.hosts.values())
        left: list[int] = []

        def are_empty() -> bool:
            left[:] = [pid for host in hosts for pid in host.processes()]
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        wait_for(are_empty, lambda: f"the processes {left} end", 60)
        for host in (*hosts, self.switch):
            _release(host.holder)


def _port(name: str, cable: int) -> str:
    """The switch's end of a cable."""
    return f"{name}-m" if cable else name


def _hold(name: str, known: Path, ahead_s: int, *, own_pids: bool) -> subprocess.Popen[str]:
    pids = ("--pid", "--fork", "--kill-child", "--mount-proc") if own_pids else ()
    clock = ("--time", "--monotonic", str(ahead_s), "--boottime", str(ahead_s)) if ahead_s else ()
    return subprocess.Popen(
        ["unshare", "--net", "--uts", "--mount", *pids, *clock, "sh", "-ec", _SETTLE, "host", name,
         str(known)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _release(holder: subprocess.Popen[str]) -> None:
    holder.communicate(timeout=60)
