"""Tiers 1 and 3: stacks by py-spy, and native stacks by py-spy or pystack. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import Final

from frtop_probe.features.doctor.facts import HostFacts, RankFacts, SearchFacts, ToolFacts, Trial
from frtop_probe.features.doctor.reading import left_to_agent, rights_of
from frtop_probe.features.doctor.tier import MEMFD, Tier, judged
from frtop_probe.proc.ptrace_refusal import Change, Obstacle, is_in_other_pids, without_seccomp

PY_SPY: Final = "py-spy"
PYSTACK: Final = "pystack"
_MACHINES: Final = {62: "x86_64", 183: "aarch64", 21: "ppc64", 243: "riscv64", 22: "s390x"}
_SECCOMP_MODES: Final = (1, 2)


def python_stacks(host: HostFacts, search: SearchFacts) -> Tier:
    """Tier 1: which call a rank is in."""
    tool = _tool(host, PY_SPY)
    rights = list(rights_of(host, [rank for rank in search.ranks if not rank.no_return]))
    obstacles = [*_of_tool(host, tool), *rights]
    if not rights and host.read_memory.result == "ok" and host.vm_readv.result == "killed":
        obstacles += _of_call(host, "process_vm_readv", host.vm_readv)  # else it reads the file
    left = left_to_agent(host, search)
    if not (obstacles or left) and tool.trial.result not in ("ok", "not tried"):
        obstacles.append(_of_failure(host, tool))
    tried = tool.trial.result == "ok"
    return judged(
        "stacks",
        "Python stacks",
        tells="which call a rank is in, its peer, which thread holds the GIL",
        lost="why a rank is missing; sends, receives and rendezvous, which no list contains",
        obstacles=obstacles,
        basis=_basis(host, tool, tried=tried),
        known=tried and not left,
        ranks=len(search.ranks),
        notes=left,
    )


def native_stacks(host: HostFacts, search: SearchFacts) -> Tier:
    """Tier 3: C and C++ frames, taken only when a person asks."""
    spy, pystack = _tool(host, PY_SPY), _tool(host, PYSTACK)
    tool = pystack if _runs(host, pystack) and host.vm_readv.is_open else spy
    ranks = [rank for rank in search.ranks if not rank.no_return]
    rights = list(rights_of(host, ranks))
    obstacles = [*_of_tool(host, tool), *rights]
    if not rights and host.read_memory.result == "ok":
        obstacles += _of_call(host, "ptrace", host.ptrace)
    obstacles += [_elsewhere(rank) for rank in ranks if is_in_other_pids(host.rights, rank.rights)]
    for rank in ranks:
        if rank.rights is not None and rank.rights.tracer:
            line = f"kill {rank.rights.tracer}    # the debugger; better: quit it in its terminal"
            text = f"a debugger (pid {rank.rights.tracer}) traces it already"
            obstacles.append(Obstacle("traced", text, (Change("type", line),), (rank.name,)))
        elif rank.rights is not None and rank.rights.state == "T":
            change = Change("type", f"kill -CONT {rank.pid}")
            obstacles.append(Obstacle("stopped", "it is stopped", (change,), (rank.name,)))
    install = f"{quote(host.program)} -m pip install 'pystack>=1.7'"
    left = left_to_agent(host, search)
    more = () if tool is pystack else (f"pystack also shows threads without Python: {install}",)
    known = host.ptrace.result == "ok" and not left
    return judged(
        "native",
        "native stacks",
        tells="C and C++ frames: the op itself, device, driver, store; only when a person asks",
        lost="which function of a library or driver a rank is stuck in",
        obstacles=obstacles,
        basis=f"{tool.name}; doctor seized a test process" if known else "not tried",
        known=known,
        ranks=len(ranks),
        notes=(*left, *more),
    )


def _elsewhere(rank: RankFacts) -> Obstacle:
    """A rank in a container: the tools look for its threads by their numbers there."""
    line = "frtop stacks --native --rank N --ssh CONTAINER --via 'docker exec -i {host} sh'"
    return Obstacle(
        "pid namespace",
        "py-spy and pystack do not find the threads of a process in another pid namespace (a"
        " container)",
        (Change("type", line),),
        (rank.name,),
    )


def _basis(host: HostFacts, tool: ToolFacts, *, tried: bool) -> str:
    if tried:
        return f"py-spy{', sent from here,' * tool.sent} has read a test process"
    return "no process to try it on" if host.vm_readv.result == "not tried" else "not tried"


def _of_failure(host: HostFacts, tool: ToolFacts) -> Obstacle:
    text = f"py-spy fails on a test process: {tool.trial.detail}"
    if not tool.sent or host.memory_file.is_open:
        return Obstacle("py-spy fails", text)
    text = (
        f"py-spy is not installed there, and the one that frtop sends cannot run from memory"
        f" ({tool.trial.detail})"
    )
    return Obstacle("memfd", text, (Change("type", MEMFD), _install(host, PY_SPY)))


def _install(host: HostFacts, name: str) -> Change:
    return Change("type", f"{quote(host.program)} -m pip install --force-reinstall {name}")


def _tool(host: HostFacts, name: str) -> ToolFacts:
    return next((tool for tool in host.tools if tool.name == name), ToolFacts(name))


def _runs(host: HostFacts, tool: ToolFacts) -> bool:
    return bool(tool.path) and not list(_of_tool(host, tool)) and tool.trial.is_open


def _of_tool(host: HostFacts, tool: ToolFacts) -> Iterable[Obstacle]:
    install = _install(host, tool.name)
    if not tool.path:
        whose = "that" if host.by_shell else "frtop's"
        text = f"{tool.name} is neither beside {whose} Python nor on PATH"
        if host.by_shell:
            text += ", and the operator's own was not sent (missing, or for another processor)"
        yield Obstacle(f"no {tool.name}", text, (install,))
    elif tool.machine and host.machine and tool.machine != host.machine:
        theirs, ours = (
            _MACHINES.get(number, f"machine {number}") for number in (tool.machine, host.machine)
        )
        text = f"{tool.path} is for {theirs}, this host is {ours}"
        yield Obstacle("architecture", text, (install,))
    elif tool.sent:
        return  # it is in memory: only its trial counts
    elif tool.noexec:
        text = f"{tool.path} is on a file system that allows no program to run (noexec)"
        remount = Change("type", f"sudo mount -o remount,bind,exec {quote(tool.mount)}")
        elsewhere = Change("type", f"cp {quote(tool.path)} ~/bin/; export PATH=~/bin:$PATH")
        yield Obstacle("noexec", text, (remount, elsewhere))
    elif not tool.executable:
        text = f"{tool.path} is not executable"
        yield Obstacle("not executable", text, (Change("type", f"chmod a+x {quote(tool.path)}"),))


def _of_call(host: HostFacts, name: str, trial: Trial) -> Iterable[Obstacle]:
    """The obstacle if a call fails despite the right to trace."""
    if trial.is_open:
        return
    by = "a seccomp profile" if host.rights.seccomp in _SECCOMP_MODES else "a security module"
    did = "ends" if trial.result == "killed" else "refuses"
    code = "seccomp" if host.rights.seccomp in _SECCOMP_MODES else "module"
    text = f"{by} {did} {name} ({trial.detail}) on a test process"
    yield Obstacle(code, text, without_seccomp())
