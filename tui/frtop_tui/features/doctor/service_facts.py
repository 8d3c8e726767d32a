"""frtop's own parts on this host: the key, the agent, its ports."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Final

from frtop_probe import keys
from frtop_probe.agent.announcement import find_agent, own_version
from frtop_probe.agent.options import Options
from frtop_probe.features.doctor.facts import ServiceFacts
from frtop_probe.features.doctor.service import NO_AGENT, NO_UNPREPARED
from frtop_probe.proc.kernel_files import read_text
from frtop_probe.proc.process_rights import read_rights
from frtop_probe.ring.folder import FolderError, folder

_FILTERS: Final = ("/proc/net/ip_tables_names", "/proc/net/ip6_tables_names")


def read_service() -> ServiceFacts:
    """Reads everything; takes some milliseconds, and changes nothing.

    Raises:
        OptionProblem: FRTOP_PORT or another variable of the agent is invalid.
    """
    missing, problem, step, path = _key()
    try:
        card = find_agent(folder())
    except FolderError:
        card = None
    options = Options.from_environment()
    return ServiceFacts(
        key_path=path,
        key_problem=problem,
        key_step=step,
        key_missing=missing,
        agent_pid=card.pid if card is not None else 0,
        agent_state=read_rights(card.pid).state if card is not None else "",
        agent_version=card.version if card is not None else "",
        agent_reach=card is None or card.in_reach,
        agent_port=card.pub if card is not None else 0,
        version=own_version(),
        switched_off=tuple(n for n in (NO_AGENT, NO_UNPREPARED) if os.environ.get(n) == "0"),
        port=options.port,
        free_port=0 if card is not None else _free_port(options),
        packet_filters=tuple(
            dict.fromkeys(name for file in _FILTERS for name in read_text(Path(file)).split())
        ),
    )


def _key() -> tuple[bool, str, str, str]:
    """Whether the key is missing; else what is wrong with it, what to type, and where it is."""
    try:
        return False, "", "", str(keys.load(create=False).path)
    except keys.NoKey as missing:
        return True, missing.text, "frtop key make", ""
    except keys.KeyProblem as problem:
        return False, problem.text, problem.next, ""


def _free_port(options: Options) -> int:
    """The first port of a free pair; 0 if there is none."""
    return next((port for port in options.pairs if _is_free(options.bind, port)), 0)


def _is_free(bind: str, port: int) -> bool:
    address = "" if bind == "*" else bind
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    for number in (port, port + 1):
        with closing(socket.socket(family, socket.SOCK_STREAM)) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((address, number))
            except OSError:
                return False
    return True
