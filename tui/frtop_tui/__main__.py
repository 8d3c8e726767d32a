"""`python -m frtop_tui`: the same as `frtop`."""

import sys

from frtop_tui.cli import main

sys.exit(main())
