"""The time from a key until its screen is written, while a hung job of scripted ranks reports."""

from __future__ import annotations

import statistics
from typing import Final

from bench.terminal import Terminal
from frtop_tui.demo.scripted.script import MOST_HOSTS

BUDGETS_MS: Final = {64: 50, 1024: 80, 4096: 150}
KEYS: Final = (
    ("2", "ranks {ranks:,}"), ("3", "hosts {hosts:,}:"), ("4", "stacks of all ranks"),
    ("1", "verdict: not entered"), ("w", "who waits for whom"), ("?", "help: keys"),
    ("1", "verdict: not entered"),
)  # fmt: skip
"""Each key, and words of the screen that it opens."""
ROUNDS: Final = 12
SETTLE_S: Final = 8.0


def main() -> None:
    """Prints median, 95th percentile and worst of all keys, first visits to a screen included."""
    print(f"a key until its screen is written, {ROUNDS} rounds of {len(KEYS)} screens, 160x50, ms")
    for ranks, budget in BUDGETS_MS.items():
        with Terminal("demo", "--ranks", str(ranks), "--fault", "stall") as terminal:
            terminal.wait_for("confirmed", at_least_s=SETTLE_S)
            rounds = [_round(terminal, ranks) for _ in range(ROUNDS)]
        took = sorted(1000 * one for each in rounds for one in each)
        print(f"  {ranks:>5,} ranks   median {statistics.median(took):4.0f}"
              f"   p95 {took[int(len(took) * 0.95)]:4.0f}   worst {took[-1]:4.0f}"
              f"   (budget of p95 {budget})")  # fmt: skip


def _round(terminal: Terminal, ranks: int) -> list[float]:
    hosts = min(ranks // 8, MOST_HOSTS)
    return [terminal.press(key, words.format(ranks=ranks, hosts=hosts)) for key, words in KEYS]


if __name__ == "__main__":
    main()
