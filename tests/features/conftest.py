"""Real jobs, for the features that are tried on one; see `e2e/conftest.py`."""

from e2e.conftest import home, torchrun

__all__ = ["home", "torchrun"]
