"""The checks: `run` starts ranks and says facts, `judge` makes findings of facts and is pure."""
