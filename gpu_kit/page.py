"""Writes what a run of the kit showed into the table of docs/nccl.md, whether right or wrong.

    python -m gpu_kit.page RESULTS/results.json

A point that this run did not settle keeps its row. Runs without a GPU are refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from gpu_kit.points import POINTS

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "nccl.md"
BEGIN: Final = "<!-- gpu-kit: written by python -m gpu_kit.page -->"
END: Final = "<!-- gpu-kit: end -->"
HEAD: Final = ("point", "what", "state", "seen or known")
SETTLED: Final = ("proven", "refuted", "measured")
LONGEST: Final = 200
SOURCES: Final = "read in sources"
UNKNOWN: Final = "unknown"
_KNOWN: Final[dict[str, tuple[str, str]]] = {
    "four ranks": (UNKNOWN, "others report 3 ranks on one GPU, NCCL 2.29.7, 13 to 17 ms an op"),
    "functions": ("seen without a GPU", "2.11.0+cu130 and 2.15.0+cu132 have them, 2026-11-22"),
    "status values": (SOURCES, "enqueued after the NCCL call returned, completed by the watchdog"),
    "status cost": (SOURCES, "no lock, no CUDA call; 20 to 45 µs on gloo, busy machine"),
    "get_error": (SOURCES, "it releases the GIL"),
    "dump in a hang": (SOURCES, "an event query per entry that is not retired"),
    "watchdog": (SOURCES, "it looks every 100 ms; that this shows from outside is inferred"),
    "released": (UNKNOWN, ""),
    "capture status": (SOURCES, "no CUDA call is made"),
    "capture dump": (SOURCES, "torch.cuda.graph synchronizes first: little is left to query"),
    "capture dump of unretired": (SOURCES, "event queries are legal in relaxed mode"),
    "capture plain dump": (SOURCES, "event queries are illegal in global mode"),
    "cost of looks": (UNKNOWN, "dump of 2,000 ops on gloo, busy machine: 950 KB, 0.17 to 0.4 s"),
    "nccl2 status values": (SOURCES, "enqueued before the issue, completed a second late"),
}  # fmt: skip


def main() -> int:
    """Returns 1 for results that prove nothing."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    results = json.loads(Path(sys.argv[1]).read_text())
    if results["dry"]:
        print("these results are from a run without a GPU: they prove nothing")
        return 1
    page = PAGE.read_text()
    PAGE.write_text(with_table(page, settled(results)))
    return 0


def settled(results: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns the state and text of each point that a run has settled, with its versions."""
    about = results["about"]
    run = (
        f"{about.get('date', '?')}, torch {about.get('torch', '?')}, NCCL {about.get('nccl', '?')}"
    )
    return {
        one["point"]: (f"**{one['state']}** {run}", one["text"])
        for one in results["points"]
        if one["state"] in SETTLED
    }


def with_table(page: str, new: dict[str, tuple[str, str]]) -> str:
    """Returns the page with its table updated.

    Raises:
        ValueError: the page has no markers.
    """
    before, found, rest = page.partition(BEGIN)
    old, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"no {BEGIN} ... {END} in the page")
    cells = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in old.splitlines())
    rows = {row[0]: (row[2], row[3]) for row in cells if len(row) == len(HEAD)}
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for point, title in POINTS.items():
        kept = rows.get(point) if rows.get(point, ("",))[0].startswith("**") else None
        state, text = new.get(point) or kept or _KNOWN.get(point) or (UNKNOWN, "")
        lines.append(f"| {point} | {title} | {state} | {_cell(text)} |")
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}"


def _cell(text: str) -> str:
    flat = " ".join(text.replace("|", "/").split()) or "-"
    return flat if len(flat) <= LONGEST else f"{flat[:LONGEST]}…"


if __name__ == "__main__":
    sys.exit(main())
