"""What frtop costs and how fast it is: `make bench`. Reports, not tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # for its scenes and fakes
