"""The table of docs/nccl.md: what a run on a GPU showed, right or wrong, and nothing else."""

from __future__ import annotations

from gpu_kit import page
from gpu_kit.points import POINTS

EMPTY = f"before\n{page.BEGIN}\n{page.END}\nafter\n"
RESULTS = {
    "about": {"date": "2027-01-01", "torch": "2.11.0+cu130", "nccl": "2.28.9"},
    "dry": False,
    "points": [
        {"point": "four ranks", "state": "proven", "text": "15 ms | an op"},
        {"point": "power", "state": "refuted", "text": "as hot as work"},
        {"point": "released", "state": "failed", "text": "its deadline passed"},
    ],
}


def row(text: str, point: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(f"| {point} |")]
    return found


def test_a_run_is_written_with_its_versions_right_or_wrong() -> None:
    text = page.with_table(EMPTY, page.settled(RESULTS))
    assert "**proven** 2027-01-01, torch 2.11.0+cu130, NCCL 2.28.9 | 15 ms / an op" in text
    assert "**refuted**" in row(text, "power")
    assert "unknown" in row(text, "released")
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_a_later_run_keeps_what_it_did_not_settle() -> None:
    text = page.with_table(EMPTY, page.settled(RESULTS))
    later = {"power": ("**proven** 2027-02-01", "cool")}
    again = page.with_table(text, later)
    assert row(again, "four ranks") == row(text, "four ranks")
    assert "cool" in row(again, "power")


def test_the_page_has_every_point_as_the_program_knows_it() -> None:
    text = page.PAGE.read_text()
    assert page.with_table(text, {}) == text
    for point in POINTS:
        assert row(text, point)
