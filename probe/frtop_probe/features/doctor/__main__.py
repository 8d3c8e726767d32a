"""`python -m frtop_probe.features.doctor [PID]`: prints this host's facts as JSON, for a pipe."""

from __future__ import annotations

import json
import sys

from frtop_probe.features.doctor.facts import document
from frtop_probe.features.doctor.host_reader import read_host
from frtop_probe.features.doctor.search import find_ranks


def main(words: list[str]) -> int:
    """Reads and prints the facts about all ranks, or about one process."""
    pid = int(words[0]) if words and words[0].isdecimal() else None
    print(json.dumps(document(read_host(), find_ranks(pid))))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
