"""The agent is killed and restarted while the job is healthy; then rank 1 sleeps."""

import time

from zoo.rank import fault, join
from zoo.work import kill_agent

CASE = fault("not_entered", 1, "sleeping", needs=("recorder",))
STEPS = 150

job = join()
for step in range(STEPS):
    time.sleep(0.1)
    if step == 20 and job.rank == 0:
        kill_agent()
    if step == STEPS - 10 and job.rank == 1:
        job.mark_fault()
        time.sleep(3600)
    job.all_reduce()
