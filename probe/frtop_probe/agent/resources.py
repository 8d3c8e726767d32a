"""Limits what an agent takes from its host, and drops inherited resources."""

from __future__ import annotations

import logging
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

MEMORY: Final = 2 * 1024**3
"""Limit on bytes of data: twenty times what a large host needs. If an operator leaves many
responses unread, this ends the agent, not a rank in the same container."""

_NICE: Final = 5
_DESCRIPTORS: Final = 4096
"""Two per rank, a few for sockets and snapshots. Without a free one, /proc cannot be read, and
a living rank might be taken for dead."""


def drop_inherited() -> None:
    """Closes all descriptors except standard input, output and error."""
    for link in tuple(Path("/proc/self/fd").iterdir()):
        if int(link.name) > 2:
            with suppress(OSError):
                os.close(int(link.name))


def limit_resources() -> None:
    """Lowers priority and bounds memory; gives up the inherited folder and core affinity."""
    with suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with suppress(OSError):
        os.nice(_NICE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        limit = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min([MEMORY, *known]), hard))
    os.umask(0o077)
    # An abandoned child may be reaped before asyncio notices; asyncio would log that.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    os.chdir("/")
