"""Rank 1 sleeps, and the agent is killed and restarted while the others wait for it."""

import time

from zoo.rank import fault, join
from zoo.work import kill_agent

CASE = fault("not_entered", 1, "sleeping", needs=("recorder",))

job = join()
for odd in job.steps(1):
    if odd:
        time.sleep(1)
        kill_agent()
        time.sleep(3600)
    job.all_reduce()
