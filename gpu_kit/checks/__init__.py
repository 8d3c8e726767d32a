"""The checks: `run` starts ranks and writes facts; `judge` makes findings of facts, and is pure."""
