"""A session in which somebody types: its only rank waits at a prompt."""

import code
import os
import pty

from zoo.rank import Case, join

CASE = Case(ranks=1, modes=("sync",), lasts_s=75)

join().train(40)
_, terminal = pty.openpty()
os.dup2(terminal, 0)
code.interact(local={})
